// SPDX-License-Identifier: Apache-2.0
// The draws of a step on every device, with the masks of answers that are held to a form, against
// the Sampler.
#include "runner/step/device_sampling.h"

#include <algorithm>
#include <limits>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "sampling/sampler.h"

namespace heddle::runner {
namespace {

constexpr int64_t kVocabulary = 1000;  // not a multiple of 32

class DeviceSamplingTest : public ops::DeviceTest {};

HEDDLE_ON_EVERY_DEVICE(DeviceSamplingTest);

TEST_P(DeviceSamplingTest, DrawsOutOfTheMaskOfEachRow) {
  constexpr int64_t kRows = 12;
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 3);
  Result<DeviceSampling> created = DeviceSampling::create(device(), kRows, kVocabulary);
  ASSERT_TRUE(created.ok()) << created.status().message();
  DeviceSampling& sampling = *created;
  for (int step = 0; step < 20; ++step) {
    Tensor logits({kRows, kVocabulary}, DType::kF32);
    std::vector<request::BatchSlot> slots(kRows);
    std::vector<std::vector<uint32_t>> masks(kRows);
    sampling.begin(kRows);
    for (int64_t r = 0; r < kRows; ++r) {
      std::generate_n(logits.view().row<float>(r), kVocabulary, [&] { return normal(random); });
      request::SlotStart& start = slots[static_cast<size_t>(r)].start;
      start.seed = random();
      start.sampling.temperature = step % 3 == 0 ? 0.0f : 1.3f;
      start.sampling.top_k = step % 2 == 0 ? -1 : 5;
      start.return_logprobs = r % 2 == 0;
      start.top_logprobs = 3;
      // Some of them masked, one twice.
      slots[static_cast<size_t>(r)].logprob_tokens.assign({4, 999, static_cast<TokenId>(r), 4});
      // None, one of fewer tokens than there are logits, of as many, and of more.
      std::vector<uint32_t>& mask = masks[static_cast<size_t>(r)];
      if (r % 4 != 0) mask.resize(r % 4 == 1 ? 5 : r % 4 == 2 ? 32 : 40);
      for (uint32_t& word : mask) word = static_cast<uint32_t>(random() & random() & random());
      if (!mask.empty()) mask[0] |= 16;
      if (r == 7) std::ranges::fill(mask, 0u);  // nothing can be drawn
      if (r != 11) sampling.add(r, slots[static_cast<size_t>(r)], 100 + step, mask);
    }
    ops::DeviceTensor on_device = upload(logits);
    ASSERT_TRUE(sampling.enqueue(context(), stream(), on_device.view(), {}).ok());
    ASSERT_TRUE(stream().synchronize().ok());
    EXPECT_FALSE(sampling.draws(11)) << "it was not added";
    sampling::Sampler sampler(kVocabulary);
    for (int64_t r = 0; r < 11; ++r) {
      SCOPED_TRACE(fmt::format("step {}, row {}", step, r));
      const request::SlotStart& start = slots[static_cast<size_t>(r)].start;
      const std::vector<uint32_t>& mask = masks[static_cast<size_t>(r)];
      TokenLogprob logprob;
      const Result<TokenId> want =
          sampler.sample({.logits = {logits.view().row<float>(r), kVocabulary},
                          .params = &start.sampling,
                          .mask = mask,
                          .seed = start.seed,
                          .position = 100 + step,
                          .top_logprobs = start.top_logprobs,
                          .logprob_tokens = slots[static_cast<size_t>(r)].logprob_tokens},
                         start.return_logprobs ? &logprob : nullptr);
      request::SampledToken sampled;
      sampling.take(r, sampled);
      EXPECT_EQ(sampled.error.message(), want.status().message());
      EXPECT_EQ(sampled.error.ok(), r != 7);
      if (!want.ok()) continue;
      EXPECT_EQ(sampled.token, *want);
      if (!mask.empty()) {
        ASSERT_LT(static_cast<size_t>(*want) / 32, mask.size());
        EXPECT_NE(mask[static_cast<size_t>(*want) / 32] >> (*want % 32) & 1, 0u);
      }
      EXPECT_EQ(sampled.logprob.logprob, logprob.logprob);
      EXPECT_EQ(sampled.logprob.top, logprob.top);
      EXPECT_EQ(sampled.logprob.listed.size(), start.return_logprobs ? 4u : 0u);
      EXPECT_EQ(sampled.logprob.listed, logprob.listed);
    }
  }
}

// Rows go on by a token a step, and by several; in some steps one of them asks for something else.
TEST_P(DeviceSamplingTest, RowsThatGoOnDrawAsRowsThatAreNew) {
  constexpr int64_t kRows = 5;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1);
  DeviceSampling sampling = DeviceSampling::create(device(), kRows, kVocabulary).value();
  std::vector<request::BatchSlot> slots(kRows);
  for (request::BatchSlot& slot : slots) {
    slot.start.seed = random();
    slot.start.sampling.temperature = 1.5f;
  }
  sampling::Sampler sampler(kVocabulary);
  int64_t position = 70;
  for (int step = 0; step < 40; ++step) {
    SCOPED_TRACE(fmt::format("step {}", step));
    position += step % 7 == 0 ? 4 : 1;
    if (step % 5 == 3) slots[1].start.seed = random();
    if (step % 8 == 5) slots[2].start.sampling.top_k = 1 + step;
    Tensor logits({kRows, kVocabulary}, DType::kF32);
    sampling.begin(kRows);
    for (int64_t r = 0; r < kRows; ++r) {
      std::generate_n(logits.view().row<float>(r), kVocabulary, [&] { return normal(random); });
      if (r == 3 && step % 11 == 9) continue;  // a step without it
      sampling.add(r, slots[static_cast<size_t>(r)], position + (r == 4 ? step / 13 : 10 * r), {});
    }
    ops::DeviceTensor on_device = upload(logits);
    ASSERT_TRUE(sampling.enqueue(context(), stream(), on_device.view(), {}).ok());
    ASSERT_TRUE(sampling.tells());
    while (!sampling.told()) {
    }
    for (int64_t r = 0; r < kRows; ++r) {
      if (!sampling.draws(r)) continue;
      const request::SlotStart& start = slots[static_cast<size_t>(r)].start;
      const TokenId want = sampler
                               .sample({.logits = {logits.view().row<float>(r), kVocabulary},
                                        .params = &start.sampling,
                                        .seed = start.seed,
                                        .position = position + (r == 4 ? step / 13 : 10 * r)},
                                       nullptr)
                               .value();
      request::SampledToken sampled;
      sampling.take(r, sampled);
      ASSERT_TRUE(sampled.error.ok());
      EXPECT_EQ(sampled.token, want) << "row " << r;
    }
  }
}

