// SPDX-License-Identifier: Apache-2.0
// Answers held to a form, through the engine.
#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <heddle/constraint.h>

#include "core/check.h"
#include "engine/engine_fixture.h"
#include "speculative/drafter.h"

namespace heddle::engine {
namespace {

using testing::ByteTokenizer;
using ::testing::IsEmpty;

// One text, then its end. After `fails_after` tokens no mask can be made.
class OneText final : public Constraint {
 public:
  explicit OneText(std::string text, size_t fails_after = SIZE_MAX)
      : text_(std::move(text)), fails_after_(fails_after) {}

  [[nodiscard]] int64_t vocab_size() const override { return ByteTokenizer::kVocabSize; }

  [[nodiscard]] std::unique_ptr<ConstraintState> start() const override {
    return std::make_unique<State>(*this);
  }

 private:
  class State final : public ConstraintState {
   public:
    explicit State(const OneText& constraint) : constraint_(constraint) {}

    [[nodiscard]] bool accept(TokenId token) override {
      if (token != next()) return false;
      ++position_;
      return true;
    }

    void roll_back(int64_t count) override { position_ -= static_cast<size_t>(count); }

    [[nodiscard]] bool is_complete() const override {
      return position_ >= constraint_.text_.size();
    }

    [[nodiscard]] bool is_over() const override { return is_complete(); }

    [[nodiscard]] Status fill_mask(std::span<uint32_t> mask) override {
      if (position_ >= constraint_.fails_after_) return invalid_argument("too ambiguous");
      std::ranges::fill(mask, 0u);
      mask[static_cast<size_t>(next()) / 32] |= 1u << (next() % 32);
      return {};
    }

   private:
    [[nodiscard]] TokenId next() const {
      return is_complete() ? ByteTokenizer::kEos
                           : static_cast<unsigned char>(constraint_.text_[position_]);
    }

    const OneText& constraint_;
    size_t position_ = 0;
  };

  std::string text_;
  size_t fails_after_;
};

// Knows that a stream's next token is the number of its tokens so far.
class CountingDrafter final : public speculative::Drafter {
 public:
  void observe(const request::Sequence&) override {}

  void propose(const request::Sequence& sequence, int64_t most,
               speculative::Drafts& drafts) override {
    for (int64_t i = 0; i < most; ++i) {
      drafts.tokens.push_back(static_cast<TokenId>(sequence.num_output_tokens() + i));
    }
  }

