// SPDX-License-Identifier: Apache-2.0
// Ops and graphs for the tests of the passes.
#pragma once

#include "graph/builder.h"
#include "ops/elementwise/elementwise.h"
#include "ops/layout/layout.h"
#include "ops/norm/rms_norm.h"
#include "ops/registry.h"
#include "ops/rope/rope.h"

namespace heddle::graph::testing {

inline Status infer_same_shape(std::span<const ops::TensorMeta> inputs, const ops::Attrs&,
                               std::vector<ops::TensorMeta>& outputs) {
  outputs.push_back(inputs[0]);
  return {};
}

inline Status launch_copy(ops::Context& context, const ops::LaunchArgs& args) {
  return ops::copy_rows(context, args.inputs[0], {}, args.outputs[0]);
}

// A copy, of as many rows as the batch has, if there is one.
inline Status launch_mixer(ops::Context& context, const ops::LaunchArgs& args) {
  const std::span<const int32_t> starts = args.forward.query_start;
  if (!starts.empty() && starts.back() != args.inputs[0].shape[0]) {
    return invalid_argument("mixer: other rows than the batch has");
  }
  return launch_copy(context, args);
}

// Adds 1 in place.
inline Status launch_increment(ops::Context&, const ops::LaunchArgs& args) {
  const MutableTensorView& y = args.outputs[0];
  for (int64_t t = 0; t < y.shape[0]; ++t) {
    for (int64_t i = 0; i < y.shape[1]; ++i) y.row<float>(t)[i] += 1;
  }
  return {};
}

inline int64_t workspace_like_input(std::span<const ops::TensorMeta> inputs, const ops::Attrs&,
                                    const ops::Extents& largest, const ops::Context&) {
  return inputs[0].bytes_at(largest);
}

// "mixer": a split that reads the context and writes state; "meet": a collective; "copy_dense":
// cannot take strided rows; "increment": changes its input in place; "scratchy": needs a workspace.
inline const ops::OpRegistry& registry() {
  static constexpr ops::OpDef::Alias kInPlace[] = {{.output = 0, .input = 0, .mutates = true}};
  static const ops::OpDef kOps[] = {
      {.name = "mixer",
       .effects = ops::kReadsContext | ops::kWritesState | ops::kSplit,
       .num_inputs = 1,
       .infer = infer_same_shape,
       .launch = launch_mixer},
      {.name = "meet",
       .effects = ops::kCollective,
       .num_inputs = 1,
       .infer = infer_same_shape,
       .launch = launch_copy},
      {.name = "copy_dense",
       .num_inputs = 1,
       .takes_strided_rows = false,
       .infer = infer_same_shape,
       .launch = launch_copy},
      {.name = "increment",
       .num_inputs = 1,
       .aliases = kInPlace,
       .infer = infer_same_shape,
       .launch = launch_increment},
      {.name = "scratchy",
       .num_inputs = 1,
       .infer = infer_same_shape,
       .workspace_bytes = workspace_like_input,
       .launch = launch_copy},
  };
  static const ops::OpRegistry kRegistry = [] {
    ops::OpRegistry ops;
    ops.add(kOps);
    ops.add(ops::elementwise_ops());
    ops.add(ops::layout_ops());
    ops.add(ops::norm_ops());
    ops.add(ops::rope_ops());
    return ops;
  }();
  return kRegistry;
}

inline ops::TensorMeta rows(int64_t width, DType dtype = DType::kF32) {
  return {dtype, {ops::SymbolicDim::of(ops::Symbol::kTokens), ops::SymbolicDim::fixed(width)}};
}

// A builder whose weights are "norm" [8] of ones and "frequencies" [2].
class TestBuilder : public GraphBuilder {
 public:
  TestBuilder()
      : GraphBuilder(registry(), [this](std::string_view name) { return find(name); }),
        norm_({8}, DType::kF32),
        frequencies_({2}, DType::kF32) {
    for (float& value : norm_.span<float>()) value = 1;
    norm_view_ = norm_.view();
    frequencies_view_ = frequencies_.view();
  }

  Value x(std::string name = "x") { return input(std::move(name), rows(8)); }

 private:
  [[nodiscard]] const TensorView* find(std::string_view name) const {
    if (name == "norm") return &norm_view_;
    if (name == "frequencies") return &frequencies_view_;
    return nullptr;
  }

  Tensor norm_;
  Tensor frequencies_;
  TensorView norm_view_;
  TensorView frequencies_view_;
};

inline std::vector<std::string> op_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.emplace_back(node.op->name);
  return names;
}

}  // namespace heddle::graph::testing
