// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/gemm_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::ops {

namespace {

using ::testing::HasSubstr;

TensorMeta floats(std::initializer_list<SymbolicDim> shape) { return {DType::kF32, shape}; }

const SymbolicDim kT = SymbolicDim::of(Symbol::kTokens);

const OpDef& op_named(std::string_view name) {
  for (const OpDef& op : gemm_ops()) {
    if (op.name == name) return op;
  }
  internal::check_failed(HEDDLE_WHERE, "op_named", std::string(name));
}

TEST(GemmOpsTest, WantOneBiasPerRowOfTheWeight) {
  const OpDef& op = op_named("linear_bias");
  const auto N = SymbolicDim::fixed(6), K = SymbolicDim::fixed(4);
  std::vector<TensorMeta> inputs{floats({kT, K}), TensorMeta(DType::kBf16, {N, K}), floats({N})};
  std::vector<TensorMeta> outputs;
  ASSERT_TRUE(op.infer(inputs, {}, outputs).ok());
  EXPECT_EQ(outputs[0], floats({kT, N}));
  inputs[2] = floats({K});
  EXPECT_THAT(op.infer(inputs, {}, outputs).to_string(), HasSubstr("a float32 [N] beside [N, K]"));
  inputs[2] = TensorMeta(DType::kBf16, {N});
  EXPECT_THAT(op.infer(inputs, {}, outputs).to_string(), HasSubstr("bfloat16"));
}

TEST(GemmOpsTest, AddTheBiasToEveryRow) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  Tensor x({2, 2}, DType::kF32), weight({3, 2}, DType::kF32), bias({3}, DType::kF32);
  Tensor y({2, 3}, DType::kF32);
  for (size_t i = 0; i < 4; ++i) x.span<float>()[i] = static_cast<float>(i);  // [0 1], [2 3]
  for (size_t i = 0; i < 6; ++i) weight.span<float>()[i] = 1;
  for (size_t i = 0; i < 3; ++i) bias.span<float>()[i] = static_cast<float>(10 * i);
  const TensorView inputs[] = {x.view(), weight.view(), bias.view()};
  const MutableTensorView outputs[] = {y.view()};
  const Attrs attrs;
  const ForwardContext forward;
  const OpDef& op = op_named("linear_bias");
  std::vector<TensorMeta> metas;
  for (const TensorView& input : inputs) metas.push_back(TensorMeta::of(input));
  std::vector<std::byte> workspace(
      static_cast<size_t>(op.workspace_bytes(metas, attrs, {.tokens = 2}, context)));
  const Status status = op.launch(context, {.inputs = inputs,
                                            .outputs = outputs,
                                            .attrs = attrs,
                                            .forward = forward,
                                            .workspace = workspace});
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(y.span<float>(), ::testing::ElementsAre(1, 11, 21, 5, 15, 25));
}

}  // namespace

}  // namespace heddle::ops
