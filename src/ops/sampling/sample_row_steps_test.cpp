// SPDX-License-Identifier: Apache-2.0
// The passes as threads that truly run at once make them, against the CPU's launcher, in which one
// plays all: the thread sanitizer finds a phase that does not wait for the one before.
#include "ops/sampling/sample_row_steps.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "device/thread_pool.h"
#include "ops/context.h"

namespace heddle::ops::sampling_steps {
namespace {

constexpr int kThreads = 4;

class ThreadTeam {
 public:
  struct Shared {
    std::barrier<> barrier{kThreads};
    uint64_t words[kThreads] = {};
  };

  ThreadTeam(Shared& shared, int thread) : shared_(shared), thread_(thread) {}

  static int size() { return kThreads; }

  template <typename Body>
  void each(int n, const Body& body) {
    for (int i = thread_; i < n; i += kThreads) body(i);
    wait();
  }

  template <typename Body>
  void few(int n, const Body& body) {
    for (int i = 0; thread_ == 0 && i < n; ++i) body(i);
  }

  template <typename Body>
  void threads(const Body& body) {
    body(thread_);
    wait();
  }

  template <typename Value, typename Map>
  Value reduce(int n, const Map& map) {
    Value value;
    for (int i = thread_; i < n; i += kThreads) map(value, i);
    std::memcpy(&shared_.words[thread_], &value, sizeof(Value));
    wait();
    Value all;
    for (const uint64_t& word : shared_.words) {
      Value other;
      std::memcpy(static_cast<void*>(&other), &word, sizeof(Value));
      all.join(other);
    }
    wait();
    return all;
  }

  template <typename Value, typename Visit, typename Map, typename Store>
  void tiles(int first, int last, const float* logits, int V, const Visit& visit, const Map& map,
             const Store& store) {
    for (int tile = first + thread_; tile < last; tile += kThreads) {
      Value value;
      const int end = visit(tile) ? std::min(V, (tile + 1) * kTileTokens) : 0;
      for (int token = tile * kTileTokens; token < end; ++token) map(value, token, logits[token]);
      store(tile, value);
    }
    wait();
  }

  template <typename At>
  uint64_t scan(int n, const At& at) {
    wait();
    uint64_t sum = 0;
    for (int i = 0; thread_ == 0 && i < n; ++i) {
      const uint64_t value = at(i);
      at(i) = sum;
      sum += value;
    }
    if (thread_ == 0) shared_.words[0] = sum;
    wait();
    const uint64_t all = shared_.words[0];
    wait();
    return all;
  }

  template <typename Number>
  Number add(Number* sum, Number value) {
    return std::atomic_ref<Number>(*sum).fetch_add(value);
  }

  void raise(int32_t* most, int32_t value) {
    const std::atomic_ref<int32_t> shared(*most);
    int32_t seen = shared.load();
    while (seen < value && !shared.compare_exchange_weak(seen, value)) {
    }
  }

 private:
  void wait() { shared_.barrier.arrive_and_wait(); }

  Shared& shared_;
  int thread_;
};

// A row, its tables and what was drawn from it.
struct RowRun {
  RowRun(std::mt19937& random, int vocab_size) : V(vocab_size), logits(static_cast<size_t>(V)) {
    const auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
    const auto token = [&] { return below(static_cast<uint64_t>(V)); };
    std::normal_distribution<float> normal(
        0, below(3) == 0 ? 0.02f : 0.2f * static_cast<float>(1 + below(20)));
    const bool has_ties = below(3) == 0;
    for (float& logit : logits) {
      const float x = normal(random);
      logit = has_ties ? std::round(2 * x) / 2 : x;
    }
    slot = {.seed = random(), .min_p_reach = -std::numeric_limits<double>::infinity()};
    if (below(2) == 0) slot.top_k = token();
    if (below(2) == 0) slot.top_p = static_cast<float>(1 + below(1000)) / 1001;
    if (below(4) == 0) slot.min_p_reach = -below(8);
    if (below(8) == 0) slot.greedy = 1;
    if (below(3) == 0) slot.top_logprobs = 20;
    slot.counts_row = 0;
    slot.repetition_penalty = 1.2f;
    slot.frequency_penalty = 0.3f;
    slot.num_forbidden = 1;
    slot.min_length = below(2);
    slot.num_biases = 1;
    forbidden = token();
    bias = {token(), 2.0f};
    path = {token(), token()};
    counts.resize(static_cast<size_t>(V));
    for (int i = 0; i < 5; ++i) ++counts[static_cast<size_t>(token())];
    masks.assign(static_cast<size_t>(V + 31) / 32, 0xfffffff7u);
    workspace.resize(static_cast<size_t>(sample_rows_workspace_bytes(1, V)) / 8);
  }

