// SPDX-License-Identifier: Apache-2.0
// Networks that draft against what their reference computes, and what a whole engine makes of them.
#include "runner/drafting/draft_pass.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <numeric>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <heddle/engine.h>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/safetensors.h"
#include "engine/engine_loop.h"
#include "integration/eagle_reference.h"
#include "integration/on_device.h"
#include "models/drafts/eagle.h"
#include "models/drafts/eagle3.h"
#include "models/registry.h"
#include "models/small_config_fixture.h"
#include "runner/load/model_runner.h"
#include "runner/program/forward_pass.h"
#include "runner/program/model_constants.h"
#include "runner/step/pools.h"
#include "speculative/draft_tree.h"
#include "support/dense_model.h"
#include "support/test_data.h"

namespace heddle {
namespace {

constexpr int32_t kPageSize = 16;
constexpr int64_t kMaxTokens = 512;

// A model and its network over one text, whose pages are all of the pools.
class Drafting {
 public:
  Drafting(std::unique_ptr<const models::DraftModel> draft, const std::filesystem::path& weights) {
    const models::CacheNeeds draft_needs = draft->cache_needs();
    pass_ = runner::ForwardPass::create({.model_dir = model_dir(),
                                         .dtype = DType::kF32,
                                         .num_threads = 2,
                                         .max_step_tokens = kMaxTokens,
                                         .max_logit_rows = kMaxTokens,
                                         .hidden_states = draft->hidden_states()})
                .value();
    draft_pass_ = runner::DraftPass::create(
                      std::move(draft), {.weights_dir = weights, .max_rows = kMaxTokens}, *pass_)
                      .value();
    constexpr int64_t kPages = kMaxTokens / kPageSize;
    pools_ = runner::Pools::create(
                 pass_->device(), pass_->cache_needs(),
                 {.sizes = {.num_pages = kPages, .page_size = kPageSize, .num_state_slots = 1},
                  .draft_needs = draft_needs})
                 .value();
    pages_.resize(kPages);
    std::iota(pages_.begin(), pages_.end(), 1);
  }

  static std::filesystem::path model_dir() {
    return testing::repository_path("models/heddle-tiny");
  }

  // Slots 0 to ids.size() - 2 from the model's vectors; logits of these rows.
  void run_first(std::span<const int32_t> ids, std::span<const int32_t> rows) {
    const auto count = static_cast<int32_t>(ids.size());
    std::vector<int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<int32_t> query_start = {0, count}, none = {0}, slots = {1};
    const std::vector<int32_t> last = {count - 1};
    ops::ForwardContext forward{.query_start = query_start,
                                .context_lens = none,
                                .page_tables = {pages_},
                                .page_table_width = std::ssize(pages_),
                                .page_size = kPageSize,
                                .state_slots = slots,
                                .logit_rows = last,
                                .kv_layers = pools_.kv_layers(),
                                .state_layers = pools_.state_layers()};
    const request::Move fresh{.kind = request::MoveKind::kZero, .to = 1};
    ASSERT_TRUE(pools_.begin_step(pass_->stream(), pass_->context(), {&fresh, 1}).ok());
    ASSERT_TRUE(pass_->run(ids, positions, forward).ok());
    forward.kv_layers = pools_.draft_kv_layers();
    forward.state_layers = {};
    forward.logit_rows = rows;
    std::vector<int32_t> next(ids.begin() + 1, ids.end());
    next.push_back(0);
    const Status status = draft_pass_->enqueue_first(next, positions, forward);
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_TRUE(pass_->stream().synchronize().ok());
  }

  // The slot at `position` from the vector that the last step gave for its only logit row.
  void run_next(int32_t id, int32_t position) {
    const std::vector<int32_t> ids = {id}, positions = {position}, first = {0},
                               query_start = {0, 1};
    const Status status = draft_pass_->enqueue_next(ids, positions,
                                                    {.query_start = query_start,
                                                     .context_lens = positions,
                                                     .page_tables = {pages_},
                                                     .page_table_width = std::ssize(pages_),
                                                     .page_size = kPageSize,
                                                     .logit_rows = first,
                                                     .kv_layers = pools_.draft_kv_layers()},
                                                    first);
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_TRUE(pass_->stream().synchronize().ok());
  }

