// SPDX-License-Identifier: Apache-2.0
// ops::sample_rows on every device against the Sampler, bit for bit.
#include "ops/sampling/sample_rows.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "core/compiler.h"
#include "ops/device_fixture.h"
#include "ops/sampling/row_scratch.h"
#include "ops/sampling/uniform_draw.h"
#include "request/batch_plan.h"
#include "sampling/sampler.h"
#include "sampling/sampling_slot.h"
#include "support/test_data.h"

namespace heddle::sampling {
namespace {

using ops::SampledRow;
using ops::SampleOutcome;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kPlusInfinity = std::numeric_limits<float>::infinity();
constexpr float kQuietNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kLargeVocabulary = 151936;

// From here on a GPU has a kernel for DrawKind::kFew.
constexpr int64_t kLeastForFew = int64_t{ops::kFewTokens} * ops::kTileTokens;

struct RowCase {
  std::vector<float> logits;
  SamplingParams params;
  std::vector<TokenId> output;     // in the counts
  std::vector<TokenId> path;       // behind them, not in the counts
  std::vector<TokenId> forbidden;  // at this position
  std::vector<TokenId> allowed;    // by a mask; empty: all
  uint64_t seed = 1;
  int64_t position = 0;
  int32_t choice = 0;
  int32_t top_logprobs = -1;
  bool publish = false;
  bool pad = false;
};

struct Drawn {
  std::vector<SampledRow> rows;
  std::vector<ops::TopLogit> top_logits;  // [R, 20]
  std::vector<TokenId> drawn;             // by slot
};

std::vector<float> normal_row(std::mt19937& random, int64_t V, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> row(static_cast<size_t>(V));
  for (float& x : row) x = normal(random);
  return row;
}

class SampleRowsTest : public ops::DeviceTest {
 protected:
  // Row i draws for slot R - 1 - i.
  Drawn run(const std::vector<RowCase>& cases) {
    const auto R = static_cast<int64_t>(cases.size());
    const auto V = static_cast<int64_t>(cases[0].logits.size());
    const int64_t mask_words = (V + 31) / 32;
    Tensor logits({R, V}, DType::kF32);
    std::vector<ops::SamplingRow> rows;
    std::vector<ops::SamplingSlot> slots(cases.size());
    std::vector<ops::TokenCount> counts(static_cast<size_t>(R * V), 0);
    std::vector<TokenId> forbidden;
    std::vector<ops::TokenBias> biases;
    std::vector<TokenId> path;
    std::vector<uint32_t> masks;
    for (int64_t r = 0; r < R; ++r) {
      const RowCase& from = cases[static_cast<size_t>(r)];
      std::ranges::copy(from.logits, logits.view().row<float>(r));
      const auto slot_index = static_cast<int32_t>(R - 1 - r);
      ops::SamplingSlot& slot = slots[static_cast<size_t>(slot_index)];
      slot = sampling_slot(from.params, from.seed, from.choice, V);
      slot.top_logprobs = from.top_logprobs;
      slot.min_length = from.forbidden.empty() ? 0 : from.position + 1;
      slot.forbidden_begin = static_cast<int32_t>(forbidden.size());
      slot.num_forbidden = static_cast<int32_t>(from.forbidden.size());
      forbidden.insert(forbidden.end(), from.forbidden.begin(), from.forbidden.end());
      slot.biases_begin = static_cast<int32_t>(biases.size());
      slot.num_biases = static_cast<int32_t>(from.params.logit_bias.size());
      for (const auto& [token, bias] : from.params.logit_bias) biases.push_back({token, bias});
      if (request::penalises(from.params)) slot.counts_row = static_cast<int32_t>(r);
      for (const TokenId token : from.output) ++counts[static_cast<size_t>(r * V + token)];

      ops::SamplingRow& row = rows.emplace_back();
      row = {.slot = from.pad ? -1 : slot_index,
             .position = from.position,
             .path_begin = static_cast<int32_t>(path.size()),
             .publish = from.publish ? 1 : 0};
      for (const TokenId token : from.path) {
        path.push_back(0);  // beside the path
        path.push_back(token);
        row.path = row.path << 2 | 2;
      }
      if (!from.allowed.empty()) {
        row.mask_row = static_cast<int32_t>(masks.size()) / static_cast<int32_t>(mask_words);
        masks.resize(masks.size() + static_cast<size_t>(mask_words), 0);
        for (const TokenId token : from.allowed) {
          masks[static_cast<size_t>(row.mask_row * mask_words + token / 32)] |= 1u << (token % 32);
        }
      }
    }
    const device::Buffer device_rows = uploaded(rows);
    const device::Buffer device_slots = uploaded(slots);
    const device::Buffer device_counts = uploaded(counts);
    const device::Buffer device_forbidden = uploaded(forbidden);
    const device::Buffer device_biases = uploaded(biases);
    const device::Buffer device_path = uploaded(path);
    const device::Buffer device_masks = uploaded(masks);
    const device::Buffer drawn = uploaded(std::vector<TokenId>(cases.size(), -7));
    const device::Buffer sampled = workspace(R * static_cast<int64_t>(sizeof(SampledRow)));
    const device::Buffer top_logits = workspace(R * ops::kMostTopLogits * 8);
    const device::Buffer scratch = workspace(ops::sample_rows_workspace_bytes(R, V));
    ops::DeviceTensor device_logits = upload(logits);
    auto kind = ops::DrawKind::kBest;
    for (const ops::SamplingRow& row : rows) {
      if (row.slot < 0) continue;
      kind = std::min(kind, ops::draw_kind(slots[static_cast<size_t>(row.slot)]));
    }
    const Status status = ops::sample_rows(
        context(), {.logits = device_logits.view(),
                    .rows = reinterpret_cast<const ops::SamplingRow*>(device_rows.data()),
                    .slots = reinterpret_cast<const ops::SamplingSlot*>(device_slots.data()),
                    .counts = reinterpret_cast<const ops::TokenCount*>(device_counts.data()),
                    .forbidden = reinterpret_cast<const int32_t*>(device_forbidden.data()),
                    .biases = reinterpret_cast<const ops::TokenBias*>(device_biases.data()),
                    .path_tokens = reinterpret_cast<const int32_t*>(device_path.data()),
                    .masks = reinterpret_cast<const uint32_t*>(device_masks.data()),
                    .kind = kind,
                    .drawn = reinterpret_cast<int32_t*>(drawn.data()),
                    .sampled = reinterpret_cast<SampledRow*>(sampled.data()),
                    .top_logits = reinterpret_cast<ops::TopLogit*>(top_logits.data()),
                    .workspace = scratch.bytes()});
    EXPECT_TRUE(status.ok()) << status.message();
    return {.rows = downloaded<SampledRow>(sampled, cases.size()),
            .top_logits = downloaded<ops::TopLogit>(top_logits, cases.size() * ops::kMostTopLogits),
            .drawn = downloaded<TokenId>(drawn, cases.size())};
  }

