// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/paged_attention.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "ops/attention/paged_attention_reference.h"
#include "ops/simd/targets.h"

namespace heddle::ops {

namespace {

struct Geometry {
  int64_t Nq = 4;
  int64_t Nkv = 2;
  int64_t D = 64;
  int64_t S = 16;
  DType dtype = DType::kF32;
  int64_t window = 0;
  bool sinks = false;
  int64_t Dv = 0;       // 0: D
  bool latent = false;  // values are the first Dv channels of the keys

  [[nodiscard]] int64_t value_dim() const { return Dv > 0 ? Dv : D; }
};

struct SequencePart {
  int sequence = 0;  // index into the conversation
  int64_t first = 0;
  int64_t num_rows = 0;
  int64_t kv_len = 0;  // keys and values of the tokens before are there: those given are NaN
};

constexpr float kCanary = 12345.0f;

// A number that depends on its coordinates only, so that any order of computing sees the same
// inputs.
float noise(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u + c * 0x94d049bb133111ebu + 1;
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 31;
  return static_cast<float>(static_cast<double>(x >> 11) * 0x1p-52 - 1.0) * 1.7f;
}

// Several sequences with pages of their own in a pool, advanced step by step in any segmentation.
// Before each step, what lies before the windows of its rows is poisoned, and pages that hold
// nothing else are given away.
class Conversation {
 public:
  Conversation(const Geometry& geometry, std::vector<int64_t> lengths, uint64_t page_seed = 1)
      : geometry_(geometry), lengths_(std::move(lengths)) {
    const int64_t longest = *std::max_element(lengths_.begin(), lengths_.end());
    width_ = (longest + geometry.S - 1) / geometry.S;
    const int64_t num_owned = width_ * static_cast<int64_t>(lengths_.size());
    num_pages_ = num_owned + 3;  // the sink and two pages of somebody else
    k_pages_ = Tensor({num_pages_, geometry.S, geometry.Nkv, geometry.D}, geometry.dtype);
    v_pages_ = Tensor({num_pages_, geometry.S, geometry.Nkv, geometry.value_dim()}, geometry.dtype);
    for (Tensor* pool : {&k_pages_, &v_pages_}) {
      std::memset(pool->view().data, 0xff,
                  static_cast<size_t>(pool->num_bytes()));  // NaN everywhere
    }
    std::vector<int32_t> ids(static_cast<size_t>(num_pages_ - 1));
    std::iota(ids.begin(), ids.end(), 1);
    std::mt19937_64 random(page_seed);
    std::shuffle(ids.begin(), ids.end(), random);
    table_.assign(ids.begin(), ids.begin() + num_owned);
    sinks_ = Tensor({geometry.Nq}, DType::kF32);
    for (int64_t h = 0; h < geometry.Nq; ++h) {
      sinks_.span<float>()[static_cast<size_t>(h)] = noise(3, static_cast<uint64_t>(h), 1);
    }
    foreign_ = {0, ids[static_cast<size_t>(num_owned)], ids[static_cast<size_t>(num_owned) + 1]};
    for (const int64_t length : lengths_) {
      outputs_.emplace_back(static_cast<size_t>(length * geometry.Nq * geometry.value_dim()),
                            kCanary);
    }
  }

