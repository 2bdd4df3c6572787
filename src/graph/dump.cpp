// SPDX-License-Identifier: Apache-2.0
#include "graph/dump.h"

#include <fmt/format.h>

namespace heddle::graph {

namespace {

int64_t width_of(const Program& program, Value value) {
  const Shape shape = program.placed.graph.info(value).meta.shape_at(program.largest);
  return shape[shape.rank() - 1];
}

// The storage of a value that has none of its own: "%8[0:1024]", or "%8" for all of its columns.
std::string place(const Program& program, Value value) {
  const auto& [storage, column] = program.placed.placements[value.id];
  std::string label = program.placed.graph.label(storage);
  const int64_t width = width_of(program, value);
  if (width == width_of(program, storage)) return label;
  return fmt::format("{}[{}:{}]", label, column, column + width);
}

std::string describe_output(const Program& program, Value value) {
  const Graph& graph = program.placed.graph;
  std::string text = fmt::format("{}: {}", graph.label(value), graph.info(value).meta.to_string());
  const Value storage = program.placed.placements[value.id].storage;
  const LiveRange& live = program.memory.live[storage.id];
  if (storage != value) text += " in " + place(program, value);
  text += fmt::format(" @{}", program.memory.offset[storage.id]);
  const bool is_output = live.end >= static_cast<int32_t>(graph.nodes.size());
  return text +
         fmt::format(" live {}..{}", live.begin, is_output ? "end" : std::to_string(live.end));
}

// `is_written`: a node that stands before has described the value. A weight, a column range and
// what was put together in place stand in no other line.
std::string describe_input(const Program& program, Value value, bool is_written) {
  const Graph& graph = program.placed.graph;
  const ValueInfo& info = graph.info(value);
  if (info.kind == ValueKind::kInput || is_written) return graph.label(value);
  if (info.kind == ValueKind::kComputed && program.placed.placements[value.id].storage != value) {
    return place(program, value);
  }
  return fmt::format("{}: {}", graph.label(value), info.meta.to_string());
}

}  // namespace

std::string dump(const Program& program) {
  const Graph& graph = program.placed.graph;
  const std::vector<int32_t> producers = count_uses(graph).producer;
  std::string text =
      fmt::format("program: {} nodes, {} segments, arena {} bytes for T = {}, R = {}\n",
                  graph.nodes.size(), program.segments.size(), program.memory.arena_bytes,
                  program.largest.tokens, program.largest.logits);
  for (const Value input : graph.inputs) {
    text += fmt::format("input  {}: {}\n", graph.label(input), graph.info(input).meta.to_string());
  }
  for (const Value output : graph.outputs) text += fmt::format("output {}\n", graph.label(output));
  for (size_t s = 0; s < program.segments.size(); ++s) {
    const Segment& segment = program.segments[s];
    text += fmt::format("-- segment {}{}\n", s, segment.split ? " (split)" : "");
    for (size_t i = segment.begin; i < segment.end; ++i) {
      const Node& node = graph.nodes[i];
      std::string outputs;
      for (const Value output : node.outputs) {
        if (!outputs.empty()) outputs += ", ";
        outputs += describe_output(program, output);
      }
      std::string inputs;
      for (const Value input : node.inputs) {
        if (!inputs.empty()) inputs += ", ";
        inputs += describe_input(program, input, producers[input.id] >= 0);
      }
      std::string attrs;
      for (const auto& attr : node.attrs.entries())
        attrs += fmt::format(" {}={:g}", attr.name, attr.value);
      text += fmt::format("{:4} {} = {}({}){}", i, outputs, node.op->name, inputs, attrs);
      if (program.memory.workspace_size[i] > 0) {
        text += fmt::format(" workspace {}@{}", program.memory.workspace_size[i],
                            program.memory.workspace_offset[i]);
      }
      text += '\n';
    }
  }
  return text;
}

}  // namespace heddle::graph