  // [rows, H] of run_first(): what its slots read, behind the `layer`-th of the layers they read.
  [[nodiscard]] std::vector<double> vectors(size_t layer = 0) const {
    return testing::to_doubles(pass_->device_hidden_state(layer));
  }

  [[nodiscard]] std::span<const float> logits(int64_t row) const {
    return {draft_pass_->logits().row<float>(row), static_cast<size_t>(draft_pass_->vocab_size())};
  }

 private:
  std::unique_ptr<runner::ForwardPass> pass_;
  std::unique_ptr<runner::DraftPass> draft_pass_;
  runner::Pools pools_;
  std::vector<int32_t> pages_;
};

double relative_error(std::span<const float> got, std::span<const float> expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double{got[i]} - expected[i], 2);
    norm += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

std::vector<int32_t> every_fifth(int64_t count) {
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(static_cast<int32_t>(5 * i));
  return rows;
}

TEST(PredictionHeadTest, HeddleTinysEqualsItsReference) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "golden-tiny/logits.safetensors");
  const auto file = checkpoint::SafetensorsFile::open(path).value();
  const auto config = models::load_config(Drafting::model_dir()).value();
  Drafting drafting(models::create_prediction_head(config).value(), Drafting::model_dir());
  for (int chat = 0; chat < 4; ++chat) {
    SCOPED_TRACE(chat);
    const TensorView ids = file.view(fmt::format("chat{}.input_ids", chat)).value();
    const TensorView expected = file.view(fmt::format("chat{}.draft1_logits", chat)).value();
    const int64_t num_rows = expected.shape[0];
    drafting.run_first({ids.as<int32_t>(), static_cast<size_t>(ids.num_elements())},
                       every_fifth(num_rows));
    for (int64_t row = 0; row < num_rows; ++row) {
      const std::span<const float> of_reference(expected.row<float>(row),
                                                static_cast<size_t>(expected.shape[1]));
      EXPECT_LT(relative_error(drafting.logits(row), of_reference), 2e-4) << "row " << row;
    }
  }
}

TEST(Eagle3Test, EqualsItsReferenceOverThreeSteps) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "models/eagle-tiny");
  const auto file = checkpoint::SafetensorsFile::open(folder / "eagle_golden.safetensors").value();
  const auto config = models::load_config(Drafting::model_dir()).value();
  Drafting drafting(models::load_eagle3(folder, config).value(), folder);
  for (int chat = 0; chat < 4; ++chat) {
    const TensorView stored = file.view(fmt::format("chat{}.input_ids", chat)).value();
    const std::span<const int32_t> ids(stored.as<int32_t>(),
                                       static_cast<size_t>(stored.num_elements()));
    const auto expect_step = [&](int step, int64_t row) {
      const TensorView expected =
          file.view(fmt::format("chat{}.step{}_logits", chat, step)).value();
      const std::span<const float> of_reference(expected.row<float>(row),
                                                static_cast<size_t>(expected.shape[1]));
      EXPECT_LT(relative_error(drafting.logits(0), of_reference), 2e-4)
          << "chat " << chat << ", step " << step << ", row " << row;
    };
    const int64_t num_rows = file.view(fmt::format("chat{}.step1_logits", chat)).value().shape[0];
    for (int64_t row = 0; row < num_rows; ++row) {
      // A draft of its own: slots up to p are the model's, the next two the network's.
      const auto p = static_cast<int32_t>(5 * row);
      const std::vector<int32_t> wanted = {p};
      drafting.run_first(ids, wanted);
      expect_step(1, row);
      for (const int32_t step : {2, 3}) {
        drafting.run_next(ids[static_cast<size_t>(p + step)], p + step - 1);
        expect_step(step, row);
      }
    }
    // The network reads three layers of every position, beside each other.
    const TensorView aux = file.view(fmt::format("chat{}.aux", chat)).value();
    const auto width = static_cast<size_t>(aux.shape[1] / 3);
    for (size_t layer = 0; layer < 3; ++layer) {
      const std::vector<double> vectors = drafting.vectors(layer);
      ASSERT_EQ(vectors.size(), ids.size() * width);
      for (size_t p = 0; p < ids.size(); ++p) {
        const std::vector<float> got(
            vectors.begin() + static_cast<std::ptrdiff_t>(p * width),
            vectors.begin() + static_cast<std::ptrdiff_t>((p + 1) * width));
        const float* const of_reference = aux.row<float>(static_cast<int64_t>(p)) + layer * width;
        EXPECT_LT(relative_error(got, {of_reference, width}), 2e-4)
            << "chat " << chat << ", layer " << layer << ", position " << p;
      }
    }
  }
}