  void forget(const request::Sequence&) override {}
};

Request constrained(std::string id, std::shared_ptr<const Constraint> constraint) {
  Request request = EngineFixture::request(std::move(id), 5, 40);
  request.constraint = std::move(constraint);
  return request;
}

TEST(EngineConstraintTest, AnswersKeepToTheirFormBesideOthersThatAreFree) {
  for (const bool overlap : {false, true}) {
    EngineFixture fixture({.scheduling = {.overlap = overlap}});
    const auto form = std::make_shared<const OneText>("{\"a\": 1}");
    const auto other = std::make_shared<const OneText>("xyz");
    Received one;
    Received two;
    Received three;
    Received free;
    ASSERT_TRUE(fixture.submit(constrained("one", form), one).ok());
    ASSERT_TRUE(fixture.submit(EngineFixture::request("free", 4, 30), free).ok());
    ASSERT_TRUE(fixture.submit(constrained("two", form), two).ok());
    ASSERT_TRUE(fixture.submit(constrained("three", other), three).ok());
    while (fixture.engine->step()) fixture.engine->check_invariants();
    for (const Received* received : {&one, &two}) {
      EXPECT_EQ(received->text, "{\"a\": 1}");
      EXPECT_EQ(received->reason(), FinishReason::kStop);
    }
    EXPECT_EQ(three.text, "xyz");
    EXPECT_EQ(std::ssize(free.tokens), 30);
    EXPECT_THAT(fixture.runner->complaints(), IsEmpty());
  }
}

// Knows some texts by heart: drafts what follows the output so far in one of them.
class RecitingDrafter final : public speculative::Drafter {
 public:
  explicit RecitingDrafter(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  void observe(const request::Sequence&) override {}

  void propose(const request::Sequence& sequence, int64_t most,
               speculative::Drafts& drafts) override {
    std::string said;
    for (const TokenId token : sequence.output_tokens()) said.push_back(static_cast<char>(token));
    for (const std::string& text : texts_) {
      if (!text.starts_with(said)) continue;
      const std::string rest = text.substr(said.size());
      for (const char c : rest.substr(0, static_cast<size_t>(most))) {
        drafts.tokens.push_back(static_cast<unsigned char>(c));
      }
      return;
    }
  }

  void forget(const request::Sequence&) override {}

 private:
  std::vector<std::string> texts_;
};

EngineFixture::Options reciting(std::vector<std::string> texts, int32_t num_draft_tokens) {
  return {.make_drafter = [texts] { return std::make_unique<RecitingDrafter>(texts); },
          .num_draft_tokens = num_draft_tokens};
}

TEST(EngineConstraintTest, StreamsWithAFormHaveDrafts) {
  EngineFixture fixture(
      {.make_drafter = [] { return std::make_unique<CountingDrafter>(); }, .num_draft_tokens = 4});
  fixture.runner->script = [](const request::PlannedSequence&, int64_t num_drawn) {
    return std::optional<TokenId>(static_cast<TokenId>(num_drawn));
  };
  Received formed;
  Received free;
  ASSERT_TRUE(
      fixture.submit(constrained("formed", std::make_shared<const OneText>("abcdef")), formed)
          .ok());
  ASSERT_TRUE(fixture.submit(EngineFixture::request("free", 4, 30), free).ok());
  while (fixture.engine->step()) fixture.engine->check_invariants();
  EXPECT_EQ(formed.text, "abcdef");
  EXPECT_EQ(formed.last.drafts.accepted_tokens + formed.last.drafts.rejected_tokens, 0)
      << "none of its drafts may follow";
  std::vector<TokenId> counted(30);
  std::iota(counted.begin(), counted.end(), 0);
  EXPECT_EQ(free.tokens, counted);
  EXPECT_GT(free.last.drafts.accepted_tokens, 20);
  EXPECT_THAT(fixture.runner->complaints(), IsEmpty());
}

TEST(EngineConstraintTest, DraftsThatTheFormAllowsAreDrawnByTheirOwnMasks) {
  for (const int32_t num_draft_tokens : {2, 4, 9}) {
    EngineFixture fixture(reciting({"abcdefghij"}, num_draft_tokens));
    const Received received =
        fixture.run(constrained("one", std::make_shared<const OneText>("abcdefghij")));
    EXPECT_EQ(received.text, "abcdefghij");
    EXPECT_EQ(received.reason(), FinishReason::kStop);
    EXPECT_EQ(std::ssize(received.tokens), 10) << "no step is spent on the end";
    EXPECT_EQ(received.last.drafts.rejected_tokens, 0);
    EXPECT_GE(received.last.drafts.accepted_tokens, 4) << num_draft_tokens;
    EXPECT_THAT(fixture.runner->complaints(), IsEmpty());
  }
}

TEST(EngineConstraintTest, DraftsEndWhereTheFormForbidsThem) {
  EngineFixture fixture(reciting({"abcxyz", "abcdexyz", "abcdefgh"}, 6));
  const Received received =
      fixture.run(constrained("one", std::make_shared<const OneText>("abcdefgh")));
  EXPECT_EQ(received.text, "abcdefgh");
  EXPECT_EQ(received.last.drafts.rejected_tokens, 0) << "a forbidden draft is never computed";
  EXPECT_GE(received.last.drafts.accepted_tokens, 3);
}

TEST(EngineConstraintTest, ADraftWhoseMaskCannotBeMadeIsLeftOut) {
  EngineFixture fixture(reciting({"abcdef"}, 6));
  const Received received =
      fixture.run(constrained("one", std::make_shared<const OneText>("abcdef", 3)));
  EXPECT_EQ(received.text, "abc");
  EXPECT_EQ(received.reason(), FinishReason::kError);
  EXPECT_EQ(received.finish->error.message(), "too ambiguous");
}

// Any of some texts.
class AnyText final : public Constraint {
 public:
  explicit AnyText(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  [[nodiscard]] int64_t vocab_size() const override { return ByteTokenizer::kVocabSize; }

  [[nodiscard]] std::unique_ptr<ConstraintState> start() const override {
    return std::make_unique<State>(texts_);
  }

 private:
  class State final : public ConstraintState {
   public:
    explicit State(const std::vector<std::string>& texts) : texts_(texts) {}

    [[nodiscard]] bool accept(TokenId token) override {
      said_.push_back(static_cast<char>(token));
      if (std::ranges::any_of(texts_, [&](const auto& text) { return text.starts_with(said_); })) {
        return true;
      }
      said_.pop_back();
      return false;
    }

    void roll_back(int64_t count) override {
      said_.resize(said_.size() - static_cast<size_t>(count));
    }

    [[nodiscard]] bool is_complete() const override {
      return std::ranges::find(texts_, said_) != texts_.end();
    }

    [[nodiscard]] bool is_over() const override { return is_complete(); }

    [[nodiscard]] Status fill_mask(std::span<uint32_t> mask) override {
      std::ranges::fill(mask, 0u);
      for (const std::string& text : texts_) {
        if (!text.starts_with(said_)) continue;
        const auto next = static_cast<unsigned char>(text[said_.size()]);
        mask[next / 32] |= 1u << (next % 32);
      }
      return {};
    }

   private:
    const std::vector<std::string>& texts_;
    std::string said_;
  };

  std::vector<std::string> texts_;
};

// Drafts all texts that may follow, as a tree whose branches share nothing, each behind a wrong
// token.
class BranchingDrafter final : public speculative::Drafter {
 public:
  explicit BranchingDrafter(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  void observe(const request::Sequence&) override {}

  void propose(const request::Sequence& sequence, int64_t most,
               speculative::Drafts& drafts) override {
    std::string said;
    for (const TokenId token : sequence.output_tokens()) said.push_back(static_cast<char>(token));
    const auto add = [&](char token, int32_t parent) {
      if (std::ssize(drafts.tokens) == most) return;
      drafts.tokens.push_back(static_cast<unsigned char>(token));
      drafts.parents.push_back(parent);
    };
    for (const std::string& text : texts_) {
      if (!text.starts_with(said)) continue;
      int32_t last = -1;
      for (const char c : text.substr(said.size())) {
        add('!', last);
        add(c, last);
        last = static_cast<int32_t>(drafts.tokens.size()) - 1;
      }
    }
  }

  void forget(const request::Sequence&) override {}

 private:
  std::vector<std::string> texts_;
};

TEST(EngineConstraintTest, EveryNodeOfATreeHasTheMaskOfItsOwnPath) {
  // The allowed tokens lie far apart in the vocabulary, so that each is drawn now and then.
  const std::vector<std::string> texts = {"#ab#cd", "#ab~xy", "#~q", "~hello", "~#lp"};
  std::set<std::string> answers;
  int64_t accepted = 0, num_trees = 0;
  for (int seed = 0; seed < 12; ++seed) {
    const auto run = [&](const EngineFixture::Options& options) {
      EngineFixture fixture(options);
      fixture.runner->on_step = [&](const request::BatchPlan& plan) {
        for (const auto& sequence : plan.sequences) {
          num_trees += sequence.draft_parents.empty() ? 0 : 1;
          for (const TokenId draft : plan.drafts(sequence)) EXPECT_NE(draft, '!');
        }
        return Status();
      };
      fixture.runner->script = [seed](const request::PlannedSequence&, int64_t num_drawn) {
        return std::optional<TokenId>(static_cast<TokenId>((seed * 37 + num_drawn * 101) % 256));
      };
      Received received = fixture.run(constrained("one", std::make_shared<const AnyText>(texts)));
      EXPECT_THAT(fixture.runner->complaints(), IsEmpty());
      return received;
    };
    const Received plain = run({});
    const Received drafted =
        run({.make_drafter = [&] { return std::make_unique<BranchingDrafter>(texts); },
             .num_draft_tokens = 24});
    EXPECT_EQ(drafted.text, plain.text);
    EXPECT_EQ(drafted.reason(), FinishReason::kStop);
    answers.insert(drafted.text);
    accepted += drafted.last.drafts.accepted_tokens;
  }
  EXPECT_GT(answers.size(), 2u) << "seeds choose among the texts";
  EXPECT_GT(accepted, 12);
  EXPECT_GT(num_trees, 6);
}

// Forces a text, and says so; or takes it for another one, of which only the first `num_right`
// tokens may follow.
class ForcedText final : public Constraint {
 public:
  explicit ForcedText(std::string text, int64_t num_right = INT64_MAX)
      : text_(std::move(text)), num_right_(num_right) {}