// Some tokens of the output are in the counts, some among the ids of the step.
TEST_P(DeviceSamplingTest, PenalisesWhatTheOutputHas) {
  constexpr int64_t kRows = 9;
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 1);
  DeviceSampling sampling = DeviceSampling::create(device(), kRows, kVocabulary).value();
  sampling::Sampler sampler(kVocabulary);
  Tensor ids({70}, DType::kI32);
  for (int step = 0; step < 20; ++step) {
    SCOPED_TRACE(fmt::format("step {}", step));
    Tensor logits({kRows, kVocabulary}, DType::kF32);
    Tensor counts({kRows, kVocabulary}, DType::kBf16);  // of 16 bits, as counts are
    auto* const table = counts.view().as<ops::TokenCount>();
    std::fill_n(table, kRows * kVocabulary, ops::TokenCount{0});
    auto* const tokens = ids.view().as<TokenId>();
    std::generate_n(tokens, 70, [&] { return static_cast<TokenId>(random() % 20); });
    std::vector<request::BatchSlot> slots(kRows);
    std::vector<std::vector<TokenId>> outputs(kRows);
    sampling.begin(kRows);
    for (int64_t r = 0; r < kRows; ++r) {
      const auto index = static_cast<size_t>(r);
      std::generate_n(logits.view().row<float>(r), kVocabulary, [&] { return normal(random); });
      request::SlotStart& start = slots[index].start;
      start.seed = random();
      start.sampling.temperature = step % 3 == 0 ? 0.0f : 0.6f;
      if (r % 3 != 0) start.sampling.repetition_penalty = 1.3f;
      if (r % 3 != 1) start.sampling.presence_penalty = 0.8f;
      if (r % 4 != 1) start.sampling.frequency_penalty = -0.3f;
      start.return_logprobs = step % 2 == 0;
      RowOutput output{.counts_row = static_cast<int32_t>(kRows - 1 - r),
                       .path_begin = static_cast<int32_t>(r % 6)};
      if (r % 2 == 0) output.path = random() & random();
      if (r == 8) output.path |= uint64_t{1} << 63;
      for (size_t i = random() % 30; i-- > 0;) {
        const auto token = static_cast<TokenId>(random() % 20);
        outputs[index].push_back(token);
        ++table[output.counts_row * kVocabulary + token];
      }
      for (size_t i = 0; i < 64; ++i) {
        if ((output.path >> i & 1) == 0) continue;
        outputs[index].push_back(tokens[static_cast<size_t>(output.path_begin) + i]);
      }
      sampling.add(r, slots[index], 100 + step, {}, output);
    }
    ops::DeviceTensor on_device = upload(logits);
    const ops::DeviceTensor device_counts = upload(counts);
    const ops::DeviceTensor device_ids = upload(ids);
    ASSERT_TRUE(sampling
                    .enqueue(context(), stream(), on_device.view(),
                             {.ids = device_ids.view().as<int32_t>(),
                              .counts = device_counts.view().as<ops::TokenCount>()})
                    .ok());
    ASSERT_TRUE(stream().synchronize().ok());
    for (int64_t r = 0; r < kRows; ++r) {
      const auto index = static_cast<size_t>(r);
      const request::SlotStart& start = slots[index].start;
      TokenLogprob logprob;
      const TokenId want = sampler
                               .sample({.logits = {logits.view().row<float>(r), kVocabulary},
                                        .params = &start.sampling,
                                        .output_tokens = outputs[index],
                                        .seed = start.seed,
                                        .position = 100 + step},
                                       start.return_logprobs ? &logprob : nullptr)
                               .value();
      request::SampledToken sampled;
      sampling.take(r, sampled);
      ASSERT_TRUE(sampled.error.ok());
      EXPECT_EQ(sampled.token, want) << "row " << r;
      EXPECT_EQ(sampled.logprob.logprob, logprob.logprob) << "row " << r;
    }
  }
}