// Where a network with random weights lies.
class EagleTest : public ::testing::Test {
 protected:
  EagleTest() {
    const auto config = models::load_config(Drafting::model_dir()).value();
    const auto weights = runner::open_weights(Drafting::model_dir(), false).value();
    const auto of_model = [&](const char* name) {
      const auto stored =
          weights->find({.name = name, .shape = {config.vocab_size, config.hidden_size}});
      return TensorView(stored->data, DType::kBf16, stored->shape);
    };
    reference_ = std::make_unique<testing::EagleReference>(
        folder_.path(), of_model("model.embed_tokens.weight"), of_model("lm_head.weight"));
  }

  checkpoint::testing::TemporaryFolder folder_;
  std::unique_ptr<testing::EagleReference> reference_;
};

TEST_F(EagleTest, EqualsItsReferenceOverThreeSteps) {
  const auto config = models::load_config(Drafting::model_dir()).value();
  Drafting drafting(models::load_eagle(folder_.path(), config).value(), folder_.path());
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 40; ++i) ids.push_back((i * 37 + 11) % 1500);
  for (const int32_t last : {0, 17, 36}) {
    SCOPED_TRACE(last);
    drafting.run_first(ids, std::vector<int32_t>{last});
    const std::vector<double> vectors = drafting.vectors();
    const auto width = static_cast<size_t>(config.hidden_size);
    std::vector<double> given;
    for (int32_t p = 0; p <= last; ++p) {
      given = reference_->slot(p, ids[static_cast<size_t>(p) + 1],
                               std::span(vectors).subspan(static_cast<size_t>(p) * width, width));
    }
    for (int32_t step = 1;; ++step) {
      const std::span<const float> logits = drafting.logits(0);
      EXPECT_LT(testing::relative_error(std::vector<double>(logits.begin(), logits.end()),
                                        reference_->logits(given)),
                1e-5)
          << "step " << step;
      if (step == 3) break;
      const int32_t id = ids[static_cast<size_t>(last + step) + 1];
      drafting.run_next(id, last + step);
      given = reference_->slot(last + step, id, given);
    }
  }
}

// A step of a sequence: the drafts that it verified, and what it drew.
struct Round {
  std::vector<TokenId> drafts;
  std::vector<int32_t> parents;  // of the drafts; empty: a chain
  std::vector<TokenId> drawn;

  friend bool operator==(const Round&, const Round&) = default;

  friend void PrintTo(const Round& round, std::ostream* out) {
    *out << fmt::format("[{}] behind [{}] -> [{}]", fmt::join(round.drafts, " "),
                        fmt::join(round.parents, " "), fmt::join(round.drawn, " "));
  }
};

// Whether the runner may keep what it drafts to itself: a round has kKeptDraft then.
enum class DraftTokens : uint8_t { kTold, kKept };

// Notes the steps of the only sequence.
class SpyRunner final : public runner::Runner {
 public:
  SpyRunner(std::unique_ptr<runner::Runner> runner, DraftTokens tokens, std::vector<Round>& rounds)
      : runner_(std::move(runner)), tokens_(tokens), rounds_(rounds) {}

  [[nodiscard]] const runner::PoolSizes& pool_sizes() const override {
    return runner_->pool_sizes();
  }

  [[nodiscard]] const request::StepLimits& step_limits() const override {
    return runner_->step_limits();
  }

