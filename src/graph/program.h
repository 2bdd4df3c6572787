// SPDX-License-Identifier: Apache-2.0
// Program: a graph after all passes, ready to run; Executor: runs it eagerly, node by node.
//
// compile() = verify, dead code, fuse, verify, copy elision, split, chains, memory plan.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "graph/chains.h"
#include "graph/memory_plan.h"
#include "graph/passes.h"
#include "graph/placement.h"
#include "ops/registry.h"

namespace heddle::graph {

struct Program {
  PlacedGraph placed;
  std::vector<Segment> segments;
  std::vector<Chain> chains;
  MemoryPlan memory;
  ops::Extents largest;
};

struct CompileOptions {
  ops::Extents largest;  // sizes of the largest step
  bool fuse = true;
  // The known chains of ops; no value: those of the context's device.
  std::optional<std::span<const ops::OpChain>> chains;
};

Result<Program> compile(Graph graph, const ops::OpRegistry& registry, const ops::Context& context,
                        const CompileOptions& options);

// The program as text, in a stable order: one node a line with shapes, live ranges, arena offsets,
// and a rule where a segment ends, below the list of the collectives, which all ranks of a model
// call in that order. `heddle inspect --graph` prints it. A value that lies in the rows of another
// one is shown by that value's columns: "%8[0:1024]".
std::string dump(const Program& program);

// Is called before and after each launch of Executor::launch().
class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;

  // Called before and after a launch of these nodes: a single node, or all nodes of a chain. If a
  // chain declines to launch after before(), its nodes are launched one by one, each with before()
  // and after(). An error ends the launches.
  virtual Status before(const Segment& nodes) = 0;
  virtual Status after(const Segment& nodes) = 0;
};

// An address or a row stride that a launch passes by value, so that a captured launch always uses
// it.
struct TakenValue {
  size_t node = 0;
  uintptr_t value = 0;
};

// A byte whose repetition is a NaN in fp32, bf16 and fp16.
inline constexpr std::byte kPoison{0xff};

// Runs a program; owns its arena. Threading: confined. A run allocates no memory (launchers may,
// see linear.h).
class Executor {
 public:
  static Result<Executor> create(Program program, device::Device& device);

  // Sets the sizes of the following runs. The last `padding` rows are padding: eager segments do
  // not process them; captured segments compute results for them that nothing reads. Error:
  // kInvalidArgument for sizes larger than those the program was compiled for.
  Status set_extents(const ops::Extents& extents, int64_t padding = 0);

  // Sets the inputs of the following launches, in the order of Graph::inputs. They have the shapes
  // of the extents and are in device memory.
  void set_inputs(std::span<const TensorView> inputs);

  // A segment with all nodes of the program.
  [[nodiscard]] Segment whole() const { return {.end = program_.placed.graph.nodes.size()}; }

  // The program as two segments: the first launch, and all others.
  [[nodiscard]] std::array<Segment, 2> first_and_others() const;

  // Launches the given nodes, whole() or one of Program::segments, in order; the nodes of a chain
  // are launched together if the chain accepts. `forward` has as many rows as the nodes process.
  // Equal extents use equal addresses. Error: the failing node's, with its scope, or the
  // observer's.
  Status launch(ops::Context& context, const ops::ForwardContext& forward, const Segment& nodes,
                LaunchObserver* observer = nullptr);

  // Sets extents and inputs, then launches the whole program.
  Status run(ops::Context& context, const ops::ForwardContext& forward, const ops::Extents& extents,
             std::span<const TensorView> inputs) {
    HEDDLE_RETURN_IF_ERROR(set_extents(extents));
    set_inputs(inputs);
    return launch(context, forward, whole());
  }

  // The graph's i-th output, in device memory; valid until the next run.
  [[nodiscard]] MutableTensorView output(size_t i) const;

  [[nodiscard]] const Program& program() const { return program_; }

  // The tensors that a node writes, with the current extents.
  [[nodiscard]] std::span<const MutableTensorView> outputs_of(size_t node) const {
    return bound_[node].outputs;
  }

  // The node's name in messages, scope and op: "layers.3.linear".
  [[nodiscard]] std::string name_of(size_t node) const;

  // Appends the addresses and row strides that launches of these nodes pass by value.
  void list_taken(const Segment& nodes, std::vector<TakenValue>& taken) const;

  // Fills the arena with `pattern`, so that reads of memory that was never written are noticed.
  // Does not wait.
  Status poison(device::Stream& stream, std::byte pattern = kPoison) {
    return stream.fill(arena_.data(), pattern, arena_.size());
  }

 private:
  struct BoundNode {
    std::vector<TensorView> inputs;
    std::vector<MutableTensorView> outputs;
    std::span<std::byte> workspace;
  };

  explicit Executor(Program program) : program_(std::move(program)) {}

  Status launch_node(size_t i, ops::Context& context, const ops::ForwardContext& forward);
  Result<bool> launch_chain(const Chain& chain, ops::Context& context,
                            const ops::ForwardContext& forward);
  [[nodiscard]] ops::LaunchArgs launch_args(size_t i, const ops::ForwardContext& forward);

  void bind();
  void place();
  void place(size_t i, const ops::Extents& extents);
  // The extents that the nodes of a segment process: without the padding if the segment runs
  // eagerly.
  [[nodiscard]] ops::Extents extents_of(const Segment& segment) const;
  [[nodiscard]] MutableTensorView computed_view(Value value, const ops::Extents& extents) const;

  Program program_;
  device::Buffer arena_;
  std::vector<BoundNode> bound_;
  std::vector<ops::ChainedOp> chained_;  // scratch: the ops of the chain that is being launched
  ops::Extents extents_;
  int64_t padding_ = 0;
};

}  // namespace heddle::graph
