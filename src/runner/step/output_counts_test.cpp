// SPDX-License-Identifier: Apache-2.0
// Texts come, compute prompts in chunks, feed what they drew, keep some drafts and give way: before
// their draws the table has what their outputs have.
#include "runner/step/output_counts.h"

#include <algorithm>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runner/program/device_ints_fixture.h"

namespace heddle::runner {
namespace {

using request::BatchPlan;
using request::PlannedSequence;

constexpr int32_t kSlots = 4;
constexpr int64_t kOutputVocabulary = 7;

class OutputCountsTest : public DeviceIntsTest {
 protected:
  // One text after the other in a batch slot.
  struct Text {
    int64_t id = -1;
    int64_t num_prompt = 0;
    bool penalised = false;
    std::vector<TokenId> tokens;  // the last one was drawn, or ends the prompt
    int64_t computed = 0;
  };

  // The part of a sequence in a step, for the host to learn behind it.
  struct Done {
    PlannedSequence sequence;
    std::vector<TokenId> new_tokens;
    TokenId fed = 0;
    std::vector<TokenId> accepted;
    std::vector<ops::TokenCount> want;  // empty: it has no penalties
  };

  TokenId token() { return static_cast<TokenId>(random_() % kOutputVocabulary); }

  bool one_in(uint32_t count) { return random_() % count == 0; }

  // Another text, or the same one once more, goes on from some cached tokens.
  void start(int32_t batch_slot, BatchPlan& plan) {
    Text& text = texts_[static_cast<size_t>(batch_slot)];
    if (text.id < 0 || one_in(2)) {
      text.id = next_id_++;
      text.penalised = !one_in(4);
      text.tokens.assign(1 + random_() % 6, 0);
      std::ranges::generate(text.tokens, [this] { return token(); });
      text.num_prompt = std::ssize(text.tokens);
    }
    text.computed = static_cast<int64_t>(random_() % text.tokens.size());
    request::SlotStart start{.sequence_id = text.id,
                             .batch_slot = batch_slot,
                             .num_prompt_tokens = text.num_prompt,
                             .max_length = 1000};
    if (text.penalised) start.sampling.presence_penalty = 1;
    if (text.computed > text.num_prompt) {
      start.output_tokens =
          plan.add_tokens(std::span(text.tokens)
                              .subspan(static_cast<size_t>(text.num_prompt),
                                       static_cast<size_t>(text.computed - text.num_prompt)));
    }
    plan.starts.push_back(start);
  }

  // The text's part of a step behind one that runs, or by itself; some have none.
  void compute(int32_t batch_slot, bool behind, BatchPlan& plan) {
    Text& text = texts_[static_cast<size_t>(batch_slot)];
    const auto left = static_cast<int64_t>(text.tokens.size()) - text.computed;
    const bool drew = std::ssize(text.tokens) > text.num_prompt;
    if (one_in(4) || (behind && !(left == 1 && drew))) return;
    const int64_t count = left == 1 ? 1 : 1 + static_cast<int64_t>(random_()) % left;
    Done& done = done_.emplace_back();
    PlannedSequence& sequence = done.sequence;
    sequence = {.sequence_id = text.id, .batch_slot = batch_slot, .context_tokens = text.computed};
    sequence.sample = count == left;
    sequence.feeds_drawn_token = sequence.sample && drew && (behind || !one_in(4));
    const auto first = text.tokens.begin() + text.computed;
    done.new_tokens.assign(first, first + count - (sequence.feeds_drawn_token ? 1 : 0));
    done.fed = text.tokens.back();
    sequence.new_tokens = plan.add_tokens(done.new_tokens);
    ids_.insert(ids_.end(), first, first + count);
    text.computed += count;
    if (text.penalised) {
      done.want.resize(kOutputVocabulary);
      for (int64_t i = text.num_prompt; i < text.computed; ++i) {
        ++done.want[static_cast<size_t>(text.tokens[static_cast<size_t>(i)])];
      }
    }
    if (!sequence.sample) return;
    if (!behind && one_in(3)) {
      std::vector<TokenId> drafts(1 + random_() % 3);
      std::ranges::generate(drafts, [this] { return token(); });
      sequence.drafts = plan.add_tokens(drafts);
      ids_.insert(ids_.end(), drafts.begin(), drafts.end());
      drafts.resize(random_() % (drafts.size() + 1));  // so many hold
      text.tokens.insert(text.tokens.end(), drafts.begin(), drafts.end());
      text.computed += std::ssize(drafts);
      done.accepted = std::move(drafts);
    }
    text.tokens.push_back(token());
  }

  void learn(const std::vector<Done>& step) {
    for (const Done& done : step) {
      slots_.computed(done.sequence, done.new_tokens, done.fed);
      for (const TokenId draft : done.accepted) slots_.accepted(done.sequence, draft);
    }
  }

  std::mt19937 random_{1};
  request::BatchSlots slots_{kSlots, /*max_pages_per_sequence=*/1};
  std::vector<Text> texts_ = std::vector<Text>(kSlots);
  int64_t next_id_ = 0;
  std::vector<Done> done_;  // by the step
  Ints ids_;                // likewise
};

HEDDLE_ON_EVERY_DEVICE(OutputCountsTest);

TEST_P(OutputCountsTest, HaveWhatOutputsHaveBeforeTheirDraws) {
  OutputCounts counts =
      OutputCounts::create(device(), kSlots, kOutputVocabulary, /*max_steps_in_flight=*/2).value();
  std::vector<Done> running;
  int num_behind = 0;
  int num_accepted = 0;
  for (int step = 0; step < 600; ++step) {
    const bool has_drafts = std::ranges::any_of(
        running, [](const Done& done) { return !done.sequence.drafts.empty(); });
    const bool behind = !running.empty() && !has_drafts && !one_in(3);
    if (!behind) learn(running);
    BatchPlan plan;
    ids_.assign(static_cast<size_t>(step % 3), 0);
    const auto first = static_cast<int32_t>(ids_.size());
    done_.clear();
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const bool is_empty = texts_[static_cast<size_t>(slot)].id < 0;
      if (!behind && (is_empty || one_in(12))) start(slot, plan);
      compute(slot, behind, plan);
    }
    for (const Done& done : done_) plan.sequences.push_back(done.sequence);
    ASSERT_TRUE(slots_.take(plan).ok());
    ASSERT_TRUE(counts.begin(stream(), plan).ok());
    int32_t row = first;
    for (const PlannedSequence& sequence : plan.sequences) {
      counts.add(sequence, slots_[sequence.batch_slot], row);
      row += static_cast<int32_t>(sequence.num_rows());
    }
    const device::Buffer ids = uploaded(ids_);
    ASSERT_TRUE(counts.enqueue(context(), stream(), on_device(ids)).ok());
    const auto table = downloaded(counts.counts(), kSlots * kOutputVocabulary);
    for (const Done& done : done_) {
      num_accepted += static_cast<int>(done.accepted.size());
      if (done.want.empty()) continue;
      const auto begin = table.begin() + done.sequence.batch_slot * kOutputVocabulary;
      ASSERT_EQ(std::vector(begin, begin + kOutputVocabulary), done.want)
          << fmt::format("step {}, batch slot {}", step, done.sequence.batch_slot);
    }
    if (behind) learn(running);
    num_behind += behind ? 1 : 0;
    running = done_;
  }
  EXPECT_GT(num_behind, 50);
  EXPECT_GT(num_accepted, 50);
}

}  // namespace
}  // namespace heddle::runner
