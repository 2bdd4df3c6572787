// SPDX-License-Identifier: Apache-2.0
// Drafts of `ngram` that branch, in front of a model: in exact mode answers have the tokens and the
// bits of plain decoding, and some take a way that was not the likeliest.
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <heddle/engine.h>

#include "engine/engine_loop.h"
#include "runner/load/model_runner.h"
#include "server/call/text_codec.h"
#include "speculative/drafter.h"
#include "support/finish_count.h"
#include "support/test_data.h"
#include "tokenizer/tokenizer.h"

namespace heddle {
namespace {

struct Counts {
  int64_t branched = 0;     // proposals with two ways behind one token
  int64_t second_held = 0;  // tokens that were drafted, but not as the first behind theirs
};

// Counts what another drafter's trees are worth. Of one sequence at a time.
class CountingDrafter final : public speculative::Drafter {
 public:
  CountingDrafter(std::unique_ptr<Drafter> drafter, Counts& counts)
      : drafter_(std::move(drafter)), counts_(counts) {}

  void observe(const request::Sequence& sequence) override {
    follow(std::span(sequence.tokens).subspan(std::min(proposed_at_, sequence.tokens.size())));
    proposed_ = {};
    proposed_at_ = sequence.tokens.size();
    drafter_->observe(sequence);
  }

  void propose(const request::Sequence& sequence, int64_t most,
               speculative::Drafts& drafts) override {
    drafter_->propose(sequence, most, drafts);
    proposed_ = drafts;
    for (size_t i = 0; i < drafts.parents.size(); ++i) {
      if (!is_first(i)) {
        ++counts_.branched;
        break;
      }
    }
  }

  void forget(const request::Sequence& sequence) override {
    proposed_ = {};
    proposed_at_ = 0;
    drafter_->forget(sequence);
  }

 private:
  [[nodiscard]] bool is_first(size_t draft) const {
    const auto begin = proposed_.parents.begin();
    return std::find(begin, begin + static_cast<std::ptrdiff_t>(draft), proposed_.parents[draft]) ==
           begin + static_cast<std::ptrdiff_t>(draft);
  }

  // The text went on with `tokens`: from node to node of the tree, as far as that has them.
  void follow(std::span<const TokenId> tokens) {
    int32_t node = -1;
    for (const TokenId token : tokens) {
      size_t next = 0;
      while (next < proposed_.parents.size() &&
             (proposed_.parents[next] != node || proposed_.tokens[next] != token)) {
        ++next;
      }
      if (next == proposed_.parents.size()) return;
      if (!is_first(next)) ++counts_.second_held;
      node = static_cast<int32_t>(next);
    }
  }

  std::unique_ptr<Drafter> drafter_;
  Counts& counts_;
  speculative::Drafts proposed_;
  size_t proposed_at_ = 0;  // tokens of the sequence
};

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;

  friend bool operator==(const Answer&, const Answer&) = default;
};

// Answers to one question, one after the other, each with another seed.
std::vector<Answer> answers_with(int32_t num_ways, Counts& counts) {
  EngineOptions options{.model_dir = testing::repository_path("models/heddle-tiny"),
                        .exact = true,
                        .device = "cpu",
                        .num_threads = 2,
                        .max_total_tokens = 2048};
  options.speculative.algorithm = DraftAlgorithm::kNone;
  if (num_ways > 0) {
    options.speculative = {
        .algorithm = DraftAlgorithm::kNgram, .num_draft_tokens = 8, .eagle_topk = num_ways};
  }
  auto model = runner::load_model(options);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  if (!model.ok()) return {};
  engine::EngineParts parts;
  parts.runner = std::move(model->runner);
  parts.info = std::move(model->info);
  parts.plan = model->plan;
  parts.options = std::move(model->options);
  parts.tokenizer = tokenizer::load_tokenizer(options.model_dir).value();
  if (num_ways > 0) {
    parts.drafter =
        std::make_unique<CountingDrafter>(speculative::make_drafter(options.speculative), counts);
  }
  auto engine = engine::EngineLoop::create(std::move(parts));
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  if (!engine.ok()) return {};
  const auto codec =
      server::make_model_codec(options.model_dir, *(*engine)->tokenizer(), "").value();
  const std::vector<TokenId> prompt = codec->encode("Tell me a story of a cat.", false).value();
  std::vector<Answer> answers(16);
  for (size_t i = 0; i < answers.size(); ++i) {
    Request request{.id = fmt::format("{}", i), .prompt = prompt};
    request.sampling.temperature = 0.6f;
    request.sampling.seed = i;
    request.stop.max_new_tokens = 80;
    request.return_logprobs = true;
    testing::FinishCount finished;
    const Status status = (*engine)->submit(std::move(request), [&](const RequestEvent& event) {
      answers[i].tokens.insert(answers[i].tokens.end(), event.tokens.begin(), event.tokens.end());
      for (const TokenLogprob& logprob : event.logprobs) {
        answers[i].logprobs.push_back(logprob.logprob);
      }
      if (event.finish) finished.add();
    });
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) return {};
    finished.wait_for(1);
  }
  return answers;
}

TEST(NgramTreesTest, TakeOtherWaysThanTheLikeliestAndChangeNoBit) {
  Counts none;
  const std::vector<Answer> plain = answers_with(0, none);
  Counts chains;
  EXPECT_EQ(answers_with(1, chains), plain);
  EXPECT_EQ(chains.branched, 0);
  Counts trees;
  EXPECT_EQ(answers_with(3, trees), plain);
  EXPECT_GT(trees.branched, 5);
  EXPECT_GT(trees.second_held, 0);
}

}  // namespace
}  // namespace heddle