  [[nodiscard]] SampleRowsArgs args() {
    return {.logits = MutableTensorView(reinterpret_cast<std::byte*>(logits.data()), DType::kF32,
                                        Shape{1, V}),
            .rows = &row,
            .slots = &slot,
            .counts = counts.data(),
            .forbidden = &forbidden,
            .biases = &bias,
            .path_tokens = path.data(),
            .masks = masks.data(),
            .drawn = &drawn,
            .sampled = &sampled,
            .top_logits = top_logits.data(),
            .workspace = std::as_writable_bytes(std::span(workspace))};
  }

  int V;
  std::vector<float> logits;
  SamplingRow row{.slot = 0, .mask_row = 0, .path_length = 2, .publish = 1};
  SamplingSlot slot;
  int32_t forbidden = 0;
  TokenBias bias;
  std::vector<int32_t> path;
  std::vector<int32_t> counts;
  std::vector<uint32_t> masks;
  std::vector<uint64_t> workspace;
  int32_t drawn = 0;
  SampledRow sampled;
  std::vector<TopLogit> top_logits = std::vector<TopLogit>(kMostTopLogits);
};

void run_at_once(const Tables& tables) {
  constexpr int kChunk = 3;
  ThreadTeam::Shared shared;
  const auto levels = std::make_unique<LevelSums>();
  const auto finish = std::make_unique<FinishShared>();
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      ThreadTeam team(shared, thread);
      for (int tile = 0; tile < tables.tiles(); tile += kChunk) {
        find_tile_maxima(team, tables, 0, tile, std::min(tables.tiles(), tile + kChunk));
      }
      for (int tile = 0; tile < tables.tiles(); tile += kChunk) {
        sum_tiles(team, *levels, tables, 0, tile, std::min(tables.tiles(), tile + kChunk));
      }
      finish_row(team, *finish, tables, 0);
    });
  }
}

TEST(SampleRowStepsTest, DoTheSameWhenTheirThreadsRunAtOnce) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const int V = static_cast<int>(1 + random() % (round % 3 == 0 ? 9000 : 800));
    RowRun in_turn(random, V);
    RowRun at_once = in_turn;
    ASSERT_TRUE(sample_rows(context, in_turn.args()).ok());
    run_at_once(Tables::of(at_once.args()));
    SCOPED_TRACE(fmt::format("round {}, V = {}", round, V));
    ASSERT_EQ(at_once.sampled.token, in_turn.sampled.token);
    ASSERT_EQ(at_once.sampled.total, in_turn.sampled.total);
    ASSERT_EQ(at_once.sampled.num_top_logits, in_turn.sampled.num_top_logits);
    for (int i = 0; i < in_turn.sampled.num_top_logits; ++i) {
      const auto index = static_cast<size_t>(i);
      ASSERT_EQ(at_once.top_logits[index].token, in_turn.top_logits[index].token);
    }
    ASSERT_EQ(at_once.counts, in_turn.counts);
  }
}

}  // namespace
}  // namespace heddle::ops::sampling_steps