  // Runs one step and keeps its rows; strided tensors with canaries around them.
  void step(const std::vector<SequencePart>& parts, int num_threads = 1) {
    const Geometry& g = geometry_;
    const int64_t query_width = g.Nq * g.D, k_width = g.Nkv * g.D;
    const int64_t v_width = g.Nkv * g.value_dim(), output_width = g.Nq * g.value_dim();
    int64_t T = 0;
    query_start_ = {0};
    context_lens_.clear();
    kv_lens_.clear();
    step_table_.clear();
    for (const SequencePart& part : parts) {
      T += part.num_rows;
      query_start_.push_back(static_cast<int32_t>(T));
      context_lens_.push_back(static_cast<int32_t>(part.first));
      kv_lens_.push_back(static_cast<int32_t>(std::max(part.first, part.kv_len)));
      const auto row = table_.begin() + part.sequence * width_;
      step_table_.insert(step_table_.end(), row, row + width_);
      poison_before_window(part);
    }
    const int64_t qkv_width = query_width + k_width + v_width;
    Tensor qkv({T, qkv_width + 5}, DType::kF32);
    Tensor y({T, output_width + 3}, DType::kF32);
    std::ranges::fill(y.span<float>(), kCanary);
    for (size_t p = 0; p < parts.size(); ++p) {
      for (int64_t i = 0; i < parts[p].num_rows; ++i) {
        float* to = qkv.view().row<float>(query_start_[p] + i);
        for (int64_t c = 0; c < qkv_width; ++c) {
          to[c] = noise(static_cast<uint64_t>(parts[p].sequence) + 7,
                        static_cast<uint64_t>(parts[p].first + i), static_cast<uint64_t>(c));
        }
        if (parts[p].first + i < parts[p].kv_len) {
          std::fill(to + query_width, to + qkv_width, std::numeric_limits<float>::quiet_NaN());
        }
      }
    }
    device::ThreadPool pool(num_threads);
    CpuContext context(pool, true);
    ForwardContext forward;
    forward.query_start = query_start_;
    forward.context_lens = context_lens_;
    const bool replays =
        std::ranges::any_of(parts, [](const SequencePart& part) { return part.kv_len > 0; });
    if (replays) forward.kv_lens = kv_lens_;
    forward.page_table = step_table_;
    forward.page_table_width = width_;
    forward.page_size = static_cast<int32_t>(g.S);
    std::vector<std::byte> workspace(
        static_cast<size_t>(paged_attention_workspace_bytes(context, T, g.D, g.value_dim())),
        std::byte{0xff});
    float* base = qkv.view().as<float>();
    const TensorView v{base + query_width + k_width, DType::kF32, {T, v_width}, qkv_width + 5};
    const PagedAttentionArgs args{
        .q = {base, DType::kF32, {T, query_width}, qkv_width + 5},
        .k = {base + query_width, DType::kF32, {T, k_width}, qkv_width + 5},
        .v = g.latent ? TensorView() : v,
        .y = {y.view().data, DType::kF32, {T, output_width}, output_width + 3},
        .num_kv_heads = g.Nkv,
        .head_dim = g.D,
        .value_dim = g.Dv,
        .scale = 1.0f / std::sqrt(static_cast<float>(g.D)),
        .window = g.window,
        .sinks = g.sinks ? TensorView(sinks_.view()) : TensorView(),
        .kv = {k_pages_.view(), g.latent ? MutableTensorView() : v_pages_.view()},
        .forward = &forward,
        .workspace = workspace};
    const Status status = paged_attention(context, args);
    ASSERT_TRUE(status.ok()) << status.to_string();
    if (check_reference_) compare(args);
    for (int64_t row = 0; row < T; ++row) {
      for (int64_t c = output_width; c < output_width + 3; ++c) {
        ASSERT_EQ(y.view().row<float>(row)[c], kCanary) << "beyond row " << row;
      }
    }
    for (size_t p = 0; p < parts.size(); ++p) {
      auto& output = outputs_[static_cast<size_t>(parts[p].sequence)];
      for (int64_t i = 0; i < parts[p].num_rows; ++i) {
        std::memcpy(output.data() + (parts[p].first + i) * output_width,
                    y.view().row<float>(query_start_[p] + i),
                    static_cast<size_t>(output_width) * sizeof(float));
      }
    }
  }

  // Every sequence alone, in one step.
  void run_whole() {
    for (size_t b = 0; b < lengths_.size(); ++b) {
      step({{.sequence = static_cast<int>(b), .first = 0, .num_rows = lengths_[b]}});
    }
  }

  // Sequence `to` reads the first `count` pages of sequence `from`.
  void share_pages(size_t from, size_t to, int64_t count) {
    const auto row = [&](size_t b) { return table_.begin() + static_cast<int64_t>(b) * width_; };
    std::copy_n(row(from), count, row(to));
  }

