// SPDX-License-Identifier: Apache-2.0
// Prompts served through the real scheduler over the toy device for the worked examples of the
// hybrid cache, with a record of the tokens that every step computed and the states it kept.
//
// Sizes are those of the documents: G = 64, T = 256, a state of 73.7 MiB, 24 KiB of KV per token.
// Prompts are made of tokens from 1000 on, which the toy device never draws, so outputs never
// continue a prompt by chance.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_fixture.h"

namespace heddle::scheduler {

using Tokens = std::vector<TokenId>;

inline Tokens repeated(TokenId token, int64_t count) {
  return Tokens(static_cast<size_t>(count), token);
}

inline Tokens joined(Tokens head, const Tokens& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

inline Tokens first(const Tokens& tokens, int64_t count) {
  return Tokens(tokens.begin(), tokens.begin() + count);
}

// The settings of the server that the documents compare with: one snapshot per extend, the least
// recently used state goes first, prefill before decode, one step at a time, no sequence waits for
// another's prefix, prompts are chunked at 16,384 tokens, and pools that never run short.
inline BatchSchedulerOptions reference(SnapshotPolicy policy, int32_t page_size = 1) {
  BatchSchedulerOptions options;
  options.cache.policy = policy;
  options.cache.pools.page_size = page_size;
  options.cache.pools.num_pages = 24000 / page_size;
  options.cache.pools.num_state_slots = 200;
  options.cache.grid = std::max(64, page_size);
  options.cache.decode_interval = 256;
  options.cache.pools.keeps_hidden = false;
  options.cache.eviction = EvictionPolicy::kLru;
  options.cache.pools.page_bytes = int64_t{24576} * page_size;
  options.cache.pools.state_slot_bytes = 77266944;
  options.cache.pools.flops = testing::kToyFlops;
  options.scheduling.mixed_batches = false;
  options.scheduling.prefills_per_decode = 0;
  options.shares_in_flight = false;
  options.chunked_prefill_tokens = 16384;
  options.limits.max_tokens = 16384;
  options.max_running = 32;
  return options;
}

// The same machine with Heddle's settings.
inline BatchSchedulerOptions multi(int32_t page_size = 16) {
  BatchSchedulerOptions options = reference(SnapshotPolicy::kMulti, page_size);
  options.cache.pools.keeps_hidden = true;
  options.cache.eviction = EvictionPolicy::kFlops;
  options.scheduling = {};
  options.shares_in_flight = true;
  return options;
}

// The record of one request.
struct Served {
  int64_t hit = 0;              // tokens it found in the cache
  std::vector<int64_t> chunks;  // new tokens of its prefill steps
  std::vector<int64_t> kept;    // labels of the states that its prefill steps kept
  std::vector<int64_t> kept_in_decode;
  int64_t computed = 0;       // tokens of all its steps
  int64_t rows_present = -1;  // KV rows that its first step found
};

class HybridCacheFixture {
 public:
  explicit HybridCacheFixture(const BatchSchedulerOptions& options) : base(options) {
    base.runner.on_step = [this](const request::BatchPlan& plan) {
      record(plan);
      return Status();
    };
  }

  ~HybridCacheFixture() { EXPECT_THAT(base.runner.complaints(), ::testing::IsEmpty()); }

  // Tokens that no other prompt has.
  Tokens unique(int64_t count) {
    Tokens tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(next_token_++);
    return tokens;
  }

  request::Sequence& submit(Tokens prompt, int64_t max_new_tokens,
                            std::vector<int64_t> role_boundaries = {}, Tokens stops = {}) {
    Request request;
    request.prompt = std::move(prompt);
    request.stop.max_new_tokens = max_new_tokens;
    request.stop.token_ids = std::move(stops);
    request.role_boundaries = std::move(role_boundaries);
    request::Sequence& sequence = base.make(std::move(request));
    const Status status = base.scheduler->submit(sequence);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return sequence;
  }

  // Runs until nothing is left to do and compares every answer with the model's own.
  void run() {
    base.run();
    for (; num_checked_ < base.sequences.size(); ++num_checked_) {
      const request::Sequence& sequence = *base.sequences[num_checked_];
      EXPECT_EQ(sequence.status, request::SequenceStatus::kFinished);
      if (base.runner.script) continue;
      EXPECT_EQ(SchedulerFixture::output_of(sequence), SchedulerFixture::expected_output(sequence))
          << "sequence " << sequence.id;
    }
  }

  // The prompt's answer, alone.
  Served serve(Tokens prompt, int64_t max_new_tokens, std::vector<int64_t> role_boundaries = {}) {
    const request::Sequence& sequence =
        submit(std::move(prompt), max_new_tokens, std::move(role_boundaries));
    run();
    return served(sequence);
  }

  [[nodiscard]] Served served(const request::Sequence& sequence) const {
    Served served = records_.at(static_cast<size_t>(sequence.id));
    served.hit = sequence.cache_report.reused_tokens;
    return served;
  }

  [[nodiscard]] std::string tree() const { return base.scheduler->cache().tree().to_string(); }

  [[nodiscard]] cache::PrefixCacheStats stats() const { return base.scheduler->cache().stats(); }

  SchedulerFixture base;

 private:
  void record(const request::BatchPlan& plan) {
    records_.resize(base.sequences.size());
    for (const request::PlannedSequence& planned : plan.sequences) {
      const auto id = static_cast<size_t>(planned.sequence_id);
      const bool prefill = planned.context_tokens < base.sequences[id]->num_prompt_tokens;
      records_[id].computed += planned.num_new_tokens();
      if (records_[id].rows_present < 0) records_[id].rows_present = planned.kv_tokens;
      if (prefill) records_[id].chunks.push_back(planned.num_new_tokens());
      for (const request::PlannedSnapshot& snapshot : plan.snapshots_of(planned)) {
        (prefill ? records_[id].kept : records_[id].kept_in_decode).push_back(snapshot.tokens);
      }
    }
  }

  std::vector<Served> records_;  // by sequence id
  size_t num_checked_ = 0;
  TokenId next_token_ = 1000;
};

}  // namespace heddle::scheduler