  // Runs the rows and compares each with a Sampler.
  void check(const std::vector<RowCase>& cases) {
    const Drawn got = run(cases);
    Sampler sampler(static_cast<int64_t>(cases[0].logits.size()));
    for (size_t r = 0; r < cases.size(); ++r) {
      const RowCase& from = cases[r];
      const SampledRow& row = got.rows[r];
      if (from.pad) {
        ASSERT_EQ(row.outcome, SampleOutcome::kSkipped) << describe(cases, r);
        continue;
      }
      TokenLogprob want_logprob;
      const Result<TokenId> want = wanted(sampler, from, want_logprob);
      ASSERT_EQ(outcome_status(row.outcome, from.position).message(), want.status().message())
          << describe(cases, r);
      ASSERT_EQ(row.token, want.ok() ? *want : -1) << describe(cases, r);
      if (!want.ok() || from.top_logprobs < 0) continue;

      const LogSoftmax log_softmax(row.max, weight_temperature(from.params), row.total);
      ASSERT_EQ(log_softmax(row.logit), want_logprob.logprob) << describe(cases, r);
      std::vector<std::pair<TokenId, float>> top;
      for (int i = 0; i < row.num_top_logits; ++i) {
        const ops::TopLogit& logit =
            got.top_logits[r * ops::kMostTopLogits + static_cast<size_t>(i)];
        top.emplace_back(logit.token, log_softmax(logit.logit));
      }
      ASSERT_EQ(top, want_logprob.top) << describe(cases, r);
    }
  }