  // The bytes of a sequence's first `count` pages.
  std::vector<uint8_t> page_bytes(size_t sequence, int64_t count) {
    std::vector<uint8_t> all;
    for (const Tensor* pool : {&k_pages_, &v_pages_}) {
      const int64_t bytes = pool->num_bytes() / num_pages_;
      for (int64_t i = 0; i < count; ++i) {
        const int32_t page =
            table_[sequence * static_cast<size_t>(width_) + static_cast<size_t>(i)];
        const auto* from = static_cast<const uint8_t*>(pool->view().data) + page * bytes;
        all.insert(all.end(), from, from + bytes);
      }
    }
    return all;
  }

  void set_sinks(float value) { std::ranges::fill(sinks_.span<float>(), value); }

  void check_against_reference(bool on) { check_reference_ = on; }

  [[nodiscard]] const std::vector<std::vector<float>>& outputs() const { return outputs_; }

  // Pages of nobody in the conversation are as they were.
  void expect_foreign_pages_untouched() {
    for (const Tensor* pool : {&k_pages_, &v_pages_}) {
      const int64_t page_bytes = pool->num_bytes() / num_pages_;
      for (const int32_t page : foreign_) {
        const auto* bytes = static_cast<const uint8_t*>(pool->view().data) + page * page_bytes;
        EXPECT_TRUE(std::all_of(bytes, bytes + page_bytes, [](uint8_t b) { return b == 0xff; }))
            << "page " << page;
      }
    }
  }

 private:
  // Tokens that no row of `part` sees become NaN; whole pages of them are replaced in the step's
  // table by a page of somebody else.
  void poison_before_window(const SequencePart& part) {
    const Geometry& g = geometry_;
    if (g.window == 0) return;
    const int64_t dead = std::max<int64_t>(0, part.first - g.window + 1);
    int32_t* pages = &*(step_table_.end() - width_);
    for (Tensor* pool : {&k_pages_, &v_pages_}) {
      const int64_t token_bytes = pool->num_bytes() / (num_pages_ * g.S);
      for (int64_t token = 0; token < dead; ++token) {
        const int64_t at = pages[token / g.S] * g.S + token % g.S;
        std::memset(static_cast<std::byte*>(pool->view().data) + at * token_bytes, 0xff,
                    static_cast<size_t>(token_bytes));
      }
    }
    for (int64_t page = 0; page < dead / g.S; ++page) pages[page] = foreign_[page % 3];
  }

  static void compare(const PagedAttentionArgs& args) {
    const std::vector<double> expected = paged_attention_reference(args);
    double error = 0, norm = 0;
    const int64_t width = args.y.shape[1];
    for (int64_t i = 0; i < static_cast<int64_t>(expected.size()); ++i) {
      const double truth = expected[static_cast<size_t>(i)];
      const double value = static_cast<double>(args.y.row<float>(i / width)[i % width]);
      error += (value - truth) * (value - truth);
      norm += truth * truth;
    }
    EXPECT_LE(std::sqrt(error), 2e-6 * std::sqrt(norm));
  }

