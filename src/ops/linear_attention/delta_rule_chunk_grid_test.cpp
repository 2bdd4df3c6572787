// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/delta_rule_chunk_grid.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/linear_attention/gated_delta_rule_sm90.h"
#include "ops/linear_attention/gated_delta_rule_sm90_fixture.h"
#include "support/tensors.h"

namespace heddle::ops::chunked {

namespace {

constexpr auto kMinRows = static_cast<int32_t>(kSm90MinRows);

// The ends of the chunks of a span.
std::vector<int32_t> ends_of(const Span& span) {
  std::vector<int32_t> ends;
  for (int32_t c = 0; c < span.num_chunks(); ++c) ends.push_back(span.chunk(c).end);
  return ends;
}

TEST(DeltaRuleChunkGridTest, ChunksEndAtMultiplesOfTheirLengthAndAtTheEnd) {
  for (const int32_t begin : {0, 1, 63, 64, 65, 127, 128, 200, 262'143}) {
    for (int32_t rows = 1; rows <= 260; ++rows) {
      SCOPED_TRACE(fmt::format("{} rows after {}", rows, begin));
      const Span span{.begin = begin, .end = begin + rows};
      std::vector<int32_t> want;
      for (int32_t end = begin + 1; end <= span.end; ++end) {
        if (end % kTokens == 0 || end == span.end) want.push_back(end);
      }
      EXPECT_EQ(ends_of(span), want);
      int32_t next = begin;
      for (int32_t c = 0; c < span.num_chunks(); ++c) {
        const Span chunk = span.chunk(c);
        EXPECT_EQ(chunk.begin, next);
        EXPECT_GT(chunk.size(), 0);
        EXPECT_LE(chunk.size(), kTokens);
        next = chunk.end;
      }
      EXPECT_EQ(next, span.end);
    }
  }
}

TEST(DeltaRuleChunkGridTest, AnEmptySpanHasNoChunks) {
  for (const int32_t at : {0, 1, 64, 70}) {
    EXPECT_EQ((Span{.begin = at, .end = at}).num_chunks(), 0) << at;
  }
}

TEST(DeltaRuleChunkGridTest, AStepThatEndsAtAMultipleAddsNoChunk) {
  for (const int32_t begin : {0, 5, 64, 100}) {
    const Span whole{.begin = begin, .end = 1000};
    for (int32_t cut = begin + 1; cut < whole.end; ++cut) {
      SCOPED_TRACE(fmt::format("from {}, cut at {}", begin, cut));
      std::vector<int32_t> ends = ends_of({.begin = begin, .end = cut});
      const std::vector<int32_t> after = ends_of({.begin = cut, .end = whole.end});
      ends.insert(ends.end(), after.begin(), after.end());
      EXPECT_EQ(ends == ends_of(whole), cut % kTokens == 0);
      EXPECT_EQ(static_cast<int32_t>(ends.size()), whole.num_chunks() + (cut % kTokens != 0));
    }
  }
}

TEST(DeltaRuleChunkGridTest, NoStepHasMoreChunksThanAreAllowedFor) {
  for (int32_t context = 0; context < kTokens; ++context) {
    for (int32_t rows = kMinRows; rows <= 600; ++rows) {
      EXPECT_LE((Span{.begin = context, .end = context + rows}).num_chunks(), most_chunks(rows));
    }
  }
  EXPECT_EQ((Span{.begin = 63, .end = 63 + 66}).num_chunks(), most_chunks(66));
  std::mt19937 random(1);
  std::uniform_int_distribution<int32_t> context(0, 1000), rows(kMinRows, 300), num_cuts(0, 9);
  for (int step = 0; step < 2000; ++step) {
    int64_t num_rows = 0, num_chunks = 0, num_snapshots = 0;
    for (int sequence = 0; sequence < 8; ++sequence) {
      const int32_t begin = context(random);
      const int32_t end = begin + rows(random);
      int32_t from = begin;
      for (int32_t cuts = num_cuts(random); cuts > 0; --cuts) {
        const int32_t to = std::uniform_int_distribution<int32_t>(from, end)(random);
        num_chunks += Span{.begin = from, .end = to}.num_chunks();
        ++num_snapshots;
        from = to;
      }
      num_chunks += Span{.begin = from, .end = end}.num_chunks();
      num_rows += end - begin;
    }
    EXPECT_LE(num_chunks, most_chunks(num_rows) + num_snapshots) << "step " << step;
  }
}

// Steps that are computed whole, and once more in two.
class HopperChunkGridTest : public HopperDeltaRuleTest {
 protected:
  // Runs the step of make() in two, the first with cuts[b] rows of sequence b, without snapshots:
  // y and the states after it are left as run() leaves them.
  void run_in_two(const std::vector<int32_t>& cuts) {
    const Step whole = step_;
    const std::vector<int32_t> starts = query_start_;
    const int64_t num_rows = T_;
    Tensor qkv = std::move(qkv_), a = std::move(a_), b = std::move(b_), states;
    Tensor y({num_rows, whole.Nv * kDim}, DType::kBf16);
    for (const bool is_second : {false, true}) {
      step_.snapshots.clear();
      query_start_ = {0};
      std::vector<int64_t> rows;  // of the whole step
      for (size_t q = 0; q < cuts.size(); ++q) {
        const int32_t first = is_second ? cuts[q] : 0;
        const int32_t end = is_second ? whole.rows[q] : cuts[q];
        step_.rows[q] = end - first;
        step_.context_lens[q] = whole.context_lens[q] + first;
        query_start_.push_back(query_start_.back() + end - first);
        for (int32_t row = first; row < end; ++row) rows.push_back(starts[q] + row);
      }
      T_ = query_start_.back();
      qkv_ = gathered(qkv, rows);
      a_ = gathered(a, rows);
      b_ = gathered(b, rows);
      run();
      if (HasFatalFailure()) return;
      for (size_t i = 0; i < rows.size(); ++i) {
        std::memcpy(y.view().row<Bf16>(rows[i]), y_.view().row<Bf16>(static_cast<int64_t>(i)),
                    static_cast<size_t>(bytes_of(y.dtype(), y.shape()[1])));
      }
      if (!is_second) states = std::exchange(states_, std::move(states_after_));
    }
    y_ = std::move(y);
    states_between_ = std::exchange(states_, std::move(states));
    qkv_ = std::move(qkv);
    a_ = std::move(a);
    b_ = std::move(b);
    step_ = whole;
    query_start_ = starts;
    T_ = num_rows;
  }

  // Runs the step of make(), then the same in two, and expects the same bits of both.
  void expect_same_bits_in_two(const std::vector<int32_t>& cuts) {
    run();
    if (HasFatalFailure()) return;
    const Tensor y = std::move(y_), states = std::move(states_after_);
    run_in_two(cuts);
    if (HasFatalFailure()) return;
    EXPECT_TRUE(testing::same_bits(y_.view(), y.view()));
    EXPECT_TRUE(testing::same_bits(states_after_.view(), states.view()));
  }

  Tensor states_between_;  // the two steps of run_in_two()

 private:
  static Tensor gathered(const Tensor& all, const std::vector<int64_t>& rows) {
    const int64_t width = all.shape()[1];
    const auto row_bytes = static_cast<size_t>(bytes_of(all.dtype(), width));
    Tensor some({std::ssize(rows), width}, all.dtype());
    const auto* from = static_cast<const std::byte*>(all.view().data);
    auto* to = static_cast<std::byte*>(some.view().data);
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(to + i * row_bytes, from + static_cast<size_t>(rows[i]) * row_bytes, row_bytes);
    }
    return some;
  }
};

INSTANTIATE_TEST_SUITE_P(Cuda, HopperChunkGridTest, ::testing::Values(device::DeviceKind::kCuda));

// The fewest rows of this form that take a sequence to a multiple.
int32_t cut_after(int32_t context_len) {
  return kMinRows + (kTokens - (context_len + kMinRows) % kTokens) % kTokens;
}

TEST_P(HopperChunkGridTest, TwoStepsThatMeetAtAMultipleGiveTheBitsOfOne) {
  for (const int32_t context_len : {0, 1, 63, 64, 65, 127, 200}) {
    for (const int32_t rows_after : {64, 65, 127, 257}) {
      const int32_t cut = cut_after(context_len);
      SCOPED_TRACE(fmt::format("{} and {} rows after {}", cut, rows_after, context_len));
      make({.Nk = 2, .Nv = 4, .rows = {cut + rows_after}, .context_lens = {context_len}}, 21);
      expect_same_bits_in_two({cut});
      expect_near_reference(kRounding);
    }
  }
}

// Of few heads a block walks one half, of many both; their chunks are prepared before.
TEST_P(HopperChunkGridTest, TwoStepsOfSeveralSequencesGiveTheBitsOfOne) {
  for (const int64_t num_key_heads : {1, 16}) {
    SCOPED_TRACE(num_key_heads);
    make({.Nk = num_key_heads,
          .Nv = 2 * num_key_heads,
          .rows = {257, 200, 300, 250, 129},
          .context_lens = {0, 1, 63, 200, 64}},
         22);
    expect_same_bits_in_two({128, 127, 65, 120, 64});
    expect_near_reference(kRounding);
  }
}

TEST_P(HopperChunkGridTest, TwoStepsThatMeetElsewhereStayNearTheReference) {
  for (const int32_t context_len : {0, 9}) {
    for (const int32_t cut : {65, 100, 127, 150}) {
      SCOPED_TRACE(fmt::format("257 rows after {}, {} of them first", context_len, cut));
      make({.Nk = 2, .Nv = 4, .rows = {257}, .context_lens = {context_len}}, 23);
      run_in_two({cut});
      expect_near_reference(kRounding);
    }
  }
}

// Chunks behind a snapshot are those of a sequence that goes on from it.
TEST_P(HopperChunkGridTest, TwoStepsThatMeetAtASnapshotGiveTheBitsOfOne) {
  for (const int32_t context_len : {0, 9}) {
    for (const int32_t cut : {64, 65, 119, 127, 150}) {
      SCOPED_TRACE(fmt::format("257 rows after {}, a snapshot after {}", context_len, cut));
      make({.Nk = 2,
            .Nv = 4,
            .rows = {257},
            .context_lens = {context_len},
            .snapshots = {{.sequence = 0, .num_tokens = cut, .slot = 0}}},
           24);
      expect_same_bits_in_two({cut});
      const auto state_of = [this](const Tensor& states, int64_t slot) {
        return TensorView(states.view().row<float>(slot), DType::kF32,
                          Shape{step_.Nv * kDim * kDim});
      };
      run();
      EXPECT_TRUE(testing::same_bits(state_of(snapshots_after_, 0), state_of(states_between_, 1)));
    }
  }
}

TEST_P(HopperChunkGridTest, ASnapshotAtAMultipleChangesNoBits) {
  make({.Nk = 2, .Nv = 4, .rows = {257}, .context_lens = {9}}, 25);
  run();
  const Tensor y = std::move(y_), states = std::move(states_after_);
  for (const int32_t multiple : {64, 128, 192, 256}) {
    SCOPED_TRACE(multiple);
    step_.snapshots = {{.sequence = 0, .num_tokens = multiple - 9, .slot = 0}};
    run();
    EXPECT_TRUE(testing::same_bits(y_.view(), y.view()));
    EXPECT_TRUE(testing::same_bits(states_after_.view(), states.view()));
  }
}

TEST_P(HopperChunkGridTest, AStepOfTheMostChunksFits) {
  constexpr size_t kSequences = 20;
  make({.Nk = 2,
        .Nv = 4,
        .rows = std::vector<int32_t>(kSequences, 66),
        .context_lens = std::vector<int32_t>(kSequences, 63)},
       26);
  run();
  expect_near_reference(kRounding);
}

}  // namespace

}  // namespace heddle::ops::chunked
