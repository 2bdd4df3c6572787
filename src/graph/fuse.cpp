// SPDX-License-Identifier: Apache-2.0
#include "graph/fuse.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace heddle::graph {

namespace {

struct Pattern {
  std::string_view first;
  std::string_view second;
  std::string_view fused;

  // Which input of `second` must be the first's result.
  int joined_input = 0;

  // Whether the first's result may have other readers: then the fused op returns it as well.
  bool keeps_first_result = false;

  // The fused node's inputs: the first's, then the second's without the joined one; with `swap`,
  // the second's come first.
  bool swap = false;
};

// keeps_first_result also means: the fused op writes the result over the first's input 0.
constexpr Pattern kPatterns[] = {
    {.first = "add", .second = "rms_norm", .fused = "add_rms_norm", .keeps_first_result = true},
    {.first = "rms_norm", .second = "rope", .fused = "qk_norm_rope"},
    {.first = "sigmoid", .second = "mul", .fused = "sigmoid_mul", .joined_input = 1, .swap = true},
};

class Fuser {
 public:
  Fuser(Graph graph, const ops::OpRegistry& registry)
      : graph_(std::move(graph)), registry_(registry) {}

  Result<Graph> run() {
    for (const Pattern& pattern : kPatterns) {
      const ops::OpDef* fused = registry_.find(pattern.fused);
      if (fused == nullptr) {
        return not_found(
            fmt::format("fusion needs the op {}, which is not registered", pattern.fused));
      }
      uses_ = count_uses(graph_);
      std::vector<bool> dropped(graph_.nodes.size(), false);
      for (size_t second = 0; second < graph_.nodes.size(); ++second) {
        const std::optional<size_t> first = match(pattern, second, dropped);
        if (!first) continue;
        graph_.nodes[second] = merge(pattern, *fused, graph_.nodes[*first], graph_.nodes[second]);
        dropped[*first] = true;
      }
      std::vector<Node> nodes;
      for (size_t i = 0; i < graph_.nodes.size(); ++i) {
        if (!dropped[i]) nodes.push_back(std::move(graph_.nodes[i]));
      }
      graph_.nodes = std::move(nodes);
    }
    return std::move(graph_);
  }

 private:
  // The index of the first op of a pair that ends at node `second`, if it may be fused.
  [[nodiscard]] std::optional<size_t> match(const Pattern& pattern, size_t second,
                                            const std::vector<bool>& dropped) const {
    const Node& reader = graph_.nodes[second];
    if (reader.op->name != pattern.second) return std::nullopt;
    const Value joined = reader.inputs[static_cast<size_t>(pattern.joined_input)];
    const int32_t producer = uses_.producer[joined.id];
    if (producer < 0) return std::nullopt;
    const auto first = static_cast<size_t>(producer);
    const Node& writer = graph_.nodes[first];
    if (writer.op->name != pattern.first || dropped[first]) return std::nullopt;

    // The first op moves down to the second: no split in between, nothing that needs it earlier,
    // and nothing that overwrites what it reads.
    for (size_t i = first + 1; i < second; ++i) {
      const Node& between = graph_.nodes[i];
      if (dropped[i]) continue;
      if ((between.op->effects & ops::kSplit) != 0) return std::nullopt;
      if (std::ranges::find(between.inputs, joined) != between.inputs.end()) return std::nullopt;
      for (const auto& alias : between.op->aliases) {
        const Value target = between.inputs[static_cast<size_t>(alias.input)];
        if (alias.mutates && std::ranges::find(writer.inputs, target) != writer.inputs.end()) {
          return std::nullopt;
        }
      }
    }
    if (pattern.keeps_first_result) {
      const Value overwritten = writer.inputs[0];
      if (graph_.info(overwritten).kind != ValueKind::kComputed) return std::nullopt;
      if (uses_.last_use[overwritten.id] > static_cast<int32_t>(first)) return std::nullopt;
      if (has_views(overwritten)) return std::nullopt;
      if (writer.inputs[1] == overwritten) return std::nullopt;
    } else if (uses_.num_uses[joined.id] != 1) {
      return std::nullopt;
    }
    std::vector<Value> inputs = merged_inputs(pattern, writer, reader);
    std::vector<ops::TensorMeta> metas;
    for (const Value input : inputs) metas.push_back(graph_.info(input).meta);
    std::vector<ops::TensorMeta> outputs;
    const ops::OpDef* fused = registry_.find(pattern.fused);
    if (!fused->infer(metas, merged_attrs(writer, reader), outputs).ok()) return std::nullopt;
    return first;
  }

  // Whether the value is a column range of another, or another is one of it.
  [[nodiscard]] bool has_views(Value value) const {
    for (const Node& node : graph_.nodes) {
      for (const auto& alias : node.op->aliases) {
        if (alias.mutates) continue;
        if (node.inputs[static_cast<size_t>(alias.input)] == value ||
            node.outputs[static_cast<size_t>(alias.output)] == value) {
          return true;
        }
      }
    }
    return false;
  }

  static std::vector<Value> merged_inputs(const Pattern& pattern, const Node& first,
                                          const Node& second) {
    std::vector<Value> rest = second.inputs;
    rest.erase(rest.begin() + pattern.joined_input);
    std::vector<Value> inputs = pattern.swap ? rest : first.inputs;
    const std::vector<Value>& tail = pattern.swap ? first.inputs : rest;
    inputs.insert(inputs.end(), tail.begin(), tail.end());
    return inputs;
  }

  static ops::Attrs merged_attrs(const Node& first, const Node& second) {
    ops::Attrs attrs = first.attrs;
    for (const auto& entry : second.attrs.entries()) attrs.set(entry.name, entry.value);
    return attrs;
  }

  static Node merge(const Pattern& pattern, const ops::OpDef& fused, const Node& first,
                    const Node& second) {
    Node node{.op = &fused,
              .inputs = merged_inputs(pattern, first, second),
              .outputs = second.outputs,
              .attrs = merged_attrs(first, second),
              .scope = second.scope};
    if (pattern.keeps_first_result) node.outputs.insert(node.outputs.begin(), first.outputs[0]);
    return node;
  }

  Graph graph_;
  const ops::OpRegistry& registry_;
  UseCounts uses_;
};

}  // namespace

Result<Graph> fuse(Graph graph, const ops::OpRegistry& registry) {
  return Fuser(std::move(graph), registry).run();
}

}  // namespace heddle::graph
