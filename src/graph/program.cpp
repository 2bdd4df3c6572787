// SPDX-License-Identifier: Apache-2.0
#include "graph/program.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "graph/passes.h"

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
  program.chains =
      find_chains(program.placed.graph, options.chains.value_or(ops::op_chains(context)));
  program.segments = split_into_segments(program.placed.graph, program.chains);
  program.memory = plan_memory(program.placed, program.chains, options.largest, context);
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

MutableTensorView Executor::computed_view(Value value, const ops::Extents& extents) const {
  const Placement& placement = program_.placed.placements[value.id];
  const ops::TensorMeta& meta = program_.placed.graph.info(value).meta;
  std::byte* base = arena_.data() + program_.memory.offset[placement.storage.id] +
                    bytes_of(meta.dtype, placement.column);
  return {base, meta.dtype, meta.shape_at(extents), program_.placed.row_stride(value)};
}

void Executor::place() {
  for (const Segment& segment : program_.segments) {
    for (size_t i = segment.begin; i < segment.end; ++i) place(i, extents_of(segment));
  }
}

void Executor::place(size_t i, const ops::Extents& extents) {
  const Graph& graph = program_.placed.graph;
  const Node& node = graph.nodes[i];
  for (size_t j = 0; j < node.inputs.size(); ++j) {
    const ValueInfo& info = graph.info(node.inputs[j]);
    if (info.kind == ValueKind::kConstant) bound_[i].inputs[j] = info.constant;
    if (info.kind == ValueKind::kComputed) {
      bound_[i].inputs[j] = computed_view(node.inputs[j], extents);
    }
  }
  for (size_t j = 0; j < node.outputs.size(); ++j) {
    bound_[i].outputs[j] = computed_view(node.outputs[j], extents);
  }
}

Status Executor::set_extents(const ops::Extents& extents, int64_t padding) {
  HEDDLE_CHECK_LE(padding, extents.tokens);
  const ops::Extents& largest = program_.largest;
  if (extents.tokens > largest.tokens || extents.logits > largest.logits ||
      extents.sequences > largest.sequences) {
    return invalid_argument(fmt::format(
        "a step of {} tokens, {} logit rows and {} sequences; the program was made for {}, {} and "
        "{}",
        extents.tokens, extents.logits, extents.sequences, largest.tokens, largest.logits,
        largest.sequences));
  }
  const bool placed =
      extents.tokens == extents_.tokens && extents.logits == extents_.logits && padding == padding_;
  extents_ = extents;
  padding_ = padding;
  if (!placed) place();
  return {};
}

ops::Extents Executor::extents_of(const Segment& segment) const {
  ops::Extents extents = extents_;
  if (segment.split) extents.tokens -= padding_;
  return extents;
}

void Executor::set_inputs(std::span<const TensorView> inputs) {
  const Graph& graph = program_.placed.graph;
  HEDDLE_CHECK_EQ(inputs.size(), graph.inputs.size());
  for (const Segment& segment : program_.segments) {
    for (size_t i = segment.begin; i < segment.end; ++i) {
      const Node& node = graph.nodes[i];
      for (size_t j = 0; j < node.inputs.size(); ++j) {
        for (size_t k = 0; k < graph.inputs.size(); ++k) {
          if (node.inputs[j] != graph.inputs[k]) continue;
          bound_[i].inputs[j] = inputs[k];
          bound_[i].inputs[j].shape = graph.info(node.inputs[j]).meta.shape_at(extents_of(segment));
        }
      }
    }
  }
}

std::array<Segment, 2> Executor::first_and_others() const {
  const bool is_chain = !program_.chains.empty() && program_.chains.front().begin == 0;
  const Segment all = whole();
  const size_t end = std::min(all.end, is_chain ? program_.chains.front().end() : 1);
  return {Segment{.end = end}, Segment{.begin = end, .end = all.end}};
}

