// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/causal_conv1d.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/linear_attention/causal_conv1d_reference.h"
#include "ops/tree_fixture.h"
#include "support/tensors.h"

namespace heddle::ops {

namespace {

constexpr float kCanary = 768.0f;  // in every dtype
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_floats(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  std::ranges::generate(values, [&] { return normal(random); });
  return values;
}

class CausalConv1dTest : public DeviceTest {
 public:
  using DeviceTest::context_on;
  using DeviceTest::download;
  using DeviceTest::upload;
  using DeviceTest::upload_batch;
};

HEDDLE_ON_EVERY_DEVICE(CausalConv1dTest);

// One conversation over slots of a pool that starts poisoned.
class Convolution {
 public:
  struct Part {
    int64_t slot = 1;
    int64_t context_len = 0;
    int64_t first = 0;  // row of the inputs
    int64_t num_rows = 0;
    testing::Parents parents = {};  // the last rows are nodes of a tree
  };

  Convolution(CausalConv1dTest& test, int64_t C, int64_t W, int64_t num_inputs,
              DType dtype = DType::kF32, bool silu = true, bool has_bias = false)
      : test_(test),
        C_(C),
        W_(W),
        dtype_(dtype),
        silu_(silu),
        y_(static_cast<size_t>(num_inputs * C), kPoison) {
    const std::vector<float> x = random_floats(num_inputs * C, 1);
    const Tensor rounded = testing::converted({x.data(), DType::kF32, {num_inputs, C}}, dtype);
    const Tensor back = testing::converted(rounded.view(), DType::kF32);
    x_.assign(back.span<float>().begin(), back.span<float>().end());
    const std::vector<float> weight = random_floats(C * W, 2);
    std::ranges::copy(weight, weight_.span<float>().begin());
    std::ranges::fill(state_.span<float>(), kPoison);
    if (has_bias) bias_ = random_floats(C, 3);
    Tensor bias({C}, DType::kF32);
    std::ranges::copy(bias_, bias.span<float>().begin());
    device_bias_ = test.upload(bias);
    device_weight_ = test.upload(weight_);
    device_state_ = test.upload(state_);
  }

  void step(const std::vector<Part>& parts, const std::vector<StateSnapshot>& snapshots = {},
            int num_threads = 1) {
    std::vector<int32_t> query_start{0}, context_lens, slots;
    for (const Part& part : parts) {
      query_start.push_back(query_start.back() + static_cast<int32_t>(part.num_rows));
      context_lens.push_back(static_cast<int32_t>(part.context_len));
      slots.push_back(static_cast<int32_t>(part.slot));
    }
    const int64_t T = query_start.back();
    Tensor x({T, C_ + 3}, DType::kF32), y({T, C_ + 2}, DType::kF32);
    std::ranges::fill(y.span<float>(), kCanary);
    for (size_t p = 0; p < parts.size(); ++p) {
      for (int64_t t = 0; t < parts[p].num_rows; ++t) {
        std::copy_n(x_.begin() + (parts[p].first + t) * C_, C_,
                    x.view().row<float>(query_start[p] + t));
      }
    }
    ForwardContext forward;
    forward.query_start = query_start;
    forward.context_lens = context_lens;
    forward.state_slots = slots;
    forward.snapshots = snapshots;
    testing::StepTrees trees;
    for (const Part& part : parts) trees.add(part.context_len, part.num_rows, part.parents);
    trees.set(forward);
    test_.upload_batch(forward);
    const DeviceTensor device_x = test_.upload(testing::converted(x.view(), dtype_));
    DeviceTensor device_y = test_.upload(testing::converted(y.view(), dtype_));
    const Status status = causal_conv1d(test_.context_on(num_threads, false),
                                        {.x = {device_x.view().data, dtype_, {T, C_}, C_ + 3},
                                         .weight = device_weight_.view(),
                                         .bias = bias_.empty() ? TensorView() : device_bias_.view(),
                                         .y = {device_y.view().data, dtype_, {T, C_}, C_ + 2},
                                         .silu = silu_,
                                         .state = {.conv = device_state_.view(), .recurrent = {}},
                                         .forward = &forward});
    ASSERT_TRUE(status.ok()) << status.to_string();
    y = testing::converted(test_.download(device_y).view(), DType::kF32);
    state_ = test_.download(device_state_);
    for (size_t p = 0; p < parts.size(); ++p) {
      for (int64_t t = 0; t < parts[p].num_rows; ++t) {
        const float* row = y.view().row<float>(query_start[p] + t);
        std::copy_n(row, C_, y_.begin() + (parts[p].first + t) * C_);
        EXPECT_EQ(row[C_], kCanary);
        EXPECT_EQ(row[C_ + 1], kCanary);
      }
    }
  }