  Geometry geometry_;
  std::vector<int64_t> lengths_;
  int64_t width_ = 0;
  int64_t num_pages_ = 0;
  Tensor k_pages_, v_pages_, sinks_;
  std::vector<int32_t> table_;
  std::vector<int32_t> foreign_;
  std::vector<std::vector<float>> outputs_;
  std::vector<int32_t> query_start_, context_lens_, kv_lens_, step_table_;
  bool check_reference_ = false;
};

// Feeds every sequence in random pieces, prefill and decode mixed.
void run_in_pieces(Conversation& conversation, const std::vector<int64_t>& lengths, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> done(lengths.size());
  while (done != lengths) {
    std::vector<SequencePart> parts;
    for (size_t b = 0; b < lengths.size(); ++b) {
      const int64_t left = lengths[b] - done[b];
      if (left == 0 || random() % 4 == 0) continue;
      const int64_t most = random() % 2 == 0 ? 1 : 70;
      const int64_t rows = std::min<int64_t>(left, 1 + static_cast<int64_t>(random() % 70) % most);
      parts.push_back({.sequence = static_cast<int>(b), .first = done[b], .num_rows = rows});
      done[b] += rows;
    }
    if (!parts.empty()) conversation.step(parts, 1 + static_cast<int>(random() % 3));
  }
}

TEST(PagedAttentionTest, MatchesTheReferenceForAnyGeometry) {
  const Geometry geometries[] = {
      {.Nq = 1, .Nkv = 1, .D = 7, .S = 1},   {.Nq = 4, .Nkv = 2, .D = 128, .S = 16},
      {.Nq = 3, .Nkv = 3, .D = 80, .S = 8},  {.Nq = 6, .Nkv = 2, .D = 96, .S = 128},
      {.Nq = 16, .Nkv = 1, .D = 32, .S = 4}, {.Nq = 71, .Nkv = 1, .D = 16, .S = 16},
      {.Nq = 8, .Nkv = 1, .D = 256, .S = 64}};
  for (Geometry geometry : geometries) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
      geometry.dtype = dtype;
      SCOPED_TRACE(fmt::format("Nq {} Nkv {} D {} S {} {}", geometry.Nq, geometry.Nkv, geometry.D,
                               geometry.S, to_string(dtype)));
      Conversation conversation(geometry, {141, 1, 17});
      conversation.check_against_reference(true);
      conversation.step({{.sequence = 0, .first = 0, .num_rows = 137},
                         {.sequence = 2, .first = 0, .num_rows = 16}});
      conversation.step({{.sequence = 1, .first = 0, .num_rows = 1},
                         {.sequence = 0, .first = 137, .num_rows = 3},
                         {.sequence = 2, .first = 16, .num_rows = 1}});
      conversation.step({{.sequence = 0, .first = 140, .num_rows = 1}});
      conversation.expect_foreign_pages_untouched();
    }
  }
}

// Values of another width than keys, and values that are the first channels of the keys; decode
// reads them in place or, where a width is ragged, from copies.
TEST(PagedAttentionTest, MatchesTheReferenceForLatentAndUnequalWidths) {
  const Geometry geometries[] = {
      {.Nq = 4, .Nkv = 1, .D = 40, .S = 16, .Dv = 32, .latent = true},
      {.Nq = 16, .Nkv = 1, .D = 80, .S = 8, .Dv = 64, .latent = true},
      {.Nq = 3, .Nkv = 1, .D = 7, .S = 1, .Dv = 5, .latent = true},
      {.Nq = 6, .Nkv = 2, .D = 48, .S = 4, .window = 20, .sinks = true, .Dv = 16, .latent = true},
      {.Nq = 2, .Nkv = 1, .D = 16, .S = 16, .latent = true},
      {.Nq = 8, .Nkv = 1, .D = 160, .S = 64, .Dv = 144, .latent = true},
      {.Nq = 6, .Nkv = 2, .D = 24, .S = 16, .Dv = 16},
      {.Nq = 4, .Nkv = 4, .D = 32, .S = 16, .Dv = 80}};
  const std::vector<int64_t> lengths{141, 1, 17};
  for (Geometry geometry : geometries) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
      geometry.dtype = dtype;
      SCOPED_TRACE(fmt::format("Nq {} Nkv {} D {} Dv {} S {} {}", geometry.Nq, geometry.Nkv,
                               geometry.D, geometry.Dv, geometry.S, to_string(dtype)));
      Conversation whole(geometry, lengths);
      whole.check_against_reference(true);
      whole.run_whole();
      whole.expect_foreign_pages_untouched();
      geometry.S = 2;
      Conversation pieces(geometry, lengths, 99);
      run_in_pieces(pieces, lengths, static_cast<uint64_t>(geometry.D));
      for (int64_t t = 130; t < 141; ++t) pieces.step({{.first = t, .num_rows = 1}}, 2);
      EXPECT_EQ(whole.outputs(), pieces.outputs());
      pieces.expect_foreign_pages_untouched();
    }
  }
}