  Status submit(const request::BatchPlan& plan) override {
    for (const auto& sequence : plan.sequences) {
      const auto drafts = plan.drafts(sequence);
      const auto parents = plan.parents_of_drafts(sequence);
      planned_.push_back({.drafts = {drafts.begin(), drafts.end()},
                          .parents = {parents.begin(), parents.end()},
                          .drawn = {}});
    }
    if (tokens_ == DraftTokens::kKept) return runner_->submit(plan);
    request::BatchPlan& told = plans_.emplace_back(plan);
    for (auto& sequence : told.sequences) sequence.may_keep_drafts = false;
    return runner_->submit(told);
  }

  Result<request::StepOutput> wait() override {
    HEDDLE_ASSIGN_OR_RETURN(request::StepOutput output, runner_->wait());
    if (tokens_ == DraftTokens::kTold) plans_.pop_front();
    Round round = std::move(planned_.front());
    planned_.pop_front();
    for (const auto& sampled : output.tokens) {
      if (!sampled.skipped) round.drawn.push_back(sampled.token);
    }
    rounds_.push_back(std::move(round));
    return output;
  }

  void recycle(request::StepOutput output) override { runner_->recycle(std::move(output)); }

 private:
  std::unique_ptr<runner::Runner> runner_;
  const DraftTokens tokens_;
  std::vector<Round>& rounds_;
  std::deque<Round> planned_;
  std::deque<request::BatchPlan> plans_;  // as they were submitted
};

EngineOptions drafting_options(const SpeculativeOptions& speculative) {
  return {.model_dir = Drafting::model_dir(),
          .exact = true,
          .device = "cpu",
          .num_threads = 2,
          .max_total_tokens = 8192,
          .speculative = speculative,
          .skip_tokenizer = true};
}

// The first part of two recorded chats.
std::vector<std::vector<TokenId>> chat_prompts(double share) {
  const auto file = checkpoint::SafetensorsFile::open(
                        testing::repository_path("tests/golden/heddle_tiny/logits.safetensors"))
                        .value();
  std::vector<std::vector<TokenId>> prompts;
  for (const char* name : {"chat0.input_ids", "chat1.input_ids"}) {
    const TensorView ids = file.view(name).value();
    const auto count = static_cast<size_t>(share * static_cast<double>(ids.num_elements()));
    prompts.emplace_back(ids.as<int32_t>(), ids.as<int32_t>() + count);
  }
  return prompts;
}

// The steps of greedy answers to prompts, one after the other.
std::vector<std::vector<Round>> rounds_of(const std::vector<std::vector<TokenId>>& prompts,
                                          const EngineOptions& options,
                                          DraftTokens tokens = DraftTokens::kTold) {
  std::vector<Round> rounds;
  runner::LoadedModel model = runner::load_model(options).value();
  engine::EngineParts parts;
  parts.runner = std::make_unique<SpyRunner>(std::move(model.runner), tokens, rounds);
  parts.info = std::move(model.info);
  parts.plan = model.plan;
  parts.options = std::move(model.options);
  const auto engine = engine::EngineLoop::create(std::move(parts)).value();
  std::vector<std::vector<Round>> all;
  for (const std::vector<TokenId>& prompt : prompts) {
    std::promise<void> finished;
    Request request{.id = "one", .prompt = prompt};
    request.sampling.temperature = 0;
    request.stop.max_new_tokens = 300;
    const Status status = engine->submit(std::move(request), [&](const RequestEvent& event) {
      if (event.finish) finished.set_value();
    });
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) return all;
    finished.get_future().wait();
    all.push_back(std::move(rounds));
    rounds.clear();
  }
  return all;
}

