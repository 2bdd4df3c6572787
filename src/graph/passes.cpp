// SPDX-License-Identifier: Apache-2.0
#include "graph/passes.h"

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

  // The index of the input of `second` that must be the first op's result.
  int joined_input = 0;

  // Whether other nodes may also read the first op's result; the fused op then returns it, too.
  bool keeps_first_result = false;

  // The fused node's inputs: those of the first op, then those of the second without the joined
  // one. With `swap`, those of the second op come first.
  bool swap = false;
};

// keeps_first_result also means that the fused op writes the result over input 0 of the first op.
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
  // The index of the first op of a pair whose second op is node `second`, if the pair may be fused.
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

    // The first op is executed at the second op's position. So there must be no split in between,
    // no node that needs its result earlier, and no node that overwrites its inputs.
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

  // Whether the value is a column range of another value, or another is a column range of it.
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

  // Marks a version as overwritten, and also its column ranges and the value of which it is a
  // column range.
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
  std::vector<Value> view_of_;  // by value id: the value of which it is a column range; otherwise
                                // invalid
};

}  // namespace

Status verify(const Graph& graph) { return Verifier(graph).run(); }

Graph remove_dead_code(Graph graph) {
  std::vector<bool> needed(graph.values.size(), false);
  for (const Value output : graph.outputs) needed[output.id] = true;
  std::vector<bool> keep(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    keep[i] = (node.op->effects & (ops::kWritesState | ops::kCollective)) != 0 ||
              std::ranges::any_of(node.outputs, [&](Value value) { return needed[value.id]; });
    if (!keep[i]) continue;
    for (const Value input : node.inputs) needed[input.id] = true;
  }
  std::vector<Node> live;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (keep[i]) live.push_back(std::move(graph.nodes[i]));
  }
  graph.nodes = std::move(live);
  return graph;
}

std::vector<Segment> split_into_segments(const Graph& graph, std::span<const Chain> chains) {
  const auto has_logit_rows = [&](Value value) {
    const ops::TensorMeta& meta = graph.info(value).meta;
    return std::ranges::any_of(meta.dims,
                               [](const auto& dim) { return dim.symbol == ops::Symbol::kLogits; });
  };
  std::vector<bool> split;
  split.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    split.push_back((node.op->effects & ops::kSplit) != 0 ||
                    std::ranges::any_of(node.outputs, has_logit_rows));
  }
  for (const Chain& chain : chains) {
    const auto begin = split.begin() + static_cast<std::ptrdiff_t>(chain.begin);
    const auto end = split.begin() + static_cast<std::ptrdiff_t>(chain.end());
    if (std::find(begin, end, true) != end) std::fill(begin, end, true);
  }
  std::vector<Segment> segments;
  for (size_t i = 0; i < split.size(); ++i) {
    if (segments.empty() || segments.back().split != split[i]) {
      segments.push_back({.begin = i, .split = split[i]});
    }
    segments.back().end = i + 1;
  }
  return segments;
}

}  // namespace heddle::graph