TEST_P(DeviceSamplingTest, ScoresTokensBesideTheDraws) {
  constexpr int64_t kRows = 9;
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 3);
  Result<DeviceSampling> created = DeviceSampling::create(device(), kRows, kVocabulary);
  ASSERT_TRUE(created.ok()) << created.status().message();
  DeviceSampling& sampling = *created;
  const std::vector<TokenId> listed = {7, 0, 999, 512};
  const auto listed_by = [&](int64_t r) {
    return std::span(listed).first(static_cast<size_t>(r % 5));
  };
  request::BatchSlot slot;
  slot.start.sampling.temperature = 0.7f;
  slot.start.sampling.logit_bias = {{3, 50.0f}};
  for (int step = 0; step < 10; ++step) {
    SCOPED_TRACE(fmt::format("step {}", step));
    Tensor logits({kRows, kVocabulary}, DType::kF32);
    std::vector<TokenId> tokens(kRows);
    sampling.begin(kRows);
    for (int64_t r = 0; r < kRows; ++r) {
      std::generate_n(logits.view().row<float>(r), kVocabulary, [&] { return normal(random); });
      tokens[static_cast<size_t>(r)] = static_cast<TokenId>(random() % kVocabulary);
      if (r == 4) {
        slot.start.seed = random();
        sampling.add(r, slot, 50, {});
      } else if (r != 6) {
        sampling.add_scored(r, tokens[static_cast<size_t>(r)], 100 + r,
                            static_cast<int32_t>(r % 4 * 5), listed_by(r));
      }
    }
    logits.view().row<float>(8)[17] = std::numeric_limits<float>::quiet_NaN();
    ops::DeviceTensor on_device = upload(logits);
    ASSERT_TRUE(sampling.enqueue(context(), stream(), on_device.view(), {}).ok());
    EXPECT_FALSE(sampling.tells()) << "copies come behind the kernels";
    ASSERT_TRUE(stream().synchronize().ok());
    sampling::Sampler sampler(kVocabulary);
    size_t index = 0;
    for (int64_t r = 0; r < kRows; ++r) {
      if (r == 6) continue;
      if (r == 4) {
        request::SampledToken sampled;
        sampling.take(r, sampled);
        EXPECT_EQ(sampled.token, 3) << "the bias of its own row";
        continue;
      }
      SCOPED_TRACE(fmt::format("row {}", r));
      TokenLogprob want;
      const Status status =
          sampler.score({logits.view().row<float>(r), kVocabulary}, tokens[static_cast<size_t>(r)],
                        100 + r, static_cast<int32_t>(r % 4 * 5), listed_by(r), want);
      request::ScoredToken scored;
      sampling.take_scored(index++, scored);
      EXPECT_EQ(scored.error.message(), status.message());
      EXPECT_EQ(scored.error.ok(), r != 8);
      if (!status.ok()) continue;
      EXPECT_EQ(scored.logprob.token, want.token);
      EXPECT_EQ(scored.logprob.logprob, want.logprob);
      EXPECT_EQ(scored.logprob.top, want.top);
      EXPECT_EQ(scored.logprob.listed, want.listed);
    }
  }
}

}  // namespace
}  // namespace heddle::runner
