// SPDX-License-Identifier: Apache-2.0
// Steps that are captured and padded, those that decode whole and those with prompts in pieces
// (runner/program/batch_program.h): in exact mode their logits are those of kernels launched one by
// one, bit for bit, whatever the arena held.
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "integration/on_device.h"
#include "runner/program/forward_pass.h"
#include "support/dense_model.h"
#include "support/test_data.h"
#include "verify/session.h"

namespace heddle {
namespace {

using runner::LogitRows;
using verify::Session;

constexpr int64_t kUsedVocabulary = 311;  // below that of every model here

// A model on the GPU, in exact mode unless said otherwise.
struct CapturedModel {
  static CapturedModel create(const std::filesystem::path& model, const runner::Captures& captures,
                              int64_t num_sequences = 3, int64_t max_tokens = 1500,
                              bool exact = true) {
    auto device = runner::ComputeDevice::open_cuda(0, exact);
    EXPECT_TRUE(device.ok()) << device.status().to_string();
    auto pass = runner::ForwardPass::create({.model_dir = model,
                                             .dtype = DType::kBf16,  // exact: fp32 all the same
                                             .exact = exact,
                                             .captures = captures,
                                             .max_step_tokens = 700,
                                             .max_logit_rows = 700,
                                             .max_sequences = num_sequences},
                                            std::move(*device));
    EXPECT_TRUE(pass.ok()) << pass.status().to_string();
    auto session =
        Session::create(**pass, {.num_sequences = num_sequences, .max_tokens = max_tokens});
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    return {std::move(*pass), std::move(*session)};
  }

  std::vector<float> step(std::span<const Session::Feed> feeds, LogitRows rows) {
    const Status status = session.step(feeds, rows);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const TensorView logits = session.logits();
    return {logits.as<float>(), logits.as<float>() + logits.num_elements()};
  }

  // A prompt; then more of it beside a prompt of another sequence and few rows of a third one.
  std::vector<std::vector<float>> run(int64_t rows, int64_t seed, std::byte arena) {
    EXPECT_TRUE(pass->executor().poison(pass->stream(), arena).ok());
    for (int64_t sequence = 0; sequence < 3; ++sequence) {
      EXPECT_TRUE(session.reset(sequence).ok());
    }
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < rows + 3; ++i) {
      tokens.push_back(static_cast<TokenId>((i * 7919 + seed * 31) % kUsedVocabulary));
    }
    const std::span<const TokenId> all(tokens);
    const auto count = static_cast<size_t>(rows);
    const std::vector<Session::Feed> prompt{{0, all.first(count)}};
    const std::vector<Session::Feed> mixed{
        {0, all.first(1)}, {1, all.subspan(3, count)}, {2, all.first(3)}};
    const std::vector<Session::Feed> behind{{0, all.first(count)}};
    return {step(prompt, LogitRows::kAll), step(mixed, LogitRows::kSampled),
            step(behind, LogitRows::kSampled)};
  }

  // Two tokens of each sequence, then two steps of one token.
  std::vector<std::vector<float>> decode(int64_t num_sequences, int64_t seed, std::byte arena) {
    EXPECT_TRUE(pass->executor().poison(pass->stream(), arena).ok());
    std::vector<std::vector<float>> logits;
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < num_sequences + 3; ++i) {
      tokens.push_back(static_cast<TokenId>((i * 7919 + seed * 31) % kUsedVocabulary));
    }
    for (const int64_t step_of : {0, 1, 2}) {
      std::vector<Session::Feed> feeds;
      for (int64_t sequence = 0; sequence < num_sequences; ++sequence) {
        if (step_of == 0) {
          EXPECT_TRUE(session.reset(sequence).ok());
        }
        const auto first = static_cast<size_t>(sequence + step_of);
        feeds.push_back({sequence, std::span(tokens).subspan(first, step_of == 0 ? 2 : 1)});
      }
      logits.push_back(step(feeds, LogitRows::kAll));
    }
    return logits;
  }

  std::unique_ptr<runner::ForwardPass> pass;
  Session session;
};

class CapturedPiecesTest : public ::testing::TestWithParam<bool> {
 protected:
  static std::filesystem::path model() {
    return GetParam() ? testing::repository_path("models/heddle-tiny") : testing::dense_model();
  }
};

