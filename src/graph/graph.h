// SPDX-License-Identifier: Apache-2.0
// The op graph: a model's forward pass as a list of nodes in order of execution.
//
// Values are in static single assignment form. A node that changes a value in place makes a new
// version of it: a new Value that shares the memory. The old version must not be read afterwards;
// verify() checks that. Building a graph does no device work. Passes are functions from Graph to
// Graph (passes.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/op_def.h"
#include "quant/packed_rows.h"

namespace heddle::graph {

// A value of the graph: an index into Graph::values.
struct Value {
  uint32_t id = UINT32_MAX;

  [[nodiscard]] bool valid() const { return id != UINT32_MAX; }

  friend bool operator==(const Value&, const Value&) = default;
};

enum class ValueKind : uint8_t {
  kInput,     // set for every step: token ids, positions
  kConstant,  // a weight, which is the same in every step
  kComputed,
};

struct ValueInfo {
  ValueKind kind = ValueKind::kComputed;
  ops::TensorMeta meta;
  std::string name;     // name of an input, weight or output; other values are printed by their
                        // number
  TensorView constant;  // the weight's view, for kConstant
  // owns the packed rows to which `constant` points if it is a part of a weight; else null
  std::shared_ptr<const quant::PackedWeight> cut = {};
};

struct Node {
  const ops::OpDef* op = nullptr;
  std::vector<Value> inputs;
  std::vector<Value> outputs;
  ops::Attrs attrs;
  std::string scope;  // the part of the model that added the node: "layers.3."
};

struct Graph {
  std::vector<ValueInfo> values;
  std::vector<Node> nodes;
  std::vector<Value> inputs;
  std::vector<Value> outputs;

  [[nodiscard]] const ValueInfo& info(Value value) const { return values[value.id]; }

  [[nodiscard]] ValueInfo& info(Value value) { return values[value.id]; }

  Value add_value(ValueInfo value);

  // The value as text in messages: "%12" or "%12 lm_head".
  [[nodiscard]] std::string label(Value value) const;
};

// For each value: the number of nodes that read it and the last of these nodes. A graph output
// counts as read by a node after the last one.
struct UseCounts {
  // Indexed by value id; being an output of the graph counts as one use.
  std::vector<int32_t> num_uses;
  std::vector<int32_t> last_use;  // by value: node index; nodes.size() for graph outputs, -1 if
                                  // never read
  std::vector<int32_t> producer;  // by value: index of the node that makes it; -1 for inputs and
                                  // constants
};

UseCounts count_uses(const Graph& graph);

}  // namespace heddle::graph