  // Inputs [first, first + count), and what came of them.
  [[nodiscard]] std::vector<float> inputs(int64_t first, int64_t count) const {
    return {x_.begin() + first * C_, x_.begin() + (first + count) * C_};
  }

  [[nodiscard]] std::vector<float> outputs(int64_t first, int64_t count) const {
    return {y_.begin() + first * C_, y_.begin() + (first + count) * C_};
  }

  [[nodiscard]] std::vector<float> window(int64_t slot) {
    const float* from = state_.view().row<float>(slot);
    return {from, from + (W_ - 1) * C_};
  }

  // The window after the inputs [first, first + count), zeros before them.
  [[nodiscard]] std::vector<float> expected_window(int64_t first, int64_t count) const {
    std::vector<float> all(static_cast<size_t>((W_ - 1) * C_));
    const std::vector<float> given = inputs(first, count);
    all.insert(all.end(), given.begin(), given.end());
    return {all.end() - (W_ - 1) * C_, all.end()};
  }

  [[nodiscard]] std::vector<double> reference(int64_t first, int64_t count) const {
    const auto weight = weight_.span<float>();
    return causal_conv1d_reference(inputs(first, count),
                                   std::vector<float>(static_cast<size_t>((W_ - 1) * C_)),
                                   {weight.begin(), weight.end()}, static_cast<size_t>(C_),
                                   static_cast<size_t>(W_), silu_, bias_);
  }

  void expect_untouched(int64_t slot) {
    EXPECT_TRUE(std::ranges::all_of(window(slot), [](float x) { return std::isnan(x); })) << slot;
  }

  static constexpr int64_t kSlots = 48;