// Rounds that a reference recorded for the same model and network: its drafts and draws are ours,
// token for token.
void expect_recorded_rounds(const std::string& config, const SpeculativeOptions& speculative) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "models/eagle-tiny/traces.jsonl");
  std::vector<std::vector<TokenId>> prompts;
  std::vector<nlohmann::json> records;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    auto record = nlohmann::json::parse(line);
    if (record.at("config") != config) continue;
    prompts.push_back(record.at("prompt_ids").get<std::vector<TokenId>>());
    records.push_back(std::move(record));
  }
  ASSERT_GE(records.size(), 8U);
  const auto all = rounds_of(prompts, drafting_options(speculative));
  ASSERT_EQ(all.size(), records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    SCOPED_TRACE(fmt::format("{} {}", records[i].at("set").get<std::string>(), i));
    std::vector<Round> expected;
    const TokenId end = records[i].at("output_ids").back();
    for (const auto& round : records[i].at("rounds")) {
      auto drafts = round.at("draft_tokens").get<std::vector<TokenId>>();
      drafts.erase(drafts.begin());  // the token that is known
      auto parents = round.at("parents").get<std::vector<int32_t>>();
      parents.erase(parents.begin());
      for (int32_t& parent : parents) --parent;
      if (speculative::is_chain(parents)) parents.clear();
      auto drawn = round.at("emitted").get<std::vector<TokenId>>();
      // The reference goes on behind the end of a text.
      const auto ended = std::ranges::find(drawn, end);
      if (ended != drawn.end()) drawn.erase(ended + 1, drawn.end());
      expected.push_back(
          {.drafts = std::move(drafts), .parents = std::move(parents), .drawn = std::move(drawn)});
    }
    const auto& rounds = all[i];
    ASSERT_EQ(rounds.size(), expected.size() + 1) << "and that of the prompt";
    EXPECT_TRUE(rounds.front().drafts.empty());
    for (size_t round = 0; round < expected.size(); ++round) {
      EXPECT_EQ(rounds[round + 1], expected[round]) << "round " << round;
    }
  }
}

TEST(PredictionHeadTest, ItsRoundsAreTheRecordedOnes) {
  expect_recorded_rounds("mtp_chain_steps3_tokens4",
                         {.algorithm = DraftAlgorithm::kMtp, .num_draft_tokens = 4});
}

TEST(Eagle3Test, ItsRoundsAreTheRecordedOnes) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "models/eagle-tiny");
  expect_recorded_rounds(
      "eagle3_chain_steps3_topk1_tokens4",
      {.algorithm = DraftAlgorithm::kEagle3, .draft_model_dir = folder, .num_draft_tokens = 4});
}

TEST(Eagle3Test, ItsTreesAreTheRecordedOnes) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "models/eagle-tiny");
  expect_recorded_rounds("eagle3_tree_steps3_topk4_tokens8", {.algorithm = DraftAlgorithm::kEagle3,
                                                              .draft_model_dir = folder,
                                                              .num_draft_tokens = 8,
                                                              .num_steps = 3,
                                                              .eagle_topk = 4});
}

// A convention that is wrong by one shows in what holds: 1.5 tokens a step instead of more than 3.
TEST(PredictionHeadTest, MostOfItsDraftsHold) {
  int64_t steps = 0, tokens = 0;
  for (const auto& rounds :
       rounds_of(chat_prompts(0.5),
                 drafting_options({.algorithm = DraftAlgorithm::kMtp, .num_draft_tokens = 4}))) {
    for (const Round& round : std::span(rounds).subspan(1)) {
      ++steps;
      tokens += std::ssize(round.drawn);
    }
  }
  EXPECT_GT(steps, 10);
  EXPECT_GT(static_cast<double>(tokens), 2.8 * static_cast<double>(steps));
}

// In exact mode the network's slots are those of the prompt in one piece, so that the drafts are.
TEST(PredictionHeadTest, DraftsBehindChunksAreThoseBehindAWholePrompt) {
  EngineOptions options =
      drafting_options({.algorithm = DraftAlgorithm::kMtp, .num_draft_tokens = 4});
  options.page_size = 1;
  options.cache.enabled = false;
  const auto whole = rounds_of(chat_prompts(0.7), options);
  options.max_running_requests = 1;
  options.chunked_prefill_tokens = 7;
  const auto chunked = rounds_of(chat_prompts(0.7), options);
  ASSERT_EQ(whole.size(), chunked.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    // The prompt takes one step, or one for each chunk.
    const auto rounds = std::span(chunked[i]).last(whole[i].size());
    EXPECT_GT(chunked[i].size(), whole[i].size() + 3);
    for (size_t round = 0; round < rounds.size(); ++round) {
      EXPECT_EQ(rounds[round], whole[i][round]) << "prompt " << i << ", round " << round;
    }
  }
}