// `run` gives the same with each of them: seen for the first time, captured, and launched
// again.
template <typename Run>
void expect_equal(CapturedModel& plain, CapturedModel& captured, int64_t size, const Run& run) {
  for (const int64_t round : {0, 1, 2}) {
    SCOPED_TRACE(fmt::format("{}, round {}", size, round));
    const auto arena = round % 2 == 0 ? std::byte{0xff} : std::byte{0};
    const auto expected = run(plain, size + round, arena);
    ASSERT_EQ(run(captured, size + round, arena), expected);
  }
}

void expect_captures(const CapturedModel& plain, const CapturedModel& captured) {
  EXPECT_EQ(plain.pass->num_captured(), 0);
  EXPECT_GE(captured.pass->num_captured(), 8);
}

constexpr runner::Captures kNone{.decode = false, .max_prompt_rows = 0};

TEST_P(CapturedPiecesTest, GiveTheBitsOfSingleKernels) {
  HEDDLE_DEVICE_OR_SKIP(std::string_view("cuda"));
  CapturedModel plain = CapturedModel::create(model(), kNone);
  CapturedModel captured = CapturedModel::create(model(), {});
  // The longest first: tables that grow would make the captured steps be forgotten.
  for (const int64_t rows : {513, 512, 511, 508, 257, 100, 64, 33, 9, 5, 4, 3, 1}) {
    ASSERT_NO_FATAL_FAILURE(expect_equal(
        plain, captured, rows,
        [&](auto& model, int64_t seed, std::byte arena) { return model.run(rows, seed, arena); }));
  }
  expect_captures(plain, captured);
}

TEST_P(CapturedPiecesTest, DecodeAsSingleKernelsDoAtAnyNumberOfSequences) {
  HEDDLE_DEVICE_OR_SKIP(std::string_view("cuda"));
  constexpr int64_t kSequences = 255, kTokens = 16;
  CapturedModel plain = CapturedModel::create(model(), kNone, kSequences, kTokens);
  CapturedModel captured = CapturedModel::create(model(), {}, kSequences, kTokens);
  for (const int64_t num_sequences : {255, 9, 3, 1}) {
    ASSERT_NO_FATAL_FAILURE(expect_equal(plain, captured, num_sequences,
                                         [&](auto& model, int64_t seed, std::byte arena) {
                                           return model.decode(num_sequences, seed, arena);
                                         }));
  }
  expect_captures(plain, captured);
}

// Steps that run eagerly, are captured and are launched again, in pieces and whole, with padding
// and without: each node is proved to write its outputs, and captured ones to stay where they were.
TEST_P(CapturedPiecesTest, PassTheChecksOfDebugModeAndGiveTheSameBits) {
  HEDDLE_DEVICE_OR_SKIP(std::string_view("cuda"));
  CapturedModel plain = CapturedModel::create(model(), kNone, 9);
  CapturedModel debugged = CapturedModel::create(model(), {.debug = true}, 9);
  for (const int64_t rows : {513, 100, 33, 5, 1}) {
    ASSERT_NO_FATAL_FAILURE(expect_equal(
        plain, debugged, rows,
        [&](auto& model, int64_t seed, std::byte arena) { return model.run(rows, seed, arena); }));
  }
  EXPECT_GE(debugged.pass->num_captured(), 4);
  for (const int64_t num_sequences : {9, 3, 1}) {
    ASSERT_NO_FATAL_FAILURE(expect_equal(plain, debugged, num_sequences,
                                         [&](auto& model, int64_t seed, std::byte arena) {
                                           return model.decode(num_sequences, seed, arena);
                                         }));
  }
  EXPECT_GE(debugged.pass->num_captured(), 4);
}

// Chains (graph/chains.h) are launched elsewhere than in exact mode only. Bits may differ there, so
// that results are not compared: step() fails where a check does.
TEST_P(CapturedPiecesTest, PassTheChecksOfDebugModeInChainsToo) {
  HEDDLE_DEVICE_OR_SKIP(std::string_view("cuda"));
  constexpr int64_t kSequences = 9, kTokens = 700;
  CapturedModel debugged =
      CapturedModel::create(model(), {.debug = true}, kSequences, kTokens, /*exact=*/false);
  for (const int64_t round : {0, 1, 2}) {
    for (const int64_t rows : {100, 33, 1}) debugged.run(rows, round, std::byte{0xff});
    for (const int64_t sequences : {9, 3, 1}) debugged.decode(sequences, round, std::byte{0xff});
  }
  EXPECT_GE(debugged.pass->num_captured(), 4);
}

INSTANTIATE_TEST_SUITE_P(Cuda, CapturedPiecesTest, ::testing::Bool(),
                         [](const auto& hybrid) { return hybrid.param ? "Hybrid" : "Dense"; });

}  // namespace
}  // namespace heddle
