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
#include "ops/sampling/host_team.h"
#include "ops/sampling/row_finisher.h"

namespace heddle::ops::sampling_steps {
namespace {

constexpr int kThreads = 4;

class ThreadTeam : public HostTeam<ThreadTeam> {
 public:
  // The memory that the threads of a team share.
  struct Shared {
    std::barrier<> barrier{kThreads};
    uint64_t words[2 * kThreads] = {};
    LevelSums levels{};
    FinishShared finish{};
  };

  // Teams that finish a row together.
  struct Crew {
    explicit Crew(int num_teams)
        : teams(static_cast<size_t>(num_teams)), barrier(num_teams * kThreads) {}

    std::vector<Shared> teams;
    std::barrier<> barrier;
  };

  ThreadTeam(Crew& crew, int share, int thread)
      : crew_(crew),
        shared_(crew.teams[static_cast<size_t>(share)]),
        share_(share),
        shares_(static_cast<int>(crew.teams.size())),
        thread_(thread) {}

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

  template <typename Value, typename Map>
  Value reduce(int n, const Map& map) {
    Value value;
    for (int i = thread_; i < n; i += kThreads) map(value, i);
    std::memcpy(&shared_.words[2 * thread_], &value, sizeof(Value));
    wait();
    Value all;
    for (int thread = 0; thread < kThreads; ++thread) {
      Value other;
      std::memcpy(static_cast<void*>(&other), &shared_.words[2 * thread], sizeof(Value));
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

  template <typename Value, typename Other, typename Map, typename Again, typename Store>
  void tiles_twice(int first, int last, const float* logits, int V, const Map& map,
                   const Again& again, const Store& store) {
    for (int tile = first + thread_; tile < last; tile += kThreads) {
      Value value;
      Other other;
      const int begin = tile * kTileTokens;
      const int end = std::min(V, begin + kTileTokens);
      for (int token = begin; token < end; ++token) map(value, token, logits[token]);
      for (int token = begin; token < end; ++token) again(other, value, logits[token]);
      store(tile, value, other);
    }
    wait();
  }

  template <typename Value, typename TileAt, typename Map, typename End>
  void tokens(int n, const TileAt& tile_at, const float* logits, int V, const Map& map,
              const End& end) {
    Value value;
    for (int i = thread_; i < n; i += kThreads) {
      const int tile = tile_at(i);
      if (tile < 0) continue;
      const int last = std::min(V, (tile + 1) * kTileTokens);
      for (int token = tile * kTileTokens; token < last; ++token) map(value, token, logits[token]);
    }
    end(value);
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

  [[nodiscard]] int share() const { return share_; }

  [[nodiscard]] int shares() const { return shares_; }

  template <typename Value>
  [[nodiscard]] Value* of_share(Value* value, int share) const {
    const auto offset = reinterpret_cast<std::byte*>(value) -  // of the first team if it is alone
                        reinterpret_cast<std::byte*>(&shared_.finish);
    Shared& other = shares_ == 1 ? shared_ : crew_.teams[static_cast<size_t>(share)];
    return reinterpret_cast<Value*>(reinterpret_cast<std::byte*>(&other.finish) + offset);
  }

  void meet() {
    if (shares_ == 1) return wait();
    crew_.barrier.arrive_and_wait();
  }

  [[nodiscard]] bool stays_alone() {
    shares_ = 1;
    return share_ == 0;
  }

 private:
  void wait() { shared_.barrier.arrive_and_wait(); }

  Crew& crew_;
  Shared& shared_;
  int share_;
  int shares_;
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
    if (below(2) == 0) slot.top_k = below(2) == 0 ? token() : std::min(token(), 40);
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
    path = {token(), token(), token()};
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
            .kind = draw_kind(slot),
            .drawn = &drawn,
            .sampled = &sampled,
            .top_logits = top_logits.data(),
            .workspace = std::as_writable_bytes(std::span(workspace))};
  }

  int V;
  std::vector<float> logits;
  SamplingRow row{.slot = 0, .mask_row = 0, .path = 5, .publish = 1};
  SamplingSlot slot;
  int32_t forbidden = 0;
  TokenBias bias;
  std::vector<int32_t> path;
  std::vector<TokenCount> counts;
  std::vector<uint32_t> masks;
  std::vector<uint64_t> workspace;
  int32_t drawn = 0;
  SampledRow sampled;
  std::vector<TopLogit> top_logits = std::vector<TopLogit>(kMostTopLogits);
};

// The first team makes the passes over the row, or each over its share; all of them finish it.
void run_at_once(const Tables& tables, DrawKind kind, int teams) {
  constexpr int kChunk = 3;
  const auto crew = std::make_unique<ThreadTeam::Crew>(teams);
  std::vector<std::jthread> threads;
  for (int i = 0; i < teams * kThreads; ++i) {
    threads.emplace_back([&, i] {
      ThreadTeam team(*crew, i / kThreads, i % kThreads);
      const RowRequest own = tables.request(0);
      FinishShared& finish = crew->teams[static_cast<size_t>(team.share())].finish;
      if (kind == DrawKind::kFew) {
        begin_search(team, finish);
        find_tile_shares(team, tables, 0, own, tables.tiles() * team.share() / team.shares(),
                         tables.tiles() * (team.share() + 1) / team.shares());
      } else if (team.share() == 0) {
        LevelSums& levels = crew->teams[0].levels;
        for (int tile = 0; tile < tables.tiles(); tile += kChunk) {
          find_tile_maxima(team, tables, 0, own, tile, std::min(tables.tiles(), tile + kChunk));
        }
        for (int tile = 0; tile < tables.tiles(); tile += kChunk) {
          sum_tiles(team, levels, tables, 0, own, tile, std::min(tables.tiles(), tile + kChunk));
        }
      }
      team.meet();
      if (kind == DrawKind::kFew) {
        finish_row<DrawKind::kFew>(team, finish, tables, 0, own);
      } else {
        finish_row<DrawKind::kAny>(team, finish, tables, 0, own);
      }
    });
  }
}

TEST(SampleRowStepsTest, DoTheSameWhenTheirThreadsRunAtOnce) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  std::mt19937 random(1);
  for (int round = 0; round < 90; ++round) {
    const int V = static_cast<int>(1 + random() % (round % 3 == 0 ? 9000 : 800));
    const int teams = round % 2 == 0 ? 3 : 1;
    RowRun in_turn(random, V);
    RowRun at_once = in_turn;
    ASSERT_TRUE(sample_rows(context, in_turn.args()).ok());
    run_at_once(Tables::of(at_once.args()), at_once.args().kind, teams);
    SCOPED_TRACE(fmt::format("round {}, V = {}, {} teams", round, V, teams));
    ASSERT_EQ(at_once.sampled.token, in_turn.sampled.token);
    if (in_turn.slot.top_logprobs >= 0) {
      ASSERT_EQ(at_once.sampled.total, in_turn.sampled.total);
    }
    ASSERT_EQ(at_once.sampled.num_top_logits, in_turn.sampled.num_top_logits);
    for (int i = 0; i < in_turn.sampled.num_top_logits; ++i) {
      const auto index = static_cast<size_t>(i);
      ASSERT_EQ(at_once.top_logits[index].token, in_turn.top_logits[index].token);
    }
  }
}

// Of rows that are flat, steep, mostly masked, or far below their best token.
TEST(SampleRowStepsTest, EstimatesHoldTheSumOfTheWeights) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  std::mt19937 random(2);
  for (int round = 0; round < 120; ++round) {
    RowRun run(random, static_cast<int>(1 + random() % (round % 4 == 0 ? 60000 : 3000)));
    run.slot = {.min_p_reach = -std::numeric_limits<double>::infinity()};
    const float temperature = 0.02f * static_cast<float>(1 + random() % 100);
    run.slot.inverse_temperature = 1 / temperature;
    const auto best = random() % run.logits.size();
    if (round % 5 == 1) run.logits[best] += 20 * temperature;  // the others: far down
    if (round % 5 == 2) {
      for (float& x : run.logits)
        x = random() % 8 == 0 ? x : -std::numeric_limits<float>::infinity();
    }
    run.logits[best] = std::max(run.logits[best], -3.0f);
    run.row = {.slot = 0};
    run.slot.top_logprobs = 0;
    RowRun summed = run;
    ASSERT_TRUE(sample_rows(context, summed.args()).ok());
    run.slot.top_logprobs = -1;
    run.slot.top_k = 1;
    run.slot.top_p = 0.5f;
    SampleRowsArgs args = run.args();
    ASSERT_EQ(args.kind, DrawKind::kFew);
    ASSERT_TRUE(sample_rows(context, args).ok());
    const Tables tables = Tables::of(args);
    const RowScratch scratch = tables.scratch_of(0);
    TotalEstimate estimate;
    const RowScale scale = RowScale::of(summed.sampled.max, run.slot);
    for (int tile = 0; tile < tables.tiles(); ++tile) {
      estimate.add(scale, scratch.tile_max[tile], scratch.tile_shares[tile]);
    }
    SCOPED_TRACE(fmt::format("round {}, V = {}", round, run.V));
    ASSERT_LE(estimate.low(), summed.sampled.total);
    ASSERT_GE(estimate.high(), summed.sampled.total);
  }
}

}  // namespace
}  // namespace heddle::ops::sampling_steps
