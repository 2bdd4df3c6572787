// SPDX-License-Identifier: Apache-2.0
// How many drafts hold over question sets: as many as the reference of the networks recorded, and
// as many behind chunks of prompts and behind prefixes from the cache. The first 15 questions of
// two sets in every run, for which the reference has figures of their own; all of them with
// HEDDLE_TEST_FULL=1.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "server/call/text_codec.h"
#include "support/finish_count.h"
#include "support/test_data.h"
#include "tokenizer/tokenizer.h"

namespace heddle {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int64_t kSampled = 15;

// One figure of the reference.
struct Recorded {
  int64_t num_prompts = 0;
  double accept_length = 0;   // tokens of steps that verified, the bonus included, for each step
  double standard_error = 0;  // over prompts; 0: not known
};

Recorded recorded(const nlohmann::json& figures, const std::string& set,
                  const std::string& configuration) {
  const char* table = testing::wants_everything() ? "sets" : "every_node_verified";
  const auto& entry = figures.at(table).at(set).at(configuration);
  return {.num_prompts = entry.at("prompts"),
          .accept_length = entry.at("accept_length"),
          .standard_error = entry.value("per_prompt_stderr", 0.0)};
}

std::vector<Tokens> prompts_of(const std::string& set, int64_t count,
                               const server::TextCodec& codec) {
  std::vector<Tokens> prompts;
  std::ifstream lines(testing::shared_path(fmt::format("golden-tiny/{}.jsonl", set)).value());
  for (std::string line; std::ssize(prompts) < count && std::getline(lines, line);) {
    const auto question = nlohmann::ordered_json::parse(line);
    const std::string text =
        codec.render_chat(question.at("messages"), nullptr, true, nlohmann::ordered_json::object())
            .value();
    prompts.push_back(codec.encode(text, false).value());
  }
  return prompts;
}

class DraftAcceptanceTest : public ::testing::Test {
 protected:
  // An engine whose chains have three drafts, always.
  // Trees: of three levels from four branches each, eight rows.
  void start(DraftAlgorithm algorithm, bool caches, int64_t chunk_tokens, bool trees = false) {
    EngineOptions options{.model_dir = testing::repository_path("models/heddle-tiny"),
                          .exact = true,
                          .device = "cpu",
                          .num_threads = 2,
                          .max_running_requests = 4,
                          .chunked_prefill_tokens = chunk_tokens,
                          .max_total_tokens = 16384,
                          .speculative = {.algorithm = algorithm, .num_draft_tokens = 4}};
    if (algorithm == DraftAlgorithm::kEagle3) {
      options.speculative.draft_model_dir = testing::shared_path("models/eagle-tiny").value();
    }
    if (trees) {
      options.speculative.num_draft_tokens = 8;
      options.speculative.num_steps = 3;
      options.speculative.eagle_topk = 4;
    }
    options.cache.enabled = caches;
    if (chunk_tokens < 16) options.page_size = 1;  // chunks are whole pages
    auto engine = Engine::create(options);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    engine_ = std::move(*engine);
    codec_ = server::make_model_codec(options.model_dir, *engine_->tokenizer(), {}).value();
  }

  struct Acceptance {
    double tokens_per_step = 0;  // of all steps behind the prompt's
    double accepted_drafts = 0;  // of three
  };