TEST(PagedAttentionTest, MatchesTheReferenceWithWindowsAndSinks) {
  const Geometry geometries[] = {{.Nq = 1, .Nkv = 1, .D = 7, .S = 1},
                                 {.Nq = 3, .Nkv = 3, .D = 80, .S = 8, .dtype = DType::kBf16},
                                 {.Nq = 6, .Nkv = 2, .D = 96, .S = 128},
                                 {.Nq = 16, .Nkv = 1, .D = 32, .S = 4, .dtype = DType::kF16},
                                 {.Nq = 71, .Nkv = 1, .D = 16, .S = 16},
                                 {.Nq = 8, .Nkv = 1, .D = 64, .S = 64, .sinks = true}};
  for (Geometry geometry : geometries) {
    for (const int64_t window : {1, 17, 128, 135}) {
      geometry.window = window;
      geometry.sinks = !geometry.sinks;
      SCOPED_TRACE(fmt::format("Nq {} Nkv {} D {} S {} window {} sinks {}", geometry.Nq,
                               geometry.Nkv, geometry.D, geometry.S, window, geometry.sinks));
      Conversation conversation(geometry, {271, 1, 17});
      conversation.check_against_reference(true);
      conversation.step({{.sequence = 0, .first = 0, .num_rows = 137},
                         {.sequence = 2, .first = 0, .num_rows = 16}});
      conversation.step({{.sequence = 1, .first = 0, .num_rows = 1},
                         {.sequence = 0, .first = 137, .num_rows = 130},
                         {.sequence = 2, .first = 16, .num_rows = 1}});
      for (int64_t t = 267; t < 271; ++t) conversation.step({{.first = t, .num_rows = 1}});
      conversation.expect_foreign_pages_untouched();
    }
  }
}

TEST(PagedAttentionTest, AWindowAsLongAsTheSequenceAndASinkWithoutWeightChangeNoBit) {
  const Geometry plain{.Nq = 6, .Nkv = 2, .D = 40, .S = 16};
  Conversation all(plain, {300});
  all.run_whole();
  Geometry geometry = plain;
  geometry.window = 300;
  geometry.sinks = true;
  Conversation windowed(geometry, {300});
  windowed.set_sinks(-1e30f);
  windowed.run_whole();
  EXPECT_EQ(all.outputs(), windowed.outputs());
}

TEST(PagedAttentionTest, GivesTheSameBitsForAnyChunkingBatchThreadsAndPages) {
  const std::vector<int64_t> lengths{300, 33, 129};
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const int64_t D : {64, 24}) {
      const Geometry plain{.Nq = 6, .Nkv = 2, .D = D, .S = 16, .dtype = dtype};
      Conversation whole(plain, lengths);
      whole.run_whole();
      for (const int64_t S : {1, 16, 128}) {
        SCOPED_TRACE(fmt::format("{} D {} S {}", to_string(dtype), D, S));
        Geometry geometry = plain;
        geometry.S = S;
        Conversation pieces(geometry, lengths, 99);
        run_in_pieces(pieces, lengths, static_cast<uint64_t>(S + D));
        EXPECT_EQ(whole.outputs(), pieces.outputs());
        pieces.expect_foreign_pages_untouched();
      }
    }
  }
}

TEST(PagedAttentionTest, ReplaysRowsOnKeysAndValuesThatAreThereWithoutWritingThem) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(fmt::format("{} {} threads", to_string(dtype), threads));
      const Geometry geometry{.Nq = 6, .Nkv = 2, .D = 24, .S = 16, .dtype = dtype};
      Conversation whole(geometry, {120, 9});
      whole.run_whole();
      Conversation replayed(geometry, {120, 9});
      replayed.step({{.sequence = 0, .first = 0, .num_rows = 100}});
      const std::vector<uint8_t> before = replayed.page_bytes(0, 6);
      // Rows 33 to 119 again, those before 96 on what is there; company that writes all of its own.
      replayed.step({{.sequence = 1, .first = 0, .num_rows = 9},
                     {.sequence = 0, .first = 33, .num_rows = 87, .kv_len = 96}},
                    threads);
      EXPECT_EQ(replayed.page_bytes(0, 6), before);
      // All rows of a step lie before kv_len.
      replayed.step({{.sequence = 0, .first = 40, .num_rows = 8, .kv_len = 120}}, threads);
      EXPECT_EQ(replayed.page_bytes(0, 6), before);
      EXPECT_EQ(replayed.outputs(), whole.outputs());
      replayed.expect_foreign_pages_untouched();
    }
  }
}

