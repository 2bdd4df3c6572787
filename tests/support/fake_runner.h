// SPDX-License-Identifier: Apache-2.0
// FakeRunner: a runner whose "model" is a hash. Its KV rows hold the tokens themselves and its
// states a running hash with a count, so that a page or a state in the wrong hands, a lost or
// repeated token and a slot that was not zeroed all show: the next token is a function of
// everything the sequence contains, read back through its own pages.
//
//   FakeRunner runner({.num_pages = 8, .page_size = 4, .num_state_slots = 2,
//                      .max_step_tokens = 16, .max_step_sequences = 4});
//   ... run steps ...
//   EXPECT_THAT(runner.complaints(), IsEmpty());
//
// Threading: as Runner; the hooks run on the engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runner/runner.h"

namespace heddle::testing {

class FakeRunner final : public runner::Runner {
 public:
  static constexpr TokenId kVocabSize = 256;

  explicit FakeRunner(const runner::PoolSizes& sizes)
      : sizes_(sizes),
        kv_(static_cast<size_t>((sizes.num_pages + 1) * sizes.page_size), kGarbageToken),
        states_(static_cast<size_t>(sizes.num_state_slots + 1), kGarbageState) {}

  // Called at the start of every step; an error fails the step.
  std::function<Status(const request::BatchPlan&)> on_step;

  // The token drawn instead of the hash's; none: the hash's.
  std::function<std::optional<TokenId>(const request::PlannedSequence&)> script;

  // Fails the draw of one sequence.
  std::function<Status(const request::PlannedSequence&)> sequence_error;

  // What the hash model draws after `tokens`.
  static TokenId next_token(std::span<const TokenId> tokens,
                            std::span<const TokenId> forbidden = {}) {
    State state;
    for (const TokenId token : tokens) state.advance(token);
    return draw(state.hash, forbidden);
  }

  [[nodiscard]] const runner::PoolSizes& pool_sizes() const override { return sizes_; }

  Status submit(const request::BatchPlan& plan) override {
    submitted_ = &plan;
    return {};
  }

  Result<request::StepOutput> wait() override {
    const request::BatchPlan& plan = *submitted_;
    ++num_steps_;
    if (on_step) HEDDLE_RETURN_IF_ERROR(on_step(plan));
    if (checks_plans) check_plan(plan);
    for (const int32_t slot : plan.zero_state_slots) states_[static_cast<size_t>(slot)] = {0, 0};
    request::StepOutput output = std::move(recycled_);
    output.tokens.clear();
    for (const request::PlannedSequence& sequence : plan.sequences) {
      const uint64_t hash = compute(sequence);
      if (!sequence.sample) continue;
      const Status error = sequence_error ? sequence_error(sequence) : Status();
      const std::optional<TokenId> scripted = script ? script(sequence) : std::nullopt;
      request::SampledToken& sampled = output.tokens.emplace_back();
      sampled.sequence_id = sequence.sequence_id;
      sampled.token = scripted ? *scripted : draw(hash, sequence.forbidden_tokens);
      sampled.error = error;
      if (!sequence.return_logprobs) continue;
      sampled.logprob = {.token = sampled.token, .logprob = -0.5f, .top = {}};
      for (TokenId i = 0; i < sequence.top_logprobs; ++i)
        sampled.logprob.top.emplace_back(i, -1.0f);
    }
    return output;
  }

  void recycle(request::StepOutput output) override { recycled_ = std::move(output); }

  // What was wrong with plans and with the data found in pages and states.
  [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }

  [[nodiscard]] int64_t num_steps() const { return num_steps_; }

  bool checks_plans = true;  // off: no allocation of its own

 private:
  static constexpr TokenId kGarbageToken = -77;

  struct State {
    int64_t count = 0;
    uint64_t hash = 0;

    void advance(TokenId token) {
      ++count;
      hash = (hash ^ (static_cast<uint64_t>(static_cast<uint32_t>(token)) + 0x9e3779b97f4a7c15u)) *
             0xff51afd7ed558ccdu;
      hash ^= hash >> 29;
    }

