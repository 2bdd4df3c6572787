// SPDX-License-Identifier: Apache-2.0
#include "graph/dump.h"

#include <fmt/format.h>

namespace heddle::graph {

namespace {

std::string describe(const Program& program, Value value) {
  const Graph& graph = program.placed.graph;
  const ValueInfo& info = graph.info(value);
  std::string text = fmt::format("{}: {}", graph.label(value), info.meta.to_string());
  if (info.kind != ValueKind::kComputed) return text;
  const Placement& placement = program.placed.placements[value.id];
  const uint32_t storage = placement.storage.id;
  const LiveRange& live = program.memory.live[storage];
  text += fmt::format(" @{}", program.memory.offset[storage]);
  if (placement.column != 0) text += fmt::format(" column {}", placement.column);
  const bool is_output = live.end >= static_cast<int32_t>(graph.nodes.size());
  return text +
         fmt::format(" live {}..{}", live.begin, is_output ? "end" : std::to_string(live.end));
}

}  // namespace

std::string dump(const Program& program) {
  const Graph& graph = program.placed.graph;
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
        outputs += describe(program, output);
      }
      std::string inputs;
      for (const Value input : node.inputs) {
        if (!inputs.empty()) inputs += ", ";
        inputs += graph.label(input);
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