TEST(PagedAttentionTest, LeavesPagesSharedWithAnotherSequenceAsTheyAre) {
  const Geometry geometry{.Nq = 4, .Nkv = 2, .D = 32, .S = 16};
  Conversation conversation(geometry, {80, 80});
  conversation.step({{.sequence = 0, .first = 0, .num_rows = 80}});
  conversation.share_pages(0, 1, 4);
  const std::vector<uint8_t> before = conversation.page_bytes(0, 5);
  conversation.check_against_reference(true);  // of what the pages hold
  conversation.step({{.sequence = 1, .first = 20, .num_rows = 60, .kv_len = 64}}, 2);
  EXPECT_EQ(conversation.page_bytes(0, 5), before);
  EXPECT_NE(conversation.page_bytes(1, 5), before) << "its own last page is another";
}

TEST(PagedAttentionTest, GivesTheSameBitsInPiecesWithWindowsAndSinks) {
  const std::vector<int64_t> lengths{300, 33, 129};
  for (const int64_t window : {1, 24, 127, 128, 130}) {
    for (const int64_t Nq : {2, 6, 16}) {  // rows of one tile share a token, or do not
      SCOPED_TRACE(fmt::format("window {} Nq {}", window, Nq));
      const DType dtype = window % 2 == 0 ? DType::kF32 : DType::kBf16;
      Geometry geometry{
          .Nq = Nq, .Nkv = 2, .D = 48, .S = 8, .dtype = dtype, .window = window, .sinks = true};
      Conversation whole(geometry, lengths);
      whole.run_whole();
      geometry.S = 16;
      Conversation pieces(geometry, lengths, 99);
      run_in_pieces(pieces, lengths, static_cast<uint64_t>(window + Nq));
      EXPECT_EQ(whole.outputs(), pieces.outputs());
      pieces.expect_foreign_pages_untouched();
    }
  }
}

// A window that is never, just and far longer than a segment, at every place where segments meet.
TEST(PagedAttentionTest, GivesTheSameBitsWhereAWindowCrossesSegments) {
  const int64_t length = 2 * kAttentionSegment + 140;
  for (const int64_t window : {int64_t{130}, kAttentionSegment, kAttentionSegment + 3}) {
    const Geometry geometry{.Nq = 3, .Nkv = 1, .D = 16, .S = 64, .window = window, .sinks = true};
    Conversation whole(geometry, {length});
    whole.check_against_reference(window == 130);
    whole.run_whole();
    for (const int threads : {1, 4}) {
      SCOPED_TRACE(fmt::format("window {} threads {}", window, threads));
      Conversation pieces(geometry, {length}, 5);
      for (int64_t first = 0; first < length;) {
        const int64_t in_segment = first % kAttentionSegment;
        const bool alone = in_segment < 4 || (in_segment >= 128 && in_segment < 136);
        const int64_t rows = alone ? 1 : in_segment < 128 ? 128 - in_segment : 300;
        const int64_t to_join = kAttentionSegment - in_segment;
        const int64_t num_rows = std::min({rows, to_join, length - first});
        pieces.step({{.first = first, .num_rows = num_rows}}, threads);
        first += num_rows;
      }
      EXPECT_EQ(whole.outputs(), pieces.outputs());
    }
  }
}

TEST(PagedAttentionTest, GivesTheSameBitsWhereSegmentsAreJoined) {
  const int64_t length = 2 * kAttentionSegment + 5;
  const Geometry geometry{.Nq = 2, .Nkv = 1, .D = 16, .S = 64};
  Conversation whole(geometry, {length});
  whole.run_whole();
  for (const int threads : {1, 4}) {
    Conversation pieces(geometry, {length}, 5);
    for (int64_t first = 0; first < length;) {
      const bool at_join = first % kAttentionSegment >= kAttentionSegment - 2 ||
                           first % kAttentionSegment <= 1 || length - first < 5;
      const int64_t to_join = (first / kAttentionSegment + 1) * kAttentionSegment - 2 - first;
      const int64_t rows =
          at_join ? 1 : std::min(std::max<int64_t>(to_join, 1), length - 4 - first);
      pieces.step({{.sequence = 0, .first = first, .num_rows = std::max<int64_t>(rows, 1)}},
                  threads);
      first += std::max<int64_t>(rows, 1);
    }
    EXPECT_EQ(whole.outputs(), pieces.outputs()) << threads << " threads";
  }
  Conversation checked(geometry, {length});
  checked.run_whole();
  checked.check_against_reference(true);
  checked.step({{.sequence = 0, .first = length - 1, .num_rows = 1}}, 2);
}

