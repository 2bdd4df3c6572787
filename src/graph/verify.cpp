// SPDX-License-Identifier: Apache-2.0
#include "graph/verify.h"

#include <fmt/format.h>

namespace heddle::graph {

namespace {

enum class State : uint8_t { kUndefined, kDefined, kOverwritten };

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph),
        states_(graph.values.size(), State::kUndefined),
        view_of_(graph.values.size()) {}

  Status run() {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      if (graph_.values[i].kind != ValueKind::kComputed) states_[i] = State::kDefined;
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (Status status = check(node); !status.ok()) {
        return status.with_context(fmt::format("node {} {}{}", i, node.scope, node.op->name));
      }
    }
    for (const Value output : graph_.outputs) {
      HEDDLE_RETURN_IF_ERROR(check_readable(output).with_context("graph output"));
    }
    return {};
  }

 private:
  Status check_readable(Value value) const {
    if (value.id >= graph_.values.size())
      return internal_error("a value that does not exist is read");
    if (states_[value.id] == State::kUndefined) {
      return internal_error(fmt::format("{} is read before it is defined", graph_.label(value)));
    }
    if (states_[value.id] == State::kOverwritten) {
      return internal_error(
          fmt::format("{} is read after it was overwritten in place; read the newer version",
                      graph_.label(value)));
    }
    return {};
  }

  Status check(const Node& node) {
    if (static_cast<int>(node.inputs.size()) != node.op->num_inputs) {
      return internal_error(
          fmt::format("takes {} inputs, has {}", node.op->num_inputs, node.inputs.size()));
    }
    std::vector<ops::TensorMeta> inputs;
    for (const Value input : node.inputs) {
      HEDDLE_RETURN_IF_ERROR(check_readable(input));
      inputs.push_back(graph_.info(input).meta);
    }
    std::vector<ops::TensorMeta> inferred;
    HEDDLE_RETURN_IF_ERROR(node.op->infer(inputs, node.attrs, inferred));
    if (inferred.size() != node.outputs.size()) {
      return internal_error(
          fmt::format("gives {} outputs, has {}", inferred.size(), node.outputs.size()));
    }
    for (const auto& alias : node.op->aliases) {
      if (!alias.mutates) continue;
      const Value input = node.inputs[static_cast<size_t>(alias.input)];
      if (graph_.info(input).kind == ValueKind::kConstant) {
        return internal_error(fmt::format("would overwrite the weight {}", graph_.label(input)));
      }
      overwrite(input);
    }
    for (size_t i = 0; i < inferred.size(); ++i) {
      const Value output = node.outputs[i];
      if (output.id >= graph_.values.size()) return internal_error("an output does not exist");
      if (states_[output.id] != State::kUndefined) {
        return internal_error(fmt::format("{} is defined twice", graph_.label(output)));
      }
      if (!(graph_.info(output).meta == inferred[i])) {
        return internal_error(fmt::format("{} is {}, the op gives {}", graph_.label(output),
                                          graph_.info(output).meta.to_string(),
                                          inferred[i].to_string()));
      }
      states_[output.id] = State::kDefined;
    }
    for (const auto& alias : node.op->aliases) {
      if (alias.mutates) continue;
      view_of_[node.outputs[static_cast<size_t>(alias.output)].id] =
          node.inputs[static_cast<size_t>(alias.input)];
    }
    return {};
  }

  // Marks a version as gone, and with it every column range of it and whatever it is a range of.
  void overwrite(Value value) {
    const Value whole = root(value);
    for (uint32_t id = 0; id < states_.size(); ++id) {
      if (states_[id] == State::kDefined && root({id}) == whole) states_[id] = State::kOverwritten;
    }
  }

  [[nodiscard]] Value root(Value value) const {
    while (view_of_[value.id].valid()) value = view_of_[value.id];
    return value;
  }

  const Graph& graph_;
  std::vector<State> states_;
  std::vector<Value> view_of_;  // by value id; invalid for values that are no column range
};

}  // namespace

Status verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace heddle::graph
