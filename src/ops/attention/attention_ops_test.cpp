// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/registry.h"

namespace heddle::ops {

namespace {

using ::testing::HasSubstr;

const SymbolicDim kT = SymbolicDim::of(Symbol::kTokens);

TensorMeta rows_of(int64_t width) { return {DType::kF32, {kT, SymbolicDim::fixed(width)}}; }

TEST(AttentionOpsTest, InfersTheShapeOfItsOutputOrSaysWhy) {
  const OpDef& op = *builtin_ops().find("paged_attention");
  const Attrs attrs{
      {"num_kv_heads", 2}, {"head_dim", 64}, {"scale", 0.125}, {"window", 0}, {"layer", 0}};
  std::vector<TensorMeta> outputs;
  const std::vector<TensorMeta> inputs{rows_of(512), rows_of(128), rows_of(128)};
  ASSERT_TRUE(op.infer(inputs, attrs, outputs).ok());
  EXPECT_EQ(outputs[0], rows_of(512));
  const std::vector<TensorMeta> wrong_width{rows_of(512), rows_of(64), rows_of(64)};
  EXPECT_THAT(op.infer(wrong_width, attrs, outputs).to_string(),
              HasSubstr("not 2 kv heads of width 64"));
  const std::vector<TensorMeta> uneven{rows_of(192), rows_of(128), rows_of(128)};
  EXPECT_THAT(op.infer(uneven, attrs, outputs).to_string(), HasSubstr("cannot share 2 kv heads"));
  const std::vector<TensorMeta> narrow_values{rows_of(512), rows_of(128), rows_of(96)};
  outputs.clear();
  ASSERT_TRUE(op.infer(narrow_values, attrs, outputs).ok());
  EXPECT_EQ(outputs[0], rows_of(8 * 48));
  const std::vector<TensorMeta> odd_values{rows_of(512), rows_of(128), rows_of(97)};
  EXPECT_THAT(op.infer(odd_values, attrs, outputs).to_string(), HasSubstr("v is"));
}

TEST(AttentionOpsTest, TakesQueriesAloneWhereAnotherLayerHasThePages) {
  const OpDef& op = *builtin_ops().find("attention_to_pages");
  const Attrs attrs{
      {"num_kv_heads", 2}, {"head_dim", 64}, {"scale", 0.125}, {"window", 0}, {"layer", 0}};
  std::vector<TensorMeta> outputs;
  ASSERT_TRUE(op.infer(std::vector{rows_of(512)}, attrs, outputs).ok());
  EXPECT_EQ(outputs[0], rows_of(512));
  EXPECT_THAT(op.infer(std::vector{rows_of(192)}, attrs, outputs).to_string(),
              HasSubstr("cannot share 2 kv heads"));
}

TEST(AttentionOpsTest, WantsOneSinkPerQueryHeadAndAWindowThatIsNotNegative) {
  const OpDef& op = *builtin_ops().find("paged_attention_sinks");
  Attrs attrs{
      {"num_kv_heads", 2}, {"head_dim", 64}, {"scale", 0.125}, {"window", 128}, {"layer", 0}};
  const auto sinks_of = [](int64_t count) {
    return TensorMeta(DType::kF32, {SymbolicDim::fixed(count)});
  };
  std::vector<TensorMeta> outputs;
  std::vector<TensorMeta> inputs{rows_of(512), rows_of(128), rows_of(128), sinks_of(8)};
  ASSERT_TRUE(op.infer(inputs, attrs, outputs).ok());
  EXPECT_EQ(outputs[0], rows_of(512));
  inputs[3] = sinks_of(2);
  EXPECT_THAT(op.infer(inputs, attrs, outputs).to_string(), HasSubstr("there are 8 query heads"));
  attrs.set("window", -1);
  EXPECT_THAT(op.infer(inputs, attrs, outputs).to_string(), HasSubstr("the window is -1"));
}

TEST(AttentionOpsTest, InfersLatentAttentionOrSaysWhy) {
  const OpDef& op = *builtin_ops().find("latent_attention");
  Attrs attrs{{"value_dim", 32}, {"scale", 0.125}, {"layer", 0}};
  std::vector<TensorMeta> outputs;
  ASSERT_TRUE(op.infer(std::vector{rows_of(160), rows_of(40)}, attrs, outputs).ok());
  EXPECT_EQ(outputs[0], rows_of(128));
  EXPECT_THAT(op.infer(std::vector{rows_of(90), rows_of(40)}, attrs, outputs).to_string(),
              HasSubstr("latent_attention takes [T, Nq*D] and [T, D]"));
  attrs.set("value_dim", 41);
  EXPECT_THAT(op.infer(std::vector{rows_of(160), rows_of(40)}, attrs, outputs).to_string(),
              HasSubstr("values of width 41"));
}

TEST(AttentionOpsTest, InfersTheProductsAroundLatentAttentionOrSaysWhy) {
  const OpDef& absorb = *builtin_ops().find("absorb_query");
  const OpDef& expand = *builtin_ops().find("expand_values");
  const TensorMeta weight{DType::kBf16, {SymbolicDim::fixed(4 * 28), SymbolicDim::fixed(32)}};
  Attrs attrs{{"num_heads", 4}, {"key_dim", 16}};
  std::vector<TensorMeta> outputs;
  ASSERT_TRUE(absorb.infer(std::vector{rows_of(4 * 24), weight}, attrs, outputs).ok());
  EXPECT_EQ(outputs[0], rows_of(4 * 40));
  ASSERT_TRUE(expand.infer(std::vector{rows_of(4 * 32), weight}, attrs, outputs).ok());
  EXPECT_EQ(outputs[1], rows_of(4 * 12));
  EXPECT_THAT(absorb.infer(std::vector{rows_of(4 * 15), weight}, attrs, outputs).to_string(),
              HasSubstr("no 4 heads of at least 16 channels"));
  EXPECT_THAT(expand.infer(std::vector{rows_of(4 * 40), weight}, attrs, outputs).to_string(),
              HasSubstr("not 4 heads of 32 channels"));
  attrs.set("num_heads", 5);
  EXPECT_THAT(expand.infer(std::vector{rows_of(160), weight}, attrs, outputs).to_string(),
              HasSubstr("takes rows for 5 heads"));
}

TEST(AttentionOpsTest, RefusesALayerTheBatchDoesNotHave) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  const Attrs attrs{
      {"num_kv_heads", 2}, {"head_dim", 64}, {"scale", 0.125}, {"window", 0}, {"layer", 3}};
  const ForwardContext forward;
  const Status status =
      builtin_ops()
          .find("paged_attention")
          ->launch(
              context,
              {.inputs = {}, .outputs = {}, .attrs = attrs, .forward = forward, .workspace = {}});
  EXPECT_THAT(status.to_string(), HasSubstr("layer 3 of 0 KV layers"));
}

}  // namespace

}  // namespace heddle::ops