  // Answers them greedily, four at a time.
  Acceptance ask(const std::vector<Tokens>& prompts, int64_t max_new_tokens) {
    testing::FinishCount finished;
    DraftReport total;
    for (size_t i = 0; i < prompts.size(); ++i) {
      Request request{.id = fmt::format("{}", i), .prompt = prompts[i]};
      request.sampling.temperature = 0;
      request.stop.max_new_tokens = max_new_tokens;
      const Status status = engine_->submit(std::move(request), [&](const RequestEvent& event) {
        if (!event.finish) return;
        EXPECT_NE(event.finish->reason, FinishReason::kError);
        total.verify_steps += event.drafts.verify_steps;
        total.accepted_tokens += event.drafts.accepted_tokens;
        total.rejected_tokens += event.drafts.rejected_tokens;
        finished.add();
      });
      EXPECT_TRUE(status.ok()) << status.to_string();
      if (!status.ok()) return {};
    }
    finished.wait_for(prompts.size());
    const auto accepted = static_cast<double>(total.accepted_tokens);
    const auto drafts = accepted + static_cast<double>(total.rejected_tokens);
    return {.tokens_per_step = 1 + accepted / static_cast<double>(total.verify_steps),
            .accepted_drafts = 3 * accepted / drafts};
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<server::TextCodec> codec_;
};

std::vector<std::string> sets() {
  if (testing::wants_everything()) return {"skill", "math", "recall", "story"};
  return {"math", "recall"};
}

int64_t longest_answer(const std::string& set) { return set == "story" ? 260 : 72; }

TEST_F(DraftAcceptanceTest, IsThatOfTheReference) {
  HEDDLE_SHARED_PATH_OR_SKIP(figures_file, "models/eagle-tiny/figures.json");
  const auto figures = nlohmann::json::parse(std::ifstream(figures_file));
  for (const auto& [algorithm, trees, configuration] :
       {std::tuple(DraftAlgorithm::kMtp, false, "mtp_chain_steps3_tokens4"),
        std::tuple(DraftAlgorithm::kEagle3, false, "eagle3_chain_steps3_topk1_tokens4"),
        std::tuple(DraftAlgorithm::kEagle3, true, "eagle3_tree_steps3_topk4_tokens8")}) {
    start(algorithm, /*caches=*/false, 512, trees);
    for (const std::string& set : sets()) {
      const Recorded expected = recorded(figures, set, configuration);
      const double got =
          ask(prompts_of(set, expected.num_prompts, *codec_), longest_answer(set)).tokens_per_step;
      // Where the reference verified every node, it counted what is counted here.
      const double tolerance = std::max(2 * expected.standard_error, 0.02);
      EXPECT_NEAR(got, expected.accept_length, tolerance) << configuration << ", " << set;
    }
  }
}

TEST_F(DraftAcceptanceTest, IsNotLowerBehindChunksAndCachedPrefixes) {
  if (!testing::shared_path("golden-tiny") || !testing::shared_path("models/eagle-tiny")) {
    GTEST_SKIP() << "needs golden-tiny and models/eagle-tiny below the folder of HEDDLE_SHARED";
  }
  const bool all = testing::wants_everything();
  std::vector<DraftAlgorithm> algorithms = {DraftAlgorithm::kMtp};
  if (all) algorithms.push_back(DraftAlgorithm::kEagle3);
  for (const DraftAlgorithm algorithm : algorithms) {
    for (const std::string& set : sets()) {
      if (!all && set != "math") continue;
      SCOPED_TRACE(fmt::format("{}, {}", to_string(algorithm), set));
      start(algorithm, /*caches=*/false, 512);
      const auto prompts = prompts_of(set, all ? 60 : kSampled, *codec_);
      const auto accepted_of_three = [&] {
        return ask(prompts, longest_answer(set)).accepted_drafts;
      };
      const double whole = accepted_of_three();
      EXPECT_GT(whole, 1.5);

      start(algorithm, /*caches=*/false, 7);
      EXPECT_GE(accepted_of_three(), whole - 0.05) << "chunks";

      // Answers in `skill` have some ten tokens, of which the first are the easiest to guess: one
      // step without drafts, or behind a slot that another text wrote, is a good part of them.
      const double loss = set == "skill" ? 0.35 : 0.05;
      // A text that begins alike was asked before: the slot at the end of what they share was
      // written with another next token.
      start(algorithm, /*caches=*/true, 512);
      std::vector<Tokens> others = prompts;
      for (Tokens& other : others) other.resize(other.size() * 2 / 3);
      (void)ask(others, 4);
      EXPECT_GE(accepted_of_three(), whole - loss) << "cached prefixes";
      // The first step behind a prompt that is known whole has no drafts.
      EXPECT_GE(accepted_of_three(), whole - loss) << "cached prompts";
    }
  }
}

}  // namespace
}  // namespace heddle