  [[nodiscard]] int64_t vocab_size() const override { return ByteTokenizer::kVocabSize; }

  [[nodiscard]] std::unique_ptr<ConstraintState> start() const override {
    return std::make_unique<State>(*this);
  }

 private:
  class State final : public ConstraintState {
   public:
    explicit State(const ForcedText& form) : form_(form) {}

    // '!' may follow everywhere, but no draw prefers it.
    [[nodiscard]] bool accept(TokenId token) override {
      if (is_over() || (token != next(0) && token != '!')) return false;
      ++position_;
      return true;
    }

    void roll_back(int64_t count) override { position_ -= count; }

    [[nodiscard]] bool is_complete() const override { return is_over(); }

    [[nodiscard]] bool is_over() const override { return position_ == std::ssize(form_.text_); }

    [[nodiscard]] Status fill_mask(std::span<uint32_t> mask) override {
      std::ranges::fill(mask, 0u);
      for (const TokenId token : {next(0), TokenId{'!'}}) {
        mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
      }
      return {};
    }

    void forced_tokens(int64_t most, std::vector<TokenId>& tokens) override {
      most = std::min(most, std::ssize(form_.text_) - position_);
      for (int64_t i = 0; i < most; ++i) {
        tokens.push_back(i < form_.num_right_ ? next(i) : TokenId{'!'});
      }
    }

