// SPDX-License-Identifier: Apache-2.0
// Time per operation of the prefix tree: one long path, cut into snapshots of 256 tokens, and a
// tree of many conversations.
#include <benchmark/benchmark.h>

#include "cache/prefix_tree.h"

namespace heddle::cache {
namespace {

constexpr int32_t kPageSize = 16;
constexpr PrefixTreeOptions kOptions{.flops = {.per_token = 6e9, .per_pair = 98304},
                                     .page_bytes = 16 * 24576,
                                     .state_bytes = 77266944};

struct Computed {
  std::vector<int32_t> pages;
  int32_t state_slot = 0;
};

struct Pools {
  PageAllocator pages{1 << 20, kPageSize};
  StateAllocator states{1 << 16};
  PrefixTree tree{kOptions, pages, {}, states};

  void insert(const std::vector<TokenId>& tokens, int64_t length) {
    const Computed computed = compute(length);
    const std::span kept(tokens.data(), static_cast<size_t>(length));
    const PrefixInserted inserted = tree.insert({.tokens = kept,
                                                 .name_space = "",
                                                 .hashes = request::PrefixHashes(kept),
                                                 .pages = computed.pages,
                                                 .state_slot = computed.state_slot});
    if (!inserted.state_taken) states.release(computed.state_slot);
    for (const int32_t page : computed.pages) {
      if (pages.ids().owner(page) == Owner::kRequest) pages.ids().free_one(page);
    }
  }

  // The pages and the state of a sequence of this length.
  Computed compute(int64_t length) {
    Computed computed;
    if (!pages.grow(length, computed.pages)) std::abort();
    computed.state_slot = states.allocate();
    states.set_label(computed.state_slot, length);
    return computed;
  }
};

std::vector<TokenId> conversation(int64_t length, TokenId who) {
  std::vector<TokenId> tokens(static_cast<size_t>(length));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i % 1000);
  tokens[tokens.size() / 4] = 1000 + who;  // where it parts from the others
  return tokens;
}

void match(benchmark::State& state) {
  Pools pools;
  const auto tokens = conversation(state.range(0), 0);
  for (int64_t length = 256; length <= state.range(0); length += 256) pools.insert(tokens, length);
  for (auto _ : state) benchmark::DoNotOptimize(pools.tree.match(tokens, "", state.range(0)));
}

// The end of a turn: all tokens but those of the last page are known.
void insert(benchmark::State& state) {
  Pools pools;
  const int64_t length = state.range(0);
  const auto tokens = conversation(length, 0);
  const request::PrefixHashes hashes(tokens);
  for (int64_t end = 256; end < length; end += 256) pools.insert(tokens, end);
  std::vector<int32_t> own;
  if (!pools.pages.grow(length, own)) std::abort();
  for (auto _ : state) {
    const int32_t slot = pools.states.allocate();
    pools.states.set_label(slot, length);
    const PrefixInserted inserted = pools.tree.insert(
        {.tokens = tokens, .name_space = "", .hashes = hashes, .pages = own, .state_slot = slot});
    if (!inserted.state_taken) pools.states.release(slot);
  }
}

// A cold prompt: one leaf of the whole length.
void insert_cold(benchmark::State& state) {
  Pools pools;
  const int64_t length = state.range(0);
  const auto tokens = conversation(length, 0);
  const request::PrefixHashes hashes(tokens);
  for (auto _ : state) {
    state.PauseTiming();
    pools.tree.clear();
    const Computed computed = pools.compute(length);
    state.ResumeTiming();
    benchmark::DoNotOptimize(pools.tree.insert({.tokens = tokens,
                                                .name_space = "",
                                                .hashes = hashes,
                                                .pages = computed.pages,
                                                .state_slot = computed.state_slot}));
  }
}

// Finds what a cold prompt would have reused, in a tree that has evicted all that it remembers.
void loss(benchmark::State& state) {
  Pools pools;
  for (TokenId who = 0; who < 10'000; ++who) {
    const auto other = conversation(1024, who);
    for (const int64_t end : {512, 768, 1024}) pools.insert(other, end);
  }
  pools.tree.evict_states(pools.tree.stats().states);
  auto tokens = conversation(state.range(0), 0);
  tokens[0] = 1;
  const request::PrefixHashes hashes(tokens);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        pools.tree.usable_without_eviction(tokens, hashes, {}, state.range(0)));
  }
}

// All that the tree does for a prompt that is new.
void whole_request(benchmark::State& state) {
  Pools pools;
  const int64_t length = state.range(0);
  const auto tokens = conversation(length, 0);
  const request::PrefixHashes hashes(tokens);
  for (auto _ : state) {
    state.PauseTiming();
    pools.tree.clear();
    const Computed computed = pools.compute(length);
    state.ResumeTiming();
    const PrefixMatch match = pools.tree.match(tokens, "", length - 1);
    benchmark::DoNotOptimize(pools.tree.usable_without_eviction(tokens, hashes, match, length - 1));
    benchmark::DoNotOptimize(pools.tree.insert({.tokens = tokens,
                                                .name_space = "",
                                                .hashes = hashes,
                                                .pages = computed.pages,
                                                .state_slot = computed.state_slot}));
  }
}

// Evicts one state of `range` conversations, and puts it back.
void evict(benchmark::State& state) {
  Pools pools;
  for (TokenId who = 0; who < state.range(0); ++who) {
    const auto tokens = conversation(1024, who);
    for (const int64_t end : {512, 768, 1024}) pools.insert(tokens, end);
  }
  const auto next = conversation(1024, static_cast<TokenId>(state.range(0)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(pools.tree.evict_states(1));
    state.PauseTiming();
    pools.insert(next, 1024);
    state.ResumeTiming();
  }
}

BENCHMARK(match)->Arg(1 << 10)->Arg(1 << 13)->Arg(1 << 15)->Unit(benchmark::kMicrosecond);
BENCHMARK(insert)->Arg(1 << 10)->Arg(1 << 13)->Arg(1 << 15)->Unit(benchmark::kMicrosecond);
BENCHMARK(insert_cold)->Arg(1 << 10)->Arg(1 << 13)->Arg(1 << 15)->Unit(benchmark::kMicrosecond);
BENCHMARK(loss)->Arg(1 << 10)->Arg(1 << 13)->Arg(1 << 15)->Unit(benchmark::kMicrosecond);
BENCHMARK(whole_request)->Arg(1 << 10)->Arg(1 << 13)->Arg(1 << 15)->Unit(benchmark::kMicrosecond);
BENCHMARK(evict)->Arg(100)->Arg(1000)->Arg(10000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace heddle::cache