 private:
  static Result<TokenId> wanted(Sampler& sampler, const RowCase& from, TokenLogprob& logprob) {
    std::vector<float> logits = from.logits;
    if (!from.allowed.empty()) {
      std::vector<float> masked(logits.size(), -kPlusInfinity);
      for (const TokenId token : from.allowed) {
        masked[static_cast<size_t>(token)] = logits[static_cast<size_t>(token)];
      }
      logits = std::move(masked);
    }
    std::vector<TokenId> output = from.output;
    output.insert(output.end(), from.path.begin(), from.path.end());
    return sampler.sample({.logits = logits,
                           .params = &from.params,
                           .output_tokens = output,
                           .forbidden_tokens = from.forbidden,
                           .seed = from.seed,
                           .position = from.position,
                           .choice_index = from.choice,
                           .top_logprobs = from.top_logprobs},
                          from.top_logprobs >= 0 ? &logprob : nullptr);
  }

  static std::string describe(const std::vector<RowCase>& cases, size_t r) {
    const SamplingParams& params = cases[r].params;
    return fmt::format("row {} of {}, V = {}, temperature {}, top_p {}, top_k {}, min_p {}", r,
                       cases.size(), cases[r].logits.size(), params.temperature, params.top_p,
                       params.top_k, params.min_p);
  }

  template <typename Element>
  device::Buffer uploaded(const std::vector<Element>& host) {
    const auto num_bytes = static_cast<int64_t>(host.size() * sizeof(Element));
    device::Buffer buffer = workspace(std::max<int64_t>(num_bytes, 8));
    EXPECT_TRUE(stream().copy(buffer.data(), host.data(), num_bytes).ok());
    EXPECT_TRUE(stream().synchronize().ok());
    return buffer;
  }