   private:
    [[nodiscard]] TokenId next(int64_t ahead) const {
      return static_cast<unsigned char>(form_.text_[static_cast<size_t>(position_ + ahead)]);
    }

    const ForcedText& form_;
    int64_t position_ = 0;
  };

  std::string text_;
  int64_t num_right_;
};

constexpr const char* kForced = "a text of forty letters is rather short.";

// The answer that follows the form to its end, and the drafts of each step.
Received run_forced(int64_t num_right, EngineFixture::Options options,
                    std::vector<int64_t>& drafts) {
  EngineFixture fixture(options);
  fixture.runner->on_step = [&](const request::BatchPlan& plan) {
    for (const auto& sequence : plan.sequences) {
      drafts.push_back(sequence.drafts.count);
      EXPECT_EQ(sequence.drafts_are_forced, !sequence.drafts.empty());
    }
    return Status();
  };
  fixture.script(ByteTokenizer::tokens_of(kForced));
  Received received =
      fixture.run(constrained("one", std::make_shared<const ForcedText>(kForced, num_right)));
  EXPECT_EQ(received.text, kForced);
  EXPECT_EQ(received.reason(), FinishReason::kStop);
  EXPECT_THAT(fixture.runner->complaints(), IsEmpty());
  const DraftReport& report = received.last.drafts;
  EXPECT_EQ(report.accepted_tokens + report.rejected_tokens, 0) << "no drafter's";
  EXPECT_EQ(report.verify_steps + report.forced_tokens, 39) << "all but the prompt's token";
  return received;
}

TEST(EngineConstraintTest, TokensThatTheFormForcesTakeNoStepsOfTheirOwn) {
  std::vector<int64_t> drafts;
  const Received received = run_forced(INT64_MAX, {}, drafts);
  EXPECT_THAT(drafts, ::testing::ElementsAre(0, 7, 7, 7, 7, 6))
      << "behind the prompt's token, and not the last one, with which the answer is over";
  EXPECT_EQ(received.last.drafts.forced_tokens, 34);
}

TEST(EngineConstraintTest, AFormThatIsSpelledOtherwiseIsLeftAlone) {
  std::vector<int64_t> drafts;
  Received received = run_forced(/*num_right=*/0, {}, drafts);
  ASSERT_EQ(drafts.size(), 40u);
  drafts.resize(6);
  EXPECT_THAT(drafts, ::testing::ElementsAre(0, 7, 3, 1, 0, 0));
  EXPECT_EQ(received.last.drafts.forced_tokens, 0);
  drafts.clear();
  received = run_forced(/*num_right=*/2, {}, drafts);
  EXPECT_EQ(drafts.size(), 14u) << "three tokens a step";
  EXPECT_EQ(received.last.drafts.forced_tokens, 26);
}

TEST(EngineConstraintTest, WithoutRowsForThemNoTokensAreForced) {
  request::StepLimits limits = roomy_limits();
  limits.max_draft_rows = 0;
  std::vector<int64_t> drafts;
  run_forced(INT64_MAX, {.limits = limits}, drafts);
  EXPECT_EQ(drafts, std::vector<int64_t>(40));
  limits.max_draft_rows = 3;
  drafts.clear();
  run_forced(INT64_MAX, {.limits = limits}, drafts);
  EXPECT_EQ(std::ranges::max(drafts), 2);
}

TEST(EngineConstraintTest, ForcedTokensAreCountedApartFromDrafts) {
  EngineFixture fixture;
  fixture.script(ByteTokenizer::tokens_of(kForced));
  fixture.run(constrained("one", std::make_shared<const ForcedText>(kForced, 2)));
  const std::string text = fixture.engine->metrics_text();
  EXPECT_THAT(text, ::testing::HasSubstr(
                        "heddle_forced_tokens_total{model_name=\"fake\",result=\"accepted\"} 26"));
  EXPECT_THAT(text, ::testing::HasSubstr(
                        "heddle_draft_tokens_total{model_name=\"fake\",result=\"accepted\"} 0"));
}

TEST(EngineConstraintTest, FormsSurviveRetractions) {
  runner::PoolSizes sizes = roomy_pools();
  sizes.num_pages = 14;  // not for all three at once
  EngineFixture fixture({.sizes = sizes, .context_length = 48});
  const auto form = std::make_shared<const OneText>("a text of twenty one.");
  std::array<Received, 3> received;
  for (size_t i = 0; i < received.size(); ++i) {
    ASSERT_TRUE(fixture.submit(constrained(fmt::format("r{}", i), form), received[i]).ok());
  }
  while (fixture.engine->step()) fixture.engine->check_invariants();
  for (const Received& each : received) EXPECT_EQ(each.text, "a text of twenty one.");
  EXPECT_THAT(fixture.runner->complaints(), IsEmpty());
}

TEST(EngineConstraintTest, TheLimitMayCutAnAnswer) {
  EngineFixture fixture;
  Request request = constrained("one", std::make_shared<const OneText>("abcdef"));
  request.stop.max_new_tokens = 3;
  const Received received = fixture.run(std::move(request));
  EXPECT_EQ(received.text, "abc");
  EXPECT_EQ(received.reason(), FinishReason::kLength);
}

TEST(EngineConstraintTest, AnAnswerThatNothingMayFollowEnds) {
  EngineFixture fixture;
  const auto form = std::make_shared<const OneText>("abc");
  Request patient = constrained("patient", form);
  patient.stop.min_new_tokens = 20;
  Request deaf = constrained("deaf", form);
  deaf.stop.ignore_eos = true;
  Request tight = constrained("tight", form);
  tight.stop.max_new_tokens = 3;
  Request stopped = constrained("stopped", form);
  stopped.stop.texts = {"c"};
  for (Request* const request : {&patient, &deaf, &tight, &stopped}) {
    const Received received = fixture.run(std::move(*request));
    EXPECT_EQ(received.text, received.finish->matched_text ? "ab" : "abc");
    EXPECT_EQ(received.reason(), FinishReason::kStop);
    EXPECT_EQ(std::ssize(received.tokens), 3) << "no step is spent on the end";
  }
  Request empty = constrained("empty", std::make_shared<const OneText>(""));
  empty.stop.min_new_tokens = 2;
  const Received received = fixture.run(std::move(empty));
  EXPECT_EQ(received.text, "");
  EXPECT_EQ(received.reason(), FinishReason::kStop);
}

TEST(EngineConstraintTest, AMaskThatCannotBeMadeEndsTheRequestWithTheReason) {
  EngineFixture fixture;
  const Received received =
      fixture.run(constrained("one", std::make_shared<const OneText>("abcdef", 2)));
  EXPECT_EQ(received.text, "ab");
  EXPECT_EQ(received.reason(), FinishReason::kError);
  EXPECT_EQ(received.finish->error.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(received.finish->error.message(), "too ambiguous");
  EXPECT_EQ(fixture.run(EngineFixture::request("two")).reason(), FinishReason::kLength);
}

}  // namespace
}  // namespace heddle::engine