SpeculativeOptions tree_of(int32_t num_steps, int32_t topk, int32_t num_draft_tokens) {
  return {.algorithm = DraftAlgorithm::kMtp,
          .num_draft_tokens = num_draft_tokens,
          .num_steps = num_steps,
          .eagle_topk = topk};
}

// The tokens that were drawn, by prompt.
std::vector<std::vector<TokenId>> text_of(const std::vector<std::vector<Round>>& all) {
  std::vector<std::vector<TokenId>> texts;
  for (const auto& rounds : all) {
    texts.emplace_back();
    for (const Round& round : rounds) {
      texts.back().insert(texts.back().end(), round.drawn.begin(), round.drawn.end());
    }
  }
  return texts;
}

// One level, which needs no step of the network for itself; few wide ones; deep narrow ones.
TEST(PredictionHeadTest, TreesOfAnyShapeChangeNoToken) {
  const auto prompts = chat_prompts(0.6);
  const auto plain = rounds_of(prompts, drafting_options({.algorithm = DraftAlgorithm::kNone}));
  for (const SpeculativeOptions& shape :
       {tree_of(1, 4, 5), tree_of(2, 16, 40), tree_of(7, 2, 16)}) {
    SCOPED_TRACE(fmt::format("{} steps, topk {}", shape.num_steps, shape.eagle_topk));
    const auto all = rounds_of(prompts, drafting_options(shape));
    EXPECT_EQ(text_of(all), text_of(plain));
    size_t longest = 0;
    int64_t num_trees = 0;
    for (const auto& rounds : all) {
      for (const Round& round : rounds) {
        longest = std::max(longest, round.drawn.size());
        num_trees += round.parents.empty() ? 0 : 1;
        EXPECT_LT(std::ssize(round.drafts), shape.num_draft_tokens);
      }
    }
    EXPECT_GT(num_trees, 3);
    EXPECT_EQ(longest, static_cast<size_t>(shape.num_steps) + 1) << "of a tree that held whole";
  }
}

// Families whose files store the head as one more layer. With random weights nothing holds, and
// answers are those without drafts.
class StoredLayerHead : public ::testing::TestWithParam<const char*> {};

TEST_P(StoredLayerHead, ChangesNoToken) {
  const auto folder =
      std::filesystem::path(::testing::TempDir()) / fmt::format("heddle_stored_head_{}", getpid());
  std::filesystem::create_directories(folder);
  auto config = models::testing::small_of(GetParam());
  config["num_nextn_predict_layers"] = 1;
  config["max_position_embeddings"] = 512;
  std::ofstream(folder / "config.json") << config.dump();
  std::vector<std::vector<TokenId>> drawn(3);  // without drafts, with chains, with trees
  int64_t num_drafts = 0;
  for (size_t i = 0; i < drawn.size(); ++i) {
    SpeculativeOptions speculative;
    if (i == 1) speculative = {.algorithm = DraftAlgorithm::kMtp, .num_draft_tokens = 4};
    if (i == 2) speculative = tree_of(3, 3, 8);
    EngineOptions options = drafting_options(speculative);
    options.model_dir = folder;
    options.load_format = LoadFormat::kDummy;
    const auto all = rounds_of({{5, 6, 7, 8, 9}}, options);
    ASSERT_EQ(all.size(), 1U);
    for (const Round& round : all.front()) {
      drawn[i].insert(drawn[i].end(), round.drawn.begin(), round.drawn.end());
      num_drafts += std::ssize(round.drafts);
    }
  }
  EXPECT_EQ(drawn[0].size(), 300U);
  EXPECT_EQ(drawn[0], drawn[1]);
  EXPECT_EQ(drawn[0], drawn[2]);
  EXPECT_GT(num_drafts, 200);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Families, StoredLayerHead,
                         ::testing::Values("DeepseekV3ForCausalLM", "Glm4MoeForCausalLM"),
                         [](const auto& family) { return std::string(family.param); });