  template <typename Element>
  std::vector<Element> downloaded(const device::Buffer& buffer, size_t count) {
    std::vector<Element> host(count);
    const auto num_bytes = static_cast<int64_t>(count * sizeof(Element));
    EXPECT_TRUE(stream().copy(host.data(), buffer.data(), num_bytes).ok());
    const Status status = stream().synchronize();
    EXPECT_TRUE(status.ok()) << status.message();
    return host;
  }
};

HEDDLE_ON_EVERY_DEVICE(SampleRowsTest);

// The smallest of everything: also what compute-sanitizer looks at.
TEST_P(SampleRowsTest, DrawsFromTheSmallestVocabularies) {
  for (const int64_t V : {1, 2, 31, 33, 255, 256, 257, 513}) {
    std::mt19937 random(static_cast<unsigned>(V));
    std::vector<RowCase> cases;
    for (const SamplingParams& params :
         {SamplingParams{.temperature = 0}, SamplingParams{}, SamplingParams{.top_k = 3},
          SamplingParams{.top_p = 0.7f}, SamplingParams{.top_p = 0}, SamplingParams{.min_p = 0.2f},
          SamplingParams{.temperature = 0.7f, .top_p = 0.8f, .top_k = 20}}) {
      for (const int32_t top_logprobs : {-1, 0, 20}) {
        cases.push_back({.logits = normal_row(random, V, 2),
                         .params = params,
                         .position = V,
                         .top_logprobs = top_logprobs});
      }
    }
    const auto last = static_cast<TokenId>(V - 1);
    cases.push_back({.logits = normal_row(random, V, 2),
                     .params = {.top_p = 0.9f,
                                .frequency_penalty = 0.5f,
                                .repetition_penalty = 1.2f,
                                .logit_bias = {{0, 1.5f}}},
                     .output = {0, last},
                     .path = {last},
                     .forbidden = {0},
                     .allowed = {0, last},
                     .publish = true});
    check(cases);
    check({{.logits = normal_row(random, V, 2), .params = {.temperature = 0}}});
    for (const int64_t more : {int64_t{0}, kLeastForFew}) {
      check({{.logits = normal_row(random, V + more, 2), .params = {.top_p = 0.8f, .top_k = 5}},
             {.logits = normal_row(random, V + more, 2), .params = {.top_k = 3, .min_p = 0.1f}},
             {.logits = normal_row(random, V + more, 2), .pad = true}});
    }
  }
  check({{.logits = std::vector<float>(2600, 1.0f), .params = {.top_p = 0.9f}}});  // cut by digits
}

TEST_P(SampleRowsTest, DrawsTheSamplersTokenForRandomParameters) {
  constexpr size_t kRows = 250;
  const int rounds = on_cuda() ? 400 : HEDDLE_SANITIZED ? 4 : 24;  // 10^5 rows where they are quick
  std::mt19937 random(7);
  const auto unit = [&] { return static_cast<float>(random() % 10001) / 10000.0f; };
  for (int round = 0; round < rounds; ++round) {
    auto V = static_cast<int64_t>(1 + random() % (round % 8 == 0 ? 6000 : 700));
    if (round % 6 == 4) V += kLeastForFew;
    const auto token = [&] { return static_cast<TokenId>(random() % static_cast<uint64_t>(V)); };
    const bool takes_best = round % 6 == 5;  // then of few rows, too
    const bool takes_few = round % 6 == 2 || round % 6 == 4;
    std::vector<RowCase> cases(takes_best || round % 6 == 4 ? 1 + random() % 40 : kRows);
    for (size_t r = 0; r < cases.size(); ++r) {
      RowCase& from = cases[r];
      from.logits = normal_row(random, V, 0.2f + 5 * unit());
      if (r % 3 == 0) {
        for (float& x : from.logits) x = std::round(x);  // many ties
      }
      if (r % 5 == 0) {
        for (float& x : from.logits) x = random() % 4 == 0 ? -kPlusInfinity : x;
      }
      if (r % 50 == 1) from.logits[static_cast<size_t>(token())] = kQuietNan;
      if (r % 50 == 2) from.logits[static_cast<size_t>(token())] = kPlusInfinity;
      if (r % 50 == 3) std::ranges::fill(from.logits, -kPlusInfinity);
      if (r % 50 == 4) std::ranges::fill(from.logits, unit());
      SamplingParams& params = from.params;
      params.temperature = random() % 4 == 0 ? 1.0f : 0.05f + 3 * unit();
      if (random() % 8 == 0) params.temperature = 0;
      if (random() % 2 == 0) params.top_p = std::max(0.001f, unit());
      if (random() % 2 == 0) {
        params.top_k = static_cast<int32_t>(1 + random() % static_cast<uint64_t>(V + 3));
      }
      if (random() % 3 == 0) params.min_p = unit() * unit();
      if (random() % 3 == 0) {
        params.frequency_penalty = 4 * unit() - 2;
        params.presence_penalty = 4 * unit() - 2;
        params.repetition_penalty = 0.1f + 1.9f * unit();
        for (size_t i = random() % 20; i-- > 0;) from.output.push_back(token());
        for (size_t i = random() % 6; i-- > 0;) from.path.push_back(token());
        if (!from.output.empty() && random() % 2 == 0) from.path.push_back(from.output[0]);
      }
      if (random() % 3 == 0) {
        const TokenId first = token();
        params.logit_bias = {{first, 20 * unit() - 10}};
        if (first > 0) params.logit_bias.emplace_back(first - 1, 20 * unit() - 10);
      }
      if (random() % 4 == 0) from.forbidden = {token(), token()};
      if (random() % 6 == 0) {
        for (size_t i = 1 + random() % 40; i-- > 0;) from.allowed.push_back(token());
      }
      from.seed = random();
      from.position = static_cast<int64_t>(random() % 100000);
      from.choice = static_cast<int32_t>(random() % 3);
      if (random() % 4 == 0) from.top_logprobs = static_cast<int32_t>(random() % 21);
      if (!takes_best && !takes_few) continue;
      from.top_logprobs = -1;
      from.pad = random() % 8 == 0;
      if (takes_best) {
        params.temperature = 0;
      } else {
        const auto most = static_cast<uint64_t>(std::min<int64_t>(V, ops::kFewTokens));
        params.top_k = static_cast<int32_t>(1 + random() % most);
      }
    }
    check(cases);
    if (HasFatalFailure()) return;
  }
}

// The logits that heddle-tiny answered with (tests/golden/heddle_tiny), drawn from in many ways.
TEST_P(SampleRowsTest, DrawsTheSamplersTokenFromRecordedLogits) {
  const std::filesystem::path path =
      testing::repository_path("tests/golden/heddle_tiny/logits.safetensors");
  const auto file = checkpoint::SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const int64_t draws = on_cuda() ? 200 : HEDDLE_SANITIZED ? 1 : 8;
  for (const char* name : {"chat0.logits", "chat1.logits"}) {
    const TensorView recorded = file->view(name).value();
    for (const SamplingParams& params :
         {SamplingParams{.temperature = 0}, SamplingParams{},
          SamplingParams{.temperature = 0.7f, .top_p = 0.8f, .top_k = 20},
          SamplingParams{.top_p = 0.95f}, SamplingParams{.temperature = 1.5f, .min_p = 0.02f},
          SamplingParams{.top_k = 50, .presence_penalty = 1.5f, .repetition_penalty = 1.1f}}) {
      std::vector<RowCase> cases;
      for (int64_t draw = 0; draw < draws; ++draw) {
        for (int64_t row = 0; row < recorded.shape[0]; ++row) {
          RowCase& from = cases.emplace_back();
          from.logits.assign(recorded.row<float>(row),
                             recorded.row<float>(row) + recorded.shape[1]);
          from.params = params;
          from.output = {10, 300, 10};
          from.position = draw;
          from.top_logprobs = draw % 2 == 0 ? 20 : -1;
        }
      }
      check(cases);
      std::erase_if(cases, [](const RowCase& from) { return from.top_logprobs >= 0; });
      if (!cases.empty()) check(cases);
      if (HasFatalFailure()) return;
    }
  }
}

// Rows that leave more candidates than are ranked, and those that leave few in a sea of others.
TEST_P(SampleRowsTest, DrawsFromLargeVocabulariesOfEveryShape) {
  const int64_t V = on_cuda() ? kLargeVocabulary : HEDDLE_SANITIZED ? 5003 : 20011;
  const auto size = static_cast<size_t>(V);
  std::mt19937 random(3);
  std::vector<std::vector<float>> shapes;
  for (const float scale : {0.0f, 1e-6f, 0.1f, 1.0f, 3.0f, 30.0f}) {
    shapes.push_back(normal_row(random, V, scale));
  }
  shapes.emplace_back(size, -3.5f);
  shapes.emplace_back(size);  // two values, one row apart
  for (size_t i = 0; i < size; ++i) shapes.back()[i] = i % 2 == 0 ? 0.0f : -0.0f;
  shapes.emplace_back(size);  // two values in a random order
  for (float& x : shapes.back()) x = random() % 2 == 0 ? 1.0f : 0.75f;
  shapes.push_back(normal_row(random, V, 1));  // sure of one token
  shapes.back()[size / 3] = 25;
  shapes.push_back(normal_row(random, V, 1));  // beyond which nothing weighs anything
  shapes.back()[size - 1] = 90;
  shapes.emplace_back(size, -kPlusInfinity);  // three tokens
  for (const size_t i : {size_t{5}, size / 2, size - 1}) shapes.back()[i] = -100;
  shapes.emplace_back(size, -3e38f);
  shapes.back()[size / 2] = 3e38f;
  shapes.push_back(normal_row(random, V, 2));
  for (float& x : shapes.back()) x = std::round(x);

  const SamplingParams all_params[] = {
      {.temperature = 0},
      {},
      {.temperature = 3e38f},
      {.top_k = 1},
      {.top_k = 20},
      {.top_k = 3000},
      {.top_k = static_cast<int32_t>(V) - 1},
      {.temperature = 0.7f, .top_p = 0.8f, .top_k = 20},
      {.top_p = 0.95f},
      {.top_p = 0.5f},
      {.temperature = 4, .top_p = 0.999f, .top_k = 5000},
      {.top_p = 1e-6f},
      {.top_p = 0},
      {.top_p = 0, .top_k = 20, .min_p = 0.05f},
      {.top_k = 0},
      {.min_p = 0.05f},
      {.temperature = 0.3f, .min_p = 1e-4f},
      {.top_p = 0.9f, .top_k = 2500, .min_p = 0.9f},
  };
  for (const SamplingParams& params : all_params) {
    std::vector<RowCase> cases;
    for (const std::vector<float>& shape : shapes) {
      const auto position = static_cast<int64_t>(cases.size());
      cases.push_back({.logits = shape,
                       .params = params,
                       .seed = random(),
                       .position = position,
                       .top_logprobs = position % 2 == 0 ? 20 : -1});
    }
    check(cases);
    for (RowCase& from : cases) from.top_logprobs = -1;
    check(cases);
    if (HasFatalFailure()) return;
  }
  std::vector<RowCase> best;
  for (const std::vector<float>& shape : shapes) {
    best.push_back({.logits = shape, .params = {.temperature = 0}});
    check({best.back()});
  }
  check(best);
}

// Every token of an even distribution is drawn from its own share, across the borders of tiles.
TEST_P(SampleRowsTest, DrawsEveryTokenThatIsKeptAndNoOther) {
  constexpr int64_t kTokens = 600;
  std::vector<RowCase> cases;
  for (int64_t i = 0; i < 4000; ++i) {
    RowCase& from = cases.emplace_back();
    from.logits.assign(kTokens, 1.0f);
    from.params.top_k = 300;  // the lower ids
    from.position = i;
  }
  std::vector<int> times(kTokens, 0);
  for (const SampledRow& row : run(cases).rows) {
    ASSERT_TRUE(row.token >= 0 && row.token < 300) << row.token;
    ++times[static_cast<size_t>(row.token)];
  }
  EXPECT_GE(std::ranges::count_if(times, [](int n) { return n > 0; }), 298);
}

// The better half weighs exactly top_p: one token more stays, the first of the others.
TEST_P(SampleRowsTest, KeepsTheTokenBehindWhatWeighsExactlyTopP) {
  for (const size_t half : {size_t{64}, size_t{4096}}) {  // few enough to rank, and too many
    RowCase from;
    from.logits.assign(2 * half, 0.0f);
    std::fill_n(from.logits.begin() + static_cast<std::ptrdiff_t>(half / 2), half, 1.0f);
    from.params = {.temperature = 3e38f, .top_p = 0.5f};  // so that all weigh the same
    const auto kept = static_cast<double>(half + 1);
    while (ops::uniform_draw(from.seed, from.position, from.choice) * kept >= 1) ++from.position;
    check({from});
    EXPECT_EQ(run({from}).rows[0].token, 0);
  }
}

// The limit lies on the mass of the better tokens, or so near that an estimate of the total does
// not tell whether a token stays, or just far enough that it does.
TEST_P(SampleRowsTest, SumsWeightsWhereATokenIsNearTheLimit) {
  const int64_t V = on_cuda() ? kLargeVocabulary : 20011;  // tiles tell what few are
  constexpr int kBest = 16;                                // that stay, but for the last of them
  std::mt19937 random(5);
  for (const float scale : {0.1f, 1.0f, 4.0f}) {
    std::vector<RowCase> cases;
    for (const float nearness : {0.0f, 1e-6f, 5e-6f, 2e-5f, 1e-4f}) {
      for (int i = 0; i < (HEDDLE_SANITIZED ? 4 : 24); ++i) {
        RowCase& from = cases.emplace_back();
        from.logits = normal_row(random, V, scale);
        from.params = {.temperature = 0.8f, .top_k = 20};
        std::vector<float> sorted = from.logits;
        std::ranges::sort(sorted, std::greater<>());
        // The last of the best, made the last of the row, is drawn about as often as others.
        const auto last = std::ranges::find(from.logits, sorted[kBest - 1]);
        std::iter_swap(last, from.logits.end() - 1);
        double better = 0;
        double total = 0;
        for (size_t t = 0; t < sorted.size(); ++t) {
          const double weight = std::exp((double{sorted[t]} - double{sorted[0]}) / 0.8);
          if (t < kBest - 1) better += weight;
          total += weight;
        }
        from.params.top_p = static_cast<float>(better / total);
        from.params.top_p *= i % 2 == 0 ? 1 + nearness : 1 - nearness;
        from.position = i;
        from.seed = random();
      }
    }
    check(cases);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SampleRowsTest, PublishesWhatRowsSay) {
  RowCase published{.logits = {0, 3, 1},
                    .params = {.temperature = 0, .frequency_penalty = 0.5f},
                    .output = {1},
                    .publish = true};
  RowCase draft = published;
  draft.publish = false;
  RowCase failed = published;
  failed.logits = {0, kQuietNan, 1};
  RowCase pad = published;
  pad.pad = true;
  RowCase unpenalised = published;
  unpenalised.params = {.temperature = 0};
  const Drawn got = run({published, draft, failed, pad, unpenalised});
  EXPECT_THAT(got.drawn, ElementsAre(1, -7, -1, -7, 1));  // by slot: the last row's first
  EXPECT_EQ(got.rows[2].outcome, SampleOutcome::kNotANumber);
  EXPECT_EQ(got.rows[3].outcome, SampleOutcome::kSkipped);
  EXPECT_EQ(got.rows[3].token, -1);
  EXPECT_EQ(got.rows[4].outcome, SampleOutcome::kDrawn);
}

TEST_P(SampleRowsTest, ForbidsBelowTheMinimumLengthOnly) {
  RowCase from{.logits = {0, 3, 1}, .params = {.temperature = 0}, .forbidden = {1}};
  check({from});
  EXPECT_EQ(run({from}).rows[0].token, 2);
  from.allowed = {0, 1};
  EXPECT_EQ(run({from}).rows[0].token, 0);
  from.allowed = {1};
  EXPECT_EQ(run({from}).rows[0].outcome, SampleOutcome::kAllMasked);
}

TEST_P(SampleRowsTest, NamesWhatIsMissing) {
  ops::DeviceTensor logits = upload(Tensor({2, 5}, DType::kF32));
  const device::Buffer scratch = workspace(ops::sample_rows_workspace_bytes(2, 5));
  const Status small =
      ops::sample_rows(context(), {.logits = logits.view(), .workspace = scratch.bytes().first(8)});
  EXPECT_THAT(small.message(), HasSubstr("workspace"));
  const Status unplaced =
      ops::sample_rows(context(), {.logits = logits.view(), .workspace = scratch.bytes()});
  EXPECT_THAT(unplaced.message(), HasSubstr("rows, slots and sampled"));
  ops::DeviceTensor half = upload(Tensor({2, 5}, DType::kBf16));
  const Status dtype =
      ops::sample_rows(context(), {.logits = half.view(), .workspace = scratch.bytes()});
  EXPECT_THAT(dtype.message(), HasSubstr("logits"));
}

}  // namespace
}  // namespace heddle::sampling
