// SPDX-License-Identifier: Apache-2.0
#include "graph/program.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "graph/dead_code.h"
#include "graph/fuse.h"
#include "graph/verify.h"

namespace heddle::graph {

Result<Program> compile(Graph graph, const ops::OpRegistry& registry, const ops::Context& context,
                        const CompileOptions& options) {
  HEDDLE_RETURN_IF_ERROR(verify(graph).with_context("the model's graph"));
  graph = remove_dead_code(std::move(graph));
  if (options.fuse) {
    HEDDLE_ASSIGN_OR_RETURN(graph, fuse(std::move(graph), registry));
  }
  HEDDLE_RETURN_IF_ERROR(verify(graph).with_context("after fusion"));
  Program program{.placed = elide_copies(std::move(graph)), .largest = options.largest};
  program.segments = split_into_segments(program.placed.graph);
  program.memory = plan_memory(program.placed, options.largest, context);
  return program;
}

Result<Executor> Executor::create(Program program, device::Device& device) {
  Executor executor(std::move(program));
  HEDDLE_ASSIGN_OR_RETURN(executor.arena_, device.allocate(executor.program_.memory.arena_bytes));
  executor.bind();
  return executor;
}

void Executor::bind() {
  const Graph& graph = program_.placed.graph;
  bound_.resize(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    BoundNode& bound = bound_[i];
    bound.inputs.resize(graph.nodes[i].inputs.size());
    bound.outputs.resize(graph.nodes[i].outputs.size());
    if (program_.memory.workspace_size[i] > 0) {
      bound.workspace =
          arena_.bytes().subspan(static_cast<size_t>(program_.memory.workspace_offset[i]),
                                 static_cast<size_t>(program_.memory.workspace_size[i]));
    }
  }
}

MutableTensorView Executor::computed_view(Value value) const {
  const Placement& placement = program_.placed.placements[value.id];
  const ops::TensorMeta& meta = program_.placed.graph.info(value).meta;
  std::byte* base = arena_.data() + program_.memory.offset[placement.storage.id] +
                    bytes_of(meta.dtype, placement.column);
  return {base, meta.dtype, meta.shape_at(extents_), program_.placed.row_stride(value)};
}

void Executor::set_extents(const ops::Extents& extents) {
  extents_ = extents;
  const Graph& graph = program_.placed.graph;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    for (size_t j = 0; j < node.inputs.size(); ++j) {
      const ValueInfo& info = graph.info(node.inputs[j]);
      if (info.kind == ValueKind::kConstant) bound_[i].inputs[j] = info.constant;
      if (info.kind == ValueKind::kComputed) bound_[i].inputs[j] = computed_view(node.inputs[j]);
    }
    for (size_t j = 0; j < node.outputs.size(); ++j) {
      bound_[i].outputs[j] = computed_view(node.outputs[j]);
    }
  }
}

Status Executor::run(ops::Context& context, const ops::ForwardContext& forward,
                     const ops::Extents& extents, std::span<const TensorView> inputs) {
  const Graph& graph = program_.placed.graph;
  if (extents.tokens > program_.largest.tokens || extents.logits > program_.largest.logits) {
    return invalid_argument(fmt::format(
        "a step of {} tokens and {} logit rows; the program was made for {} and {}", extents.tokens,
        extents.logits, program_.largest.tokens, program_.largest.logits));
  }
  HEDDLE_CHECK_EQ(inputs.size(), graph.inputs.size());
  if (extents.tokens != extents_.tokens || extents.logits != extents_.logits) set_extents(extents);

  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    BoundNode& bound = bound_[i];
    for (size_t j = 0; j < node.inputs.size(); ++j) {
      for (size_t k = 0; k < graph.inputs.size(); ++k) {
        if (node.inputs[j] == graph.inputs[k]) bound.inputs[j] = inputs[k];
      }
    }
    const Status status = node.op->launch(context, {.inputs = bound.inputs,
                                                    .outputs = bound.outputs,
                                                    .attrs = node.attrs,
                                                    .forward = forward,
                                                    .workspace = bound.workspace});
    if (!status.ok()) [[unlikely]] {
      return status.with_context(fmt::format("{}{}", node.scope, node.op->name));
    }
  }
  return {};
}

MutableTensorView Executor::output(size_t i) const {
  HEDDLE_CHECK_LT(i, program_.placed.graph.outputs.size());
  return computed_view(program_.placed.graph.outputs[i]);
}

void Executor::poison(std::byte pattern) {
  std::memset(arena_.data(), static_cast<int>(pattern), static_cast<size_t>(arena_.size()));
}

}  // namespace heddle::graph