// They are the same drafts: as many of them hold.
TEST_F(EagleTest, DraftsThatAreKeptHoldAsTheOthersDo) {
  const auto prompts = chat_prompts(0.3);
  for (SpeculativeOptions speculative :
       {SpeculativeOptions{.algorithm = DraftAlgorithm::kMtp, .num_draft_tokens = 4},
        tree_of(3, 4, 8)}) {
    SCOPED_TRACE(speculative.eagle_topk);
    const EngineOptions options = drafting_options(speculative);
    const auto told = rounds_of(prompts, options, DraftTokens::kTold);
    const auto kept = rounds_of(prompts, options, DraftTokens::kKept);
    ASSERT_EQ(kept.size(), told.size());
    for (size_t i = 0; i < told.size(); ++i) {
      ASSERT_EQ(kept[i].size(), told[i].size());
      for (size_t j = 0; j < told[i].size(); ++j) {
        EXPECT_EQ(kept[i][j].drawn, told[i][j].drawn);
        EXPECT_EQ(kept[i][j].drafts,
                  std::vector<TokenId>(told[i][j].drafts.size(), request::kKeptDraft));
      }
    }
  }
}

TEST_F(EagleTest, ChangesNoToken) {
  const auto prompts = chat_prompts(0.3);
  const auto plain = rounds_of(prompts, drafting_options({.algorithm = DraftAlgorithm::kNone}));
  SpeculativeOptions tree = tree_of(3, 4, 8);
  tree.algorithm = DraftAlgorithm::kEagle;
  SpeculativeOptions chain{.algorithm = DraftAlgorithm::kEagle, .num_draft_tokens = 4};
  for (SpeculativeOptions* speculative : {&chain, &tree}) {
    SCOPED_TRACE(speculative->eagle_topk);
    speculative->draft_model_dir = folder_.path();
    const auto all = rounds_of(prompts, drafting_options(*speculative));
    EXPECT_EQ(text_of(all), text_of(plain));
    EXPECT_GT(std::ssize(all.front().at(1).drafts), 0);
  }
}

// A GPU hands drafts on by itself: where it took another token or another row, the text would be
// the same, and drafts would be worse. Where they are kept, it verifies what it made by itself.
class DraftsOnGpu : public EagleTest, public ::testing::WithParamInterface<DraftAlgorithm> {};

TEST_P(DraftsOnGpu, AreThoseOfTheCpu) {
  HEDDLE_DEVICE_OR_SKIP(std::string("cuda"));
  SpeculativeOptions speculative{.algorithm = GetParam(), .num_draft_tokens = 4};
  if (GetParam() == DraftAlgorithm::kEagle) speculative.draft_model_dir = folder_.path();
  if (GetParam() == DraftAlgorithm::kStandalone) {
    speculative.draft_model_dir = Drafting::model_dir();
  }
  if (GetParam() == DraftAlgorithm::kEagle3) {
    HEDDLE_SHARED_PATH_OR_SKIP(folder, "models/eagle-tiny");
    speculative.draft_model_dir = folder;
  }
  EngineOptions options = drafting_options(speculative);
  const auto prompts = chat_prompts(0.6);
  for (const DraftTokens tokens : {DraftTokens::kTold, DraftTokens::kKept}) {
    SCOPED_TRACE(tokens == DraftTokens::kTold ? "told" : "kept");
    options.device = "cpu";
    const auto on_cpu = rounds_of(prompts, options, tokens);
    options.device = "cuda";
    const auto on_gpu = rounds_of(prompts, options, tokens);
    EXPECT_EQ(text_of(on_gpu), text_of(on_cpu));
    int64_t num_rounds = 0, num_equal = 0;
    for (size_t i = 0; i < on_cpu.size(); ++i) {
      num_rounds += std::ssize(on_cpu[i]);
      for (size_t j = 0; j < std::min(on_cpu[i].size(), on_gpu[i].size()); ++j) {
        num_equal += on_cpu[i][j] == on_gpu[i][j] ? 1 : 0;
      }
    }
    EXPECT_GE(num_rounds, 8);
    EXPECT_GE(num_equal, num_rounds - num_rounds / 20) << "of " << num_rounds << ": near ties";
  }
}