TEST(PagedAttentionTest, SplitsALongDecodeIntoMoreSegmentsThanFitOneWave) {
  const int64_t length = 11 * kAttentionSegment + 3;  // one thread of a pool of two: 8 tasks a wave
  const Geometry geometry{.Nq = 2, .Nkv = 1, .D = 16, .S = 128};
  Conversation conversation(geometry, {length});
  for (int64_t first = 0; first < length - 1; first += 2048) {
    conversation.step({{.first = first, .num_rows = std::min<int64_t>(2048, length - 1 - first)}});
  }
  conversation.step({{.first = length - 1, .num_rows = 1}}, 1);
  const auto alone = conversation.outputs();
  conversation.check_against_reference(true);
  conversation.step({{.first = length - 1, .num_rows = 1}}, 2);
  EXPECT_EQ(alone, conversation.outputs());
}

TEST(PagedAttentionTest, EveryInstructionSetMatchesTheReference) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
      for (const int64_t D : {64, 24}) {
        SCOPED_TRACE(fmt::format("{} {} D {}", hwy::TargetName(target), to_string(dtype), D));
        const int64_t window = D == 24 ? 37 : 0;
        const Geometry geometry{.Nq = 6,
                                .Nkv = 2,
                                .D = D,
                                .S = 16,
                                .dtype = dtype,
                                .window = window,
                                .sinks = window > 0};
        Conversation whole(geometry, {140});
        whole.check_against_reference(true);
        whole.run_whole();
        Conversation pieces(geometry, {140});
        pieces.step({{.first = 0, .num_rows = 130}});
        for (int64_t t = 130; t < 140; ++t) pieces.step({{.first = t, .num_rows = 1}});
        EXPECT_EQ(whole.outputs(), pieces.outputs());
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

class PagedAttentionErrorsTest : public ::testing::Test {
 protected:
  PagedAttentionErrorsTest() {
    forward_.query_start = query_start_;
    forward_.context_lens = context_lens_;
    forward_.page_table = pages_;
    forward_.page_table_width = 1;
    forward_.page_size = 4;
    workspace_.resize(static_cast<size_t>(paged_attention_workspace_bytes(context_, 2, 8, 8)));
  }

  [[nodiscard]] PagedAttentionArgs args() {
    return {.q = q_.view(),
            .k = k_.view(),
            .v = v_.view(),
            .y = y_.view(),
            .num_kv_heads = 1,
            .head_dim = 8,
            .scale = 1.0f,
            .kv = {k_pages_.view(), v_pages_.view()},
            .forward = &forward_,
            .workspace = workspace_};
  }

  std::string message(const PagedAttentionArgs& wrong) {
    return paged_attention(context_, wrong).to_string();
  }

  device::ThreadPool pool_{1};
  CpuContext context_{pool_};
  Tensor q_{{2, 16}, DType::kF32}, k_{{2, 8}, DType::kF32}, v_{{2, 8}, DType::kF32};
  Tensor y_{{2, 16}, DType::kF32};
  Tensor k_pages_{{3, 4, 1, 8}, DType::kBf16}, v_pages_{{3, 4, 1, 8}, DType::kBf16};
  std::vector<int32_t> query_start_{0, 2}, context_lens_{1}, pages_{2};
  ForwardContext forward_;
  std::vector<std::byte> workspace_;
};

TEST_F(PagedAttentionErrorsTest, SaysWhatDoesNotFit) {
  ASSERT_TRUE(paged_attention(context_, args()).ok());
  PagedAttentionArgs wrong = args();
  wrong.num_kv_heads = 3;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("Nkv"));
  wrong = args();
  wrong.window = -1;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("the window is -1"));
  wrong = args();
  const Tensor three({3}, DType::kF32);
  wrong.sinks = three.view();
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("Nq"));
  wrong = args();
  wrong.value_dim = 7;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("v has Nkv * Dv = 8"));
  wrong.v = {};
  wrong.kv.v = {};
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("y has rows of 16, not 2 heads of 7"));
  wrong.value_dim = 9;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("value_dim is 9, it must lie within the keys"));
  wrong = args();
  wrong.v = {};
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("the pages have values"));
  wrong = args();
  wrong.forward = nullptr;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("ForwardContext"));
  wrong = args();
  wrong.workspace = wrong.workspace.first(8);
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("workspace has 8 bytes"));
  pages_[0] = 3;
  EXPECT_THAT(message(args()), ::testing::HasSubstr("page outside the pool of 3"));
  pages_[0] = 2;
  context_lens_[0] = 3;
  EXPECT_THAT(message(args()), ::testing::HasSubstr("room for 4"));
  context_lens_[0] = 0;
  query_start_[1] = 1;
  EXPECT_THAT(message(args()), ::testing::HasSubstr("covers rows 0 to 1, the tensors have 2"));
  query_start_[1] = 2;
  const std::vector<int32_t> too_many = {1, 1};
  forward_.kv_lens = too_many;
  EXPECT_THAT(message(args()), ::testing::HasSubstr("kv_lens has 2 entries"));
}