    friend bool operator==(const State&, const State&) = default;
  };

  static constexpr State kGarbageState{.count = -1, .hash = 77};

  static TokenId draw(uint64_t hash, std::span<const TokenId> forbidden) {
    auto token = static_cast<TokenId>((hash >> 7) % kVocabSize);
    while (std::find(forbidden.begin(), forbidden.end(), token) != forbidden.end()) {
      token = (token + 1) % kVocabSize;
    }
    return token;
  }

  TokenId& row(const request::PlannedSequence& sequence, int64_t token) {
    const auto page = sequence.pages[static_cast<size_t>(token / sizes_.page_size)];
    return kv_[static_cast<size_t>(page * sizes_.page_size + token % sizes_.page_size)];
  }

  uint64_t compute(const request::PlannedSequence& sequence) {
    State from_kv;
    for (int64_t t = 0; t < sequence.context_tokens; ++t) from_kv.advance(row(sequence, t));
    if (sequence.state_slot != 0) {
      const State& state = states_[static_cast<size_t>(sequence.state_slot)];
      if (state != from_kv) {
        complaints_.push_back(fmt::format(
            "sequence {}: state slot {} has {} tokens, the context is {} tokens",
            sequence.sequence_id, sequence.state_slot, state.count, sequence.context_tokens));
      }
    }
    int64_t t = sequence.context_tokens;
    for (const TokenId token : sequence.new_tokens) {
      row(sequence, t++) = token;
      from_kv.advance(token);
    }
    if (sequence.state_slot != 0) states_[static_cast<size_t>(sequence.state_slot)] = from_kv;
    return from_kv.hash;
  }

  void check_plan(const request::BatchPlan& plan) {
    const auto expect = [&](bool holds, const std::string& what) {
      if (!holds) complaints_.push_back(fmt::format("step {}: {}", num_steps_, what));
    };
    expect(!plan.sequences.empty(), "an empty plan");
    expect(plan.num_new_tokens() <= sizes_.max_step_tokens,
           fmt::format("{} new tokens", plan.num_new_tokens()));
    expect(std::ssize(plan.sequences) <= sizes_.max_step_sequences,
           fmt::format("{} sequences", plan.sequences.size()));
    std::set<int64_t> ids;
    std::set<int32_t> pages;
    std::set<int32_t> slots;
    for (const request::PlannedSequence& sequence : plan.sequences) {
      const std::string who = fmt::format("sequence {}", sequence.sequence_id);
      expect(ids.insert(sequence.sequence_id).second, who + " is in it twice");
      expect(!sequence.new_tokens.empty(), who + " has nothing to compute");
      const int64_t end = sequence.context_tokens + std::ssize(sequence.new_tokens);
      expect(std::ssize(sequence.pages) * sizes_.page_size >= end, who + " lacks pages");
      for (const int32_t page : sequence.pages) {
        expect(page >= 1 && page <= sizes_.num_pages, who + " has a page out of range");
        expect(pages.insert(page).second, who + " shares a page");
      }
      if (sizes_.num_state_slots == 0) {
        expect(sequence.state_slot == 0, who + " has a state slot");
      } else {
        expect(sequence.state_slot >= 1 && sequence.state_slot <= sizes_.num_state_slots,
               who + " has a state slot out of range");
        expect(slots.insert(sequence.state_slot).second, who + " shares a state slot");
        const auto& zeroed = plan.zero_state_slots;
        const bool zeroes =
            std::find(zeroed.begin(), zeroed.end(), sequence.state_slot) != zeroed.end();
        expect(zeroes == (sequence.context_tokens == 0), who + " is zeroed at the wrong time");
      }
    }
  }

  runner::PoolSizes sizes_;
  std::vector<TokenId> kv_;
  std::vector<State> states_;
  std::vector<std::string> complaints_;
  const request::BatchPlan* submitted_ = nullptr;
  request::StepOutput recycled_;
  int64_t num_steps_ = 0;
};

}  // namespace heddle::testing
