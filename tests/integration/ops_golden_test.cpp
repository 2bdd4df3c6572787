// SPDX-License-Identifier: Apache-2.0
// The ops of linear-attention layers against values recorded from their reference implementation in
// fp32.
//
// The tolerance is 1e-5 of the norm: many times what two fp32 orders of summation differ by (2e-7).
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "ops/linear_attention/causal_conv1d.h"
#include "ops/linear_attention/delta_rule_core.h"
#include "ops/linear_attention/gated_rms_norm.h"
#include "support/tensors.h"
#include "support/test_data.h"

namespace heddle {

namespace {

using checkpoint::SafetensorsFile;

constexpr double kOpTolerance = 1e-5;

// A copy, so that the data is aligned.
Tensor load(const SafetensorsFile& file, const std::string& name) {
  const auto view = file.view(name);
  EXPECT_TRUE(view.ok()) << view.status().to_string();
  Tensor tensor(view->shape, DType::kF32);
  const auto bytes = file.bytes(*file.find(name));
  std::ranges::copy(bytes, static_cast<std::byte*>(tensor.view().data));
  return tensor;
}

// [H, A, B] to [H, B, A]: goldens keep states as [H, Dk, Dv], Heddle as [H, Dv, Dk].
Tensor transposed(const Tensor& from) {
  const int64_t H = from.shape()[0], A = from.shape()[1], B = from.shape()[2];
  Tensor to({H, B, A}, DType::kF32);
  for (int64_t h = 0; h < H; ++h) {
    for (int64_t i = 0; i < A; ++i) {
      for (int64_t j = 0; j < B; ++j) {
        to.span<float>()[static_cast<size_t>((h * B + j) * A + i)] =
            from.span<float>()[static_cast<size_t>((h * A + i) * B + j)];
      }
    }
  }
  return to;
}

void expect_near(const Tensor& got, const Tensor& want) {
  EXPECT_LT(testing::relative_error(got.view(), testing::to_doubles(want.view())), kOpTolerance);
}

enum class DeltaRuleForm { kRecurrent, kChunked };

void check_delta_rule(const SafetensorsFile& file, const std::string& name, bool initial,
                      DeltaRuleForm form) {
  SCOPED_TRACE(fmt::format("{} {} {}", name, initial ? "from a state" : "from zero",
                           form == DeltaRuleForm::kChunked ? "chunked" : "recurrent"));
  const Tensor q = load(file, name + ".q"), k = load(file, name + ".k"),
               v = load(file, name + ".v");
  const Tensor g = load(file, name + ".g"), beta = load(file, name + ".beta");
  const int64_t T = q.shape()[0], H = q.shape()[1], Dk = q.shape()[2], Dv = v.shape()[2];
  Tensor state({H, Dv, Dk}, DType::kF32);
  if (initial) state = transposed(load(file, name + ".initial_state"));
  Tensor y({T, H, Dv}, DType::kF32);
  testing::poison(y);
  std::vector<float> scratch(static_cast<size_t>(ops::delta_rule_scratch_floats(Dk, Dv, false)));
  for (int64_t h = 0; h < H; ++h) {
    std::vector<float> head_g, head_beta;
    for (int64_t t = 0; t < T; ++t) {
      head_g.push_back(g.span<float>()[static_cast<size_t>(t * H + h)]);
      head_beta.push_back(beta.span<float>()[static_cast<size_t>(t * H + h)]);
    }
    const ops::DeltaRuleHead head{.q = q.view().as<float>() + h * Dk,
                                  .k = k.view().as<float>() + h * Dk,
                                  .v = v.view().as<float>() + h * Dv,
                                  .q_stride = H * Dk,
                                  .k_stride = H * Dk,
                                  .v_stride = H * Dv,
                                  .g = head_g.data(),
                                  .beta = head_beta.data(),
                                  .y = y.view().as<float>() + h * Dv,
                                  .y_stride = H * Dv,
                                  .state = state.view().as<float>() + h * Dv * Dk,
                                  .num_tokens = T,
                                  .key_dim = Dk,
                                  .value_dim = Dv};
    if (form == DeltaRuleForm::kChunked) {
      ops::delta_rule_chunked(head, /*snapshots=*/{}, scratch.data());
    } else {
      ops::delta_rule_recurrent(head, scratch.data());
    }
  }
  const std::string run = name + (initial ? ".init" : ".zero");
  expect_near(y, load(file, run + ".o"));
  expect_near(state, transposed(load(file, run + ".final_state")));
}

void check_delta_rules(const std::filesystem::path& path, int first, int last) {
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  for (int i = first; i <= last; ++i) {
    for (const bool initial : {false, true}) {
      for (const DeltaRuleForm form : {DeltaRuleForm::kRecurrent, DeltaRuleForm::kChunked}) {
        check_delta_rule(*file, fmt::format("gdr{}", i), initial, form);
      }
    }
  }
}

TEST(OpsGoldenTest, DeltaRuleGivesTheRecordedValuesInBothForms) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "golden/ops.safetensors");
  check_delta_rules(path, 0, 1);
}

TEST(OpsGoldenTest, DeltaRuleGivesThemOverSeveralChunksAndWideHeads) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "golden/ops.safetensors");
  check_delta_rules(path, 2, 4);
}

TEST(OpsGoldenTest, ShortConvolutionGivesTheRecordedValues) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "golden/ops.safetensors");
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const Tensor x = load(*file, "conv.x"), weight = load(*file, "conv.weight");
  const int64_t T = x.shape()[0], C = x.shape()[1], W = weight.shape()[1];
  Tensor y({T, C}, DType::kF32), states({2, W - 1, C}, DType::kF32);
  testing::poison(y);
  testing::poison(states);
  const std::vector<int32_t> query_start{0, static_cast<int32_t>(T)}, context_lens{0}, slots{1};
  ops::ForwardContext forward;
  forward.query_start = query_start;
  forward.context_lens = context_lens;
  forward.state_slots = slots;
  device::ThreadPool pool(1);
  ops::CpuContext context(pool);
  const Status status =
      ops::causal_conv1d(context, {.x = x.view(),
                                   .weight = weight.view(),
                                   .y = y.view(),
                                   .state = {.conv = states.view(), .recurrent = {}},
                                   .forward = &forward});
  ASSERT_TRUE(status.ok()) << status.to_string();
  expect_near(y, load(*file, "conv.y"));
  const Tensor final_state = load(*file, "conv.final_state");  // [C, W - 1]
  for (int64_t c = 0; c < C; ++c) {
    for (int64_t m = 0; m < W - 1; ++m) {
      EXPECT_EQ(states.view().row<float>(1)[m * C + c], final_state.view().row<float>(c)[m]);
    }
  }
}

TEST(OpsGoldenTest, GatedNormGivesTheRecordedValues) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "golden/ops.safetensors");
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const Tensor x = load(*file, "gated_norm.x"), z = load(*file, "gated_norm.z");
  const Tensor weight = load(*file, "gated_norm.weight");
  Tensor y(x.shape(), DType::kF32);
  testing::poison(y);
  device::ThreadPool pool(1);
  ops::CpuContext context(pool);
  const Status status = ops::gated_rms_norm(
      context,
      {.x = x.view(), .z = z.view(), .weight = weight.view(), .y = y.view(), .epsilon = 1e-6f});
  ASSERT_TRUE(status.ok()) << status.to_string();
  expect_near(y, load(*file, "gated_norm.y"));
}

}  // namespace

}  // namespace heddle