Status Executor::launch(ops::Context& context, const ops::ForwardContext& forward,
                        const Segment& nodes, LaunchObserver* observer) {
  const auto before = [&](size_t begin, size_t end) {
    return observer == nullptr ? Status() : observer->before({.begin = begin, .end = end});
  };
  const auto after = [&](size_t begin, size_t end) {
    return observer == nullptr ? Status() : observer->after({.begin = begin, .end = end});
  };
  auto chain = std::ranges::lower_bound(program_.chains, nodes.begin, {}, &Chain::begin);
  for (size_t i = nodes.begin; i < nodes.end;) {
    if (chain != program_.chains.end() && chain->begin == i) {
      const size_t end = chain->end();
      HEDDLE_RETURN_IF_ERROR(before(i, end));
      HEDDLE_ASSIGN_OR_RETURN(const bool launched, launch_chain(*chain, context, forward));
      ++chain;
      if (launched) {
        HEDDLE_RETURN_IF_ERROR(after(i, end));
        i = end;
        continue;
      }
    }
    HEDDLE_RETURN_IF_ERROR(before(i, i + 1));
    HEDDLE_RETURN_IF_ERROR(launch_node(i, context, forward));
    HEDDLE_RETURN_IF_ERROR(after(i, i + 1));
    ++i;
  }
  return {};
}

ops::LaunchArgs Executor::launch_args(size_t i, const ops::ForwardContext& forward) {
  const BoundNode& bound = bound_[i];
  return {.inputs = bound.inputs,
          .outputs = bound.outputs,
          .attrs = program_.placed.graph.nodes[i].attrs,
          .forward = forward,
          .workspace = bound.workspace};
}

Status Executor::launch_node(size_t i, ops::Context& context, const ops::ForwardContext& forward) {
  const Status status = program_.placed.graph.nodes[i].op->launch(context, launch_args(i, forward));
  if (status.ok()) [[likely]]
    return status;
  return status.with_context(name_of(i));
}

Result<bool> Executor::launch_chain(const Chain& chain, ops::Context& context,
                                    const ops::ForwardContext& forward) {
  const std::vector<Node>& nodes = program_.placed.graph.nodes;
  chained_.clear();
  for (size_t i = chain.begin; i < chain.end(); ++i) {
    chained_.push_back({.op = nodes[i].op, .args = launch_args(i, forward)});
  }
  Result<bool> launched = chain.ops->launch(context, chained_);
  if (launched.ok()) [[likely]]
    return launched;
  return launched.status().with_context(name_of(chain.begin) + " and what follows it");
}

MutableTensorView Executor::output(size_t i) const {
  HEDDLE_CHECK_LT(i, program_.placed.graph.outputs.size());
  return computed_view(program_.placed.graph.outputs[i], extents_);
}

std::string Executor::name_of(size_t node) const {
  const Node& named = program_.placed.graph.nodes[node];
  return fmt::format("{}{}", named.scope, named.op->name);
}

void Executor::list_taken(const Segment& nodes, std::vector<TakenValue>& taken) const {
  for (size_t i = nodes.begin; i < nodes.end; ++i) {
    const auto add = [&](const auto& view) {
      const void* data = view.packed != nullptr ? view.packed : view.data;
      taken.push_back({i, reinterpret_cast<uintptr_t>(data)});
      taken.push_back({i, static_cast<uintptr_t>(view.row_stride)});
    };
    std::ranges::for_each(bound_[i].inputs, add);
    std::ranges::for_each(bound_[i].outputs, add);
    taken.push_back({i, reinterpret_cast<uintptr_t>(bound_[i].workspace.data())});
  }
}

namespace {

int64_t width_of(const Program& program, Value value) {
  const Shape shape = program.placed.graph.info(value).meta.shape_at(program.largest);
  return shape[shape.rank() - 1];
}

// The columns of a storage that a value uses: "%8[0:1024]", or "%8" for all columns.
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

// `is_written`: an earlier line describes the value. Weights, column ranges and values assembled in
// place have no line of their own.
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
  int64_t num_collectives = 0;
  for (const Node& node : graph.nodes) {
    if ((node.op->effects & ops::kCollective) == 0) continue;
    text += fmt::format("collective {}: {}{} of {}\n", num_collectives++, node.scope, node.op->name,
                        graph.info(node.outputs[0]).meta.to_string());
  }
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
