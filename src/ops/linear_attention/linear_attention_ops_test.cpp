// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/registry.h"

namespace heddle::ops {

namespace {

using ::testing::HasSubstr;

TensorMeta rows_of(int64_t width) {
  return {DType::kF32, {SymbolicDim::of(Symbol::kTokens), SymbolicDim::fixed(width)}};
}

TensorMeta vector_of(int64_t count) { return {DType::kF32, {SymbolicDim::fixed(count)}}; }

const OpDef& find(std::string_view name) {
  for (const OpDef& op : linear_attention_ops()) {
    if (op.name == name) return op;
  }
  ADD_FAILURE() << "no op " << name;
  return linear_attention_ops()[0];
}

TEST(LinearAttentionOpsTest, InferTheirShapes) {
  const Attrs attrs{
      {"num_key_heads", 2}, {"key_dim", 16}, {"value_dim", 32}, {"layer", 0}, {"epsilon", 1e-6}};
  std::vector<TensorMeta> outputs;
  const std::vector<TensorMeta> convolution{
      rows_of(192), {DType::kF32, {SymbolicDim::fixed(192), SymbolicDim::fixed(4)}}};
  ASSERT_TRUE(find("causal_conv1d").infer(convolution, attrs, outputs).ok());
  EXPECT_EQ(outputs.back(), rows_of(192));
  const std::vector<TensorMeta> rule{rows_of(192), rows_of(4), rows_of(4), vector_of(4),
                                     vector_of(4)};
  ASSERT_TRUE(find("gated_delta_rule").infer(rule, attrs, outputs).ok());
  EXPECT_EQ(outputs.back(), rows_of(128));
  const std::vector<TensorMeta> norm{rows_of(128), rows_of(128), vector_of(32)};
  ASSERT_TRUE(find("gated_rms_norm").infer(norm, attrs, outputs).ok());
  EXPECT_EQ(outputs.back(), rows_of(128));
}

TEST(LinearAttentionOpsTest, SayWhichInputDoesNotFit) {
  const Attrs attrs{
      {"num_key_heads", 2}, {"key_dim", 16}, {"value_dim", 32}, {"layer", 0}, {"epsilon", 1e-6}};
  std::vector<TensorMeta> outputs;
  const std::vector<TensorMeta> too_wide{
      rows_of(10), {DType::kF32, {SymbolicDim::fixed(10), SymbolicDim::fixed(9)}}};
  EXPECT_THAT(find("causal_conv1d").infer(too_wide, attrs, outputs).to_string(),
              HasSubstr("W must lie between 2 and 8"));
  const std::vector<TensorMeta> rule{rows_of(191), rows_of(4), rows_of(4), vector_of(4),
                                     vector_of(4)};
  EXPECT_THAT(find("gated_delta_rule").infer(rule, attrs, outputs).to_string(),
              HasSubstr("not 2 key heads of width 16 twice and 4 value heads of width 32"));
  const std::vector<TensorMeta> bias{rows_of(192), rows_of(4), rows_of(4), vector_of(4),
                                     vector_of(3)};
  EXPECT_THAT(find("gated_delta_rule").infer(bias, attrs, outputs).to_string(),
              HasSubstr("dt_bias float32[3] must be as wide as a float32[T, 4]"));
  const std::vector<TensorMeta> decay{rows_of(192), rows_of(4), rows_of(4), vector_of(3),
                                      vector_of(4)};
  EXPECT_THAT(find("gated_delta_rule").infer(decay, attrs, outputs).to_string(),
              HasSubstr("one number for each of 4 value heads"));
  // By channel: 16 decays for each of 4 heads, and nothing in between.
  std::vector<TensorMeta> channels{rows_of(192), rows_of(64), rows_of(4), vector_of(4),
                                   vector_of(64)};
  EXPECT_TRUE(find("gated_delta_rule").infer(channels, attrs, outputs).ok());
  EXPECT_EQ(outputs.back(), rows_of(128));
  channels[1] = rows_of(32);
  EXPECT_THAT(find("gated_delta_rule").infer(channels, attrs, outputs).to_string(),
              HasSubstr("a [T, Nv] or [T, Nv*Dk]"));
  const std::vector<TensorMeta> norm{rows_of(128), rows_of(128), vector_of(33)};
  EXPECT_THAT(find("gated_rms_norm").infer(norm, attrs, outputs).to_string(),
              HasSubstr("not a multiple of the weight's"));
}

TEST(LinearAttentionOpsTest, TheScanSaysWhichInputDoesNotFit) {
  const Attrs attrs{{"layer", 0}};
  const TensorMeta per_number{DType::kF32, {SymbolicDim::fixed(24), SymbolicDim::fixed(6)}};
  const std::vector<TensorMeta> right{rows_of(24), rows_of(24), rows_of(6),    rows_of(6),
                                      rows_of(24), per_number,  vector_of(24), vector_of(24)};
  std::vector<TensorMeta> outputs;
  ASSERT_TRUE(find("selective_scan").infer(right, attrs, outputs).ok());
  EXPECT_EQ(outputs.back(), rows_of(24));
  const auto message = [&](size_t input, const TensorMeta& wrong) {
    std::vector<TensorMeta> inputs = right;
    inputs[input] = wrong;
    return find("selective_scan").infer(inputs, attrs, outputs).to_string();
  };
  EXPECT_THAT(message(1, rows_of(23)), HasSubstr("selective_scan takes x [T, C], dt [T, C]"));
  EXPECT_THAT(message(3, rows_of(7)), HasSubstr("selective_scan takes x [T, C], dt [T, C]"));
  EXPECT_THAT(message(5, vector_of(24)), HasSubstr("the decay is float32[24]"));
  EXPECT_THAT(message(7, vector_of(6)), HasSubstr("skip float32[6]"));
}

TEST(LinearAttentionOpsTest, StateOpsRefuseALayerTheBatchDoesNotHave) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  const Attrs attrs{{"num_key_heads", 2}, {"key_dim", 16}, {"value_dim", 32}, {"layer", 1}};
  const ForwardContext forward;
  for (const std::string_view name : {"causal_conv1d", "gated_delta_rule", "selective_scan"}) {
    const Status status = find(name).launch(
        context,
        {.inputs = {}, .outputs = {}, .attrs = attrs, .forward = forward, .workspace = {}});
    EXPECT_THAT(status.to_string(), HasSubstr("layer 1 of 0 state layers"));
  }
}

}  // namespace

}  // namespace heddle::ops