// Several texts at once, of which one has a penalty and one is known whole when it comes: steps
// whose drafts the device judges and such that the host judges follow each other.
TEST_P(DraftsOnGpu, OfSeveralTextsHoldAsThoseOfTheCpu) {
  HEDDLE_DEVICE_OR_SKIP(std::string("cuda"));
  if (GetParam() != DraftAlgorithm::kMtp) GTEST_SKIP() << "one drafter is enough";
  std::vector<std::vector<TokenId>> prompts = chat_prompts(0.3);
  for (const double share : {0.45, 0.6}) {
    for (auto& prompt : chat_prompts(share)) prompts.push_back(std::move(prompt));
  }
  prompts.push_back(prompts.front());
  std::map<std::string, std::vector<std::vector<TokenId>>> texts;
  std::map<std::string, int64_t> accepted;
  for (const std::string device : {"cpu", "cuda"}) {
    EngineOptions options =
        drafting_options({.algorithm = DraftAlgorithm::kMtp, .num_draft_tokens = 4});
    options.device = device;
    options.max_running_requests = 4;
    const auto engine = Engine::create(options).value();
    std::vector<std::promise<RequestEvent>> last(prompts.size());
    auto& text = texts[device];
    text.resize(prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      Request request{.id = std::to_string(i), .prompt = prompts[i]};
      request.sampling.temperature = 0;
      if (i == 2) request.sampling.frequency_penalty = 0.01f;
      request.stop.max_new_tokens = i == 2 ? 40 : 150;
      request.stop.ignore_eos = true;
      const Status status = engine->submit(std::move(request), [&, i](const RequestEvent& event) {
        text[i].insert(text[i].end(), event.tokens.begin(), event.tokens.end());
        if (event.finish) last[i].set_value(event);
      });
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    int64_t num_known_whole = 0;
    for (auto& one : last) {
      const RequestEvent event = one.get_future().get();
      accepted[device] += event.drafts.accepted_tokens;
      num_known_whole += event.cache.exact_repeat ? 1 : 0;
    }
    EXPECT_EQ(num_known_whole, 1) << device;
  }
  EXPECT_EQ(texts["cuda"], texts["cpu"]);
  EXPECT_GT(accepted["cpu"], 200);
  EXPECT_NEAR(static_cast<double>(accepted["cuda"]), static_cast<double>(accepted["cpu"]),
              0.1 * static_cast<double>(accepted["cpu"]));
}

INSTANTIATE_TEST_SUITE_P(Cuda, DraftsOnGpu,
                         ::testing::Values(DraftAlgorithm::kMtp, DraftAlgorithm::kEagle,
                                           DraftAlgorithm::kEagle3, DraftAlgorithm::kStandalone),
                         [](const auto& one) { return std::string(to_string(one.param)); });

TEST(PredictionHeadTest, ACheckpointWithoutOneIsRefusedByName) {
  HEDDLE_SHARED_PATH_OR_SKIP(headless, "golden/qwen3_next");
  const auto model = runner::load_model({.model_dir = headless,
                                         .device = "cpu",
                                         .num_threads = 1,
                                         .speculative = {.algorithm = DraftAlgorithm::kMtp},
                                         .skip_tokenizer = true});
  EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(model.status().message(), ::testing::HasSubstr("no tensor mtp.fc.weight"));
}

TEST(PredictionHeadTest, AFamilyWithoutOneIsRefusedByName) {
  const auto dense = runner::load_model({.model_dir = testing::dense_model(),
                                         .device = "cpu",
                                         .num_threads = 1,
                                         .speculative = {.algorithm = DraftAlgorithm::kMtp},
                                         .skip_tokenizer = true});
  EXPECT_EQ(dense.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(dense.status().message(), ::testing::HasSubstr("prediction head of Qwen2"));
}

}  // namespace
}  // namespace heddle