 private:
  CausalConv1dTest& test_;
  int64_t C_, W_;
  DType dtype_;
  bool silu_;
  std::vector<float> x_, y_, bias_;
  Tensor weight_{{C_, W_}, DType::kF32};
  Tensor state_{{kSlots, W_ - 1, C_}, DType::kF32};
  DeviceTensor device_weight_, device_bias_, device_state_;
};

void expect_near(const std::vector<float>& value, const std::vector<double>& truth,
                 double rounding = 0) {
  ASSERT_EQ(value.size(), truth.size());
  for (size_t i = 0; i < value.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(value[i]), truth[i],
                2e-6 * (1.0 + std::fabs(truth[i])) + rounding * std::fabs(truth[i]))
        << i;
  }
}

TEST_P(CausalConv1dTest, MatchesTheReferenceForAnyWidthAndChannels) {
  for (const DType dtype : activation_dtypes()) {
    for (const int64_t W : {2, 3, 4, 8}) {
      for (const int64_t C : {1, 17, 64, 300, 600}) {
        for (const auto& [silu, has_bias] :
             {std::pair(true, false), {false, false}, {true, true}, {false, true}}) {
          SCOPED_TRACE(
              fmt::format("{} W {} C {} silu {} bias {}", to_string(dtype), W, C, silu, has_bias));
          Convolution convolution(*this, C, W, 41, dtype, silu, has_bias);
          convolution.step({{.slot = 3, .context_len = 0, .first = 0, .num_rows = 40}}, {}, 2);
          convolution.step({{.slot = 3, .context_len = 40, .first = 40, .num_rows = 1}});
          expect_near(convolution.outputs(0, 41), convolution.reference(0, 41), rounding_of(dtype));
          EXPECT_EQ(convolution.window(3), convolution.expected_window(0, 41));
          for (const int64_t slot : {0, 1, 2, 4, 5, 6, 7}) convolution.expect_untouched(slot);
        }
      }
    }
  }
}

// A batch that was padded to a captured size: rows and a sequence that are none.
TEST_P(CausalConv1dTest, LeavesThePoolAloneForPadding) {
  if (!on_cuda()) GTEST_SKIP() << "batches are padded on a device that captures";
  Tensor state({4, 3, 9}, DType::kF32);
  testing::poison(state);
  DeviceTensor device_state = upload(state);
  const DeviceTensor x = upload(testing::random_tensor({5, 9}, DType::kBf16, 1));
  const DeviceTensor weight = upload(testing::random_tensor({9, 4}, DType::kF32, 2));
  DeviceTensor y = poisoned({5, 9}, DType::kBf16);
  const std::vector<int32_t> query_start{0, 3, 5}, context_lens{0, 0}, slots{2, -1};
  ForwardContext forward;
  forward.query_start = query_start;
  forward.context_lens = context_lens;
  forward.state_slots = slots;
  upload_batch(forward);
  const std::vector<int32_t> rows{0, 0, 0, -1, -1};
  forward.batch.row_sequences = mirrored(rows).device;
  CausalConv1dArgs args{.x = x.view(),
                        .weight = weight.view(),
                        .y = y.view(),
                        .state = {.conv = device_state.view(), .recurrent = {}},
                        .snapshots = {.conv = device_state.view(), .recurrent = {}, .scales = {}},
                        .forward = &forward};
  ASSERT_TRUE(causal_conv1d_cuda(static_cast<CudaContext&>(context()), args).ok());
  const Tensor after = download(device_state);
  for (const int64_t slot : {0, 1, 3}) {
    for (int64_t i = 0; i < 27; ++i) EXPECT_TRUE(std::isnan(after.view().row<float>(slot)[i]));
  }
  for (int64_t i = 0; i < 27; ++i) EXPECT_FALSE(std::isnan(after.view().row<float>(2)[i]));
}

TEST_P(CausalConv1dTest, GivesTheSameBitsWhereverThePromptIsSplit) {
  constexpr int64_t kTokens = 14;
  for (const int64_t W : {2, 3, 4, 8}) {
    Convolution whole(*this, 37, W, kTokens);
    whole.step({{.slot = 1, .context_len = 0, .first = 0, .num_rows = kTokens}});
    for (int64_t split = 1; split < kTokens; ++split) {
      SCOPED_TRACE(fmt::format("W {} split {}", W, split));
      Convolution parts(*this, 37, W, kTokens);
      parts.step({{.slot = 1, .context_len = 0, .first = 0, .num_rows = split}});
      EXPECT_EQ(parts.window(1), parts.expected_window(0, split));
      for (int64_t t = split; t < kTokens; ++t) {  // then decode
        parts.step({{.slot = 1, .context_len = t, .first = t, .num_rows = 1}});
      }
      EXPECT_EQ(whole.outputs(0, kTokens), parts.outputs(0, kTokens));
      EXPECT_EQ(whole.window(1), parts.window(1));
    }
  }
}

TEST_P(CausalConv1dTest, MixesPrefillAndDecodeAndKeepsSequencesApart) {
  Convolution mixed(*this, 700, 4, 70);
  mixed.step({{.slot = 2, .context_len = 0, .first = 0, .num_rows = 20}});
  mixed.step({{.slot = 5, .context_len = 0, .first = 40, .num_rows = 25},
              {.slot = 2, .context_len = 20, .first = 20, .num_rows = 1},
              {.slot = 7, .context_len = 0, .first = 65, .num_rows = 2}},
             {}, 3);
  expect_near(mixed.outputs(0, 21), mixed.reference(0, 21));
  expect_near(mixed.outputs(40, 25), mixed.reference(40, 25));
  expect_near(mixed.outputs(65, 2), mixed.reference(65, 2));
  EXPECT_EQ(mixed.window(2), mixed.expected_window(0, 21));
  EXPECT_EQ(mixed.window(7), mixed.expected_window(65, 2));
  for (const int64_t slot : {0, 1, 3, 4, 6}) mixed.expect_untouched(slot);
}

TEST_P(CausalConv1dTest, SnapshotsHoldTheWindowAfterExactlyTheirTokens) {
  Convolution convolution(*this, 50, 4, 20);
  convolution.step({{.slot = 1, .context_len = 0, .first = 0, .num_rows = 2}});
  convolution.step({{.slot = 2, .context_len = 0, .first = 10, .num_rows = 7},
                    {.slot = 1, .context_len = 2, .first = 2, .num_rows = 6}},
                   {{.sequence = 0, .num_tokens = 1, .slot = 3},
                    {.sequence = 0, .num_tokens = 7, .slot = 4},
                    {.sequence = 1, .num_tokens = 1, .slot = 5},
                    {.sequence = 1, .num_tokens = 4, .slot = 6}});
  EXPECT_EQ(convolution.window(3), convolution.expected_window(10, 1));
  EXPECT_EQ(convolution.window(4), convolution.expected_window(10, 7));
  EXPECT_EQ(convolution.window(5), convolution.expected_window(0, 3));
  EXPECT_EQ(convolution.window(6), convolution.expected_window(0, 6));
  convolution.expect_untouched(0);
}

TEST_P(CausalConv1dTest, ManySnapshotsHoldTheirWindowsInOneStep) {
  constexpr int64_t kBefore = 2, kRows = 520, kEvery = 13, kCount = kRows / kEvery;
  Convolution convolution(*this, 40, 4, kBefore + kRows);
  convolution.step({{.slot = 1, .context_len = 0, .first = 0, .num_rows = kBefore}});
  // The first two reach into the slot's own window.
  std::vector<StateSnapshot> snapshots = {{.sequence = 0, .num_tokens = 1, .slot = 2},
                                          {.sequence = 0, .num_tokens = 2, .slot = 3}};
  for (int32_t i = 0; i < kCount; ++i) {
    snapshots.push_back(
        {.sequence = 0, .num_tokens = static_cast<int32_t>(kEvery) * (i + 1), .slot = 4 + i});
  }
  convolution.step({{.slot = 1, .context_len = kBefore, .first = kBefore, .num_rows = kRows}},
                   snapshots);
  for (const StateSnapshot& snapshot : snapshots) {
    EXPECT_EQ(convolution.window(snapshot.slot),
              convolution.expected_window(0, kBefore + snapshot.num_tokens))
        << snapshot.num_tokens;
  }
  EXPECT_EQ(convolution.window(1), convolution.expected_window(0, kBefore + kRows));
  convolution.expect_untouched(0);
}

TEST_P(CausalConv1dTest, SaysWhatDoesNotFit) {
  DeviceTensor x = poisoned({2, 8}, DType::kF32), y = poisoned({2, 8}, DType::kF32);
  const DeviceTensor weight = poisoned({8, 4}, DType::kF32);
  DeviceTensor state = poisoned({2, 3, 8}, DType::kF32);
  DeviceTensor short_state = poisoned({2, 2, 8}, DType::kF32);
  std::vector<int32_t> query_start{0, 2}, context_lens{0}, slots{1};
  ForwardContext forward;
  forward.query_start = query_start;
  forward.context_lens = context_lens;
  forward.state_slots = slots;
  upload_batch(forward);
  CausalConv1dArgs args{.x = x.view(),
                        .weight = weight.view(),
                        .y = y.view(),
                        .state = {.conv = state.view(), .recurrent = {}},
                        .forward = &forward};
  ASSERT_TRUE(causal_conv1d(context(), args).ok());
  CausalConv1dArgs wrong = args;
  wrong.state.conv = short_state.view();
  EXPECT_THAT(causal_conv1d(context(), wrong).to_string(), ::testing::HasSubstr("W - 1"));
  wrong = args;
  wrong.y = x.view();
  EXPECT_THAT(causal_conv1d(context(), wrong).to_string(), ::testing::HasSubstr("in place"));
}

// A node convolves its own ancestors, and leaves the window behind them in its slot.
TEST_P(CausalConv1dTest, ANodeOfATreeHasTheBitsOfItsPathAlone) {
  for (const int64_t W : {2, 4, 8}) {
    for (const int64_t num_chain : {1, 3}) {
      for (const int64_t context : {0, 7}) {
        SCOPED_TRACE(fmt::format("W {} context {} chain {}", W, context, num_chain));
        constexpr int64_t kNodes = 5;
        const int64_t first = context + num_chain;
        const testing::Parents parents =
            testing::random_parents(kNodes, static_cast<uint64_t>(W + context + num_chain));
        Convolution tree(*this, 300, W, 40), alone(*this, 300, W, 40);
        if (context > 0)
          tree.step({{.slot = 1, .context_len = 0, .first = 0, .num_rows = context}});
        tree.step({{.slot = 7, .context_len = 0, .first = 20, .num_rows = 20},
                   {.slot = 1,
                    .context_len = context,
                    .first = context,
                    .num_rows = num_chain + kNodes,
                    .parents = parents}},
                  {}, 2);
        EXPECT_EQ(tree.window(7), tree.expected_window(20, 20));
        EXPECT_EQ(tree.window(1), tree.expected_window(0, first)) << "the state before the tree";
        for (int32_t node = 0; node < kNodes; ++node) {
          alone.step({{.slot = 2, .context_len = 0, .first = 0, .num_rows = first}});
          int64_t position = first;
          for (const int32_t passed : testing::path_to(parents, node)) {
            alone.step(
                {{.slot = 2, .context_len = position++, .first = first + passed, .num_rows = 1}});
          }
          EXPECT_EQ(tree.outputs(first + node, 1), alone.outputs(first + node, 1)) << node;
          EXPECT_EQ(tree.window(2 + node), alone.window(2)) << node;
        }
      }
    }
  }
}

}  // namespace

}  // namespace heddle::ops