// Scores 1 and 2 beside a sink of 0.5: the probabilities sum to 0.85975562 (the sink takes the
// rest).
TEST_F(PagedAttentionErrorsTest, GivesASinkItsShare) {
  context_lens_[0] = 0;
  for (Tensor* tensor : {&q_, &k_, &v_}) std::ranges::fill(tensor->span<float>(), 0.0f);
  for (size_t h = 0; h < 4; ++h) q_.span<float>()[h * 8] = 1;
  k_.span<float>()[0] = 1;
  k_.span<float>()[8] = 2;
  v_.span<float>()[0] = 1;      // the first token's share in channel 0
  v_.span<float>()[8 + 1] = 1;  // the second's in channel 1
  Tensor sinks({2}, DType::kF32);
  sinks.span<float>()[0] = 0.5f;
  sinks.span<float>()[1] = -1e30f;
  PagedAttentionArgs step = args();
  step.sinks = sinks.view();
  ASSERT_TRUE(paged_attention(context_, step).ok());
  const float* last = y_.view().row<float>(1);
  EXPECT_NEAR(last[0], 0.2312239f, 1e-7f);
  EXPECT_NEAR(last[1], 0.62853172f, 1e-7f);
  EXPECT_NEAR(last[8 + 0], 0.26894142f, 1e-7f);
  EXPECT_NEAR(last[8 + 1], 0.73105858f, 1e-7f);
}

TEST_F(PagedAttentionErrorsTest, RoundsKeysAndValuesAsTheScalarConversionsDo) {
  const float samples[] = {1.00585f, -3.14159f, 65519.0f, 1e-7f, 0.0f, -0.0f, 1.0009766f, 5.9e-8f};
  for (int64_t c = 0; c < 8; ++c) {
    k_.span<float>()[static_cast<size_t>(c)] = samples[c];
    v_.span<float>()[static_cast<size_t>(c)] = samples[7 - c];
  }
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    Tensor k_pages({3, 4, 1, 8}, dtype), v_pages({3, 4, 1, 8}, dtype);
    PagedAttentionArgs step = args();
    step.kv = {k_pages.view(), v_pages.view()};
    ASSERT_TRUE(paged_attention(context_, step).ok());
    for (size_t c = 0; c < 8; ++c) {
      const size_t at = 2 * 32 + 8 + c;  // page 2, second token
      const uint16_t expected =
          dtype == DType::kBf16 ? to_bf16(samples[c]).bits : to_f16(samples[c]).bits;
      EXPECT_EQ(k_pages.span<uint16_t>()[at], expected) << samples[c];
      EXPECT_EQ(v_pages.span<uint16_t>()[at + 7 - 2 * c], expected) << samples[c];
    }
  }
}

}  // namespace

}  // namespace heddle::ops
