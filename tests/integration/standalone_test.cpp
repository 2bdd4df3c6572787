// SPDX-License-Identifier: Apache-2.0
// A whole model that drafts: heddle-tiny for itself, so that in exact mode each draft is the token
// that the model finds most likely, however much of a text came from the cache, and its recurrent
// states are put to the test; and a model without states for itself.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <heddle/engine.h>

#include "checkpoint/safetensors.h"
#include "runner/load/model_runner.h"
#include "support/dense_model.h"
#include "support/finish_count.h"
#include "support/hand_plan.h"
#include "support/test_data.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Tokens = std::vector<TokenId>;

std::filesystem::path tiny() { return testing::repository_path("models/heddle-tiny"); }

std::filesystem::path dense() { return testing::dense_model(); }

struct StandaloneAnswer {
  Tokens tokens;
  Tokens most_likely;  // at the same places
  std::vector<float> logprobs;
  DraftReport drafts;
  int64_t cached_tokens = 0;
};

// The first parts of recorded chats.
std::vector<Tokens> chats() {
  const auto file = checkpoint::SafetensorsFile::open(
                        testing::repository_path("tests/golden/heddle_tiny/logits.safetensors"))
                        .value();
  std::vector<Tokens> all;
  for (const char* name : {"chat0.input_ids", "chat1.input_ids"}) {
    const TensorView ids = file.view(name).value();
    for (const double share : {0.3, 0.6}) {
      const auto count = static_cast<size_t>(share * static_cast<double>(ids.num_elements()));
      all.emplace_back(ids.as<int32_t>(), ids.as<int32_t>() + count);
    }
  }
  return all;
}

EngineOptions options_of(const std::filesystem::path& model, int32_t num_draft_tokens) {
  EngineOptions options{.model_dir = model,
                        .exact = true,
                        .device = "cpu",
                        .num_threads = 2,
                        .max_running_requests = 4,
                        .max_total_tokens = 8192,
                        .speculative = {.algorithm = DraftAlgorithm::kNone},
                        .skip_tokenizer = true};
  options.cache.enabled = false;
  if (num_draft_tokens > 0) {
    options.speculative = {.algorithm = DraftAlgorithm::kStandalone,
                           .draft_model_dir = model,
                           .num_draft_tokens = num_draft_tokens};
  }
  return options;
}

std::unique_ptr<Engine> start(const EngineOptions& options) {
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? std::move(*engine) : nullptr;
}

enum class Order { kInTurn, kTogether };

std::vector<StandaloneAnswer> ask(Engine& engine, const std::vector<Tokens>& prompts, Order order,
                                  float temperature = 0, int64_t max_new_tokens = 60) {
  std::vector<StandaloneAnswer> answers(prompts.size());
  testing::FinishCount finished;
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request request{.id = fmt::format("{}", i), .prompt = prompts[i]};
    request.sampling.temperature = temperature;
    request.sampling.seed = 5;
    request.stop.max_new_tokens = max_new_tokens;
    request.stop.ignore_eos = true;
    request.return_logprobs = true;
    request.top_logprobs = 1;
    const Status status = engine.submit(std::move(request), [&, i](const RequestEvent& event) {
      StandaloneAnswer& answer = answers[i];
      answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
      for (const TokenLogprob& logprob : event.logprobs) {
        answer.logprobs.push_back(logprob.logprob);
        answer.most_likely.push_back(logprob.top.front().first);
      }
      if (!event.finish) return;
      answer.drafts = event.drafts;
      answer.cached_tokens = event.cached_tokens;
      finished.add();
    });
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) return {};
    if (order == Order::kInTurn) finished.wait_for(i + 1);
  }
  finished.wait_for(prompts.size());
  return answers;
}

Tokens letters(int64_t count) {
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>((i * 31 + 7) % 1400));
  return tokens;
}

void expect_equal(const std::vector<StandaloneAnswer>& drafted,
                  const std::vector<StandaloneAnswer>& plain) {
  ASSERT_EQ(drafted.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(drafted[i].tokens, plain[i].tokens) << "answer " << i;
    EXPECT_EQ(drafted[i].logprobs, plain[i].logprobs) << "answer " << i;
  }
}

// Every step has three drafts but for `without`, and all of them hold, but for those that do not
// fit before the end.
void expect_right(const std::vector<StandaloneAnswer>& drafted, int64_t without) {
  for (const StandaloneAnswer& answer : drafted) {
    EXPECT_EQ(answer.drafts.rejected_tokens, 0);
    const int64_t steps = answer.drafts.verify_steps - 1 - without;
    EXPECT_GE(answer.drafts.accepted_tokens, 3 * steps) << answer.drafts.verify_steps;
  }
}

struct Setting {
  const char* name;
  std::filesystem::path (*model)();
  int64_t chunk_tokens = 512;
  int32_t page_size = 16;
  Order order = Order::kInTurn;
};

class StandaloneTest : public ::testing::TestWithParam<Setting> {};

TEST_P(StandaloneTest, AModelThatDraftsForItselfIsAlwaysRight) {
  const Setting& setting = GetParam();
  std::vector<std::vector<StandaloneAnswer>> answers;
  for (const int32_t num_draft_tokens : {0, 4}) {
    EngineOptions options = options_of(setting.model(), num_draft_tokens);
    options.chunked_prefill_tokens = setting.chunk_tokens;
    options.page_size = setting.page_size;
    const auto engine = start(options);
    ASSERT_NE(engine, nullptr);
    std::vector<Tokens> prompts = chats();
    for (Tokens& prompt : prompts) {  // of any vocabulary
      for (TokenId& token : prompt) token %= static_cast<TokenId>(engine->model_info().vocab_size);
    }
    answers.push_back(ask(*engine, prompts, setting.order));
  }
  expect_equal(answers[1], answers[0]);
  expect_right(answers[1], 0);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, StandaloneTest,
    ::testing::Values(Setting{"in_turn", tiny}, Setting{"pages_of_1", tiny, 512, 1},
                      Setting{"chunks_together", tiny, 32, 16, Order::kTogether},
                      Setting{"without_states", dense},
                      Setting{"without_states_chunks_together", dense, 32, 4, Order::kTogether}),
    [](const auto& setting) { return std::string(setting.param.name); });

// With one draft a step, whether it holds says where the text left the most likely tokens: a state
// that had kept a rejected draft would guess otherwise from then on.
TEST(StandaloneStatesTest, ForgetRejectedDrafts) {
  const auto plain = ask(*start(options_of(tiny(), 0)), chats(), Order::kInTurn, 1);
  const auto drafted = ask(*start(options_of(tiny(), 2)), chats(), Order::kInTurn, 1);
  expect_equal(drafted, plain);
  int64_t num_rejected = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    int64_t accepted = 0;
    int64_t rejected = 0;
    const auto count = plain[i].tokens.size();
    for (size_t t = 1; t + 1 < count;) {  // the last token is drawn without a draft
      const bool holds = plain[i].tokens[t] == plain[i].most_likely[t];
      ++(holds ? accepted : rejected);
      t += holds ? 2 : 1;
    }
    EXPECT_EQ(drafted[i].drafts.accepted_tokens, accepted) << "answer " << i;
    EXPECT_EQ(drafted[i].drafts.rejected_tokens, rejected) << "answer " << i;
    num_rejected += rejected;
  }
  EXPECT_GT(num_rejected, 10);
}

// The drafter reads what it has no states of, or takes rows that are there; its drafts are right
// behind a cached prefix as well, and behind a whole prompt that is repeated.
TEST(StandaloneCacheTest, DraftsBehindCachedPrefixesAreRight) {
  for (const auto& model : {tiny(), dense()}) {
    SCOPED_TRACE(model);
    EngineOptions options = options_of(model, 4);
    const auto plain = start(options_of(model, 0));
    ASSERT_NE(plain, nullptr);
    std::vector<Tokens> prompts = chats();
    std::vector<Tokens> beginnings = prompts;
    for (size_t i = 0; i < prompts.size(); ++i) {
      for (TokenId& token : prompts[i]) {
        token %= static_cast<TokenId>(plain->model_info().vocab_size);
      }
      beginnings[i] = prompts[i];
      beginnings[i].resize(prompts[i].size() * 2 / 3);
    }
    const auto expected = ask(*plain, prompts, Order::kInTurn);
    options.cache.enabled = true;
    const auto engine = start(options);
    ASSERT_NE(engine, nullptr);
    (void)ask(*engine, beginnings, Order::kInTurn, 0, 4);
    for (const Order order : {Order::kInTurn, Order::kInTurn, Order::kTogether}) {
      const auto drafted = ask(*engine, prompts, order);
      expect_equal(drafted, expected);
      // The step that draws behind a prompt which is known whole makes none.
      expect_right(drafted, 1);
      int64_t cached_tokens = 0;
      for (const StandaloneAnswer& answer : drafted) cached_tokens += answer.cached_tokens;
      EXPECT_GT(cached_tokens, 40);
    }
  }
}

// A long prefix is read in parts, each as large as a step, while the text goes on without drafts.
TEST(StandaloneCacheTest, LongPrefixesAreReadInParts) {
  const Tokens prompt = letters(400);
  const auto expected = ask(*start(options_of(tiny(), 0)), {prompt}, Order::kInTurn);
  EngineOptions options = options_of(tiny(), 4);
  options.cache.enabled = true;
  options.chunked_prefill_tokens = 64;
  const auto engine = start(options);
  ASSERT_NE(engine, nullptr);
  expect_equal(ask(*engine, {prompt}, Order::kInTurn), expected);
  const auto again = ask(*engine, {prompt}, Order::kInTurn);
  expect_equal(again, expected);
  EXPECT_GE(again[0].cached_tokens, 384);
  expect_right(again, 8);
  EXPECT_LT(again[0].drafts.accepted_tokens, 60 - 60 / 4 - 3) << "it was without at first";
}

// Two texts begin behind a prefix that the small model has not read. It is read once, for one of
// them; the other has drafts at once then, and they are right.
TEST(StandaloneCacheTest, APrefixReadForOneTextIsNotReadAgainForAnother) {
  EngineOptions options = options_of(dense(), 4);
  options.chunked_prefill_tokens = 64;
  options.page_size = 16;
  runner::LoadedModel model = runner::load_model(options).value();
  Tokens prefix = letters(192);
  for (TokenId& token : prefix) token %= 256;
  std::vector<int32_t> shared;
  for (int32_t page = 1; page <= 12; ++page) shared.push_back(page);
  SamplingParams greedy;
  greedy.temperature = 0;
  for (size_t begin = 0; begin < prefix.size(); begin += 64) {
    testing::HandPlan hand;
    hand.sequences = {{.new_tokens = std::span(prefix).subspan(begin, 64),
                       .context_tokens = static_cast<int64_t>(begin),
                       .pages = shared,
                       .sampling = &greedy}};
    ASSERT_TRUE(model.runner->run(hand.flat()).ok());
  }

  const std::vector<Tokens> ends = {{1, 2, 3}, {4, 5, 6}};
  std::vector<std::vector<int32_t>> pages(2, shared);
  testing::HandPlan hand;
  for (int32_t i = 0; i < 2; ++i) {
    const auto index = static_cast<size_t>(i);
    pages[index].insert(pages[index].end(), {13 + 2 * i, 14 + 2 * i});
    hand.sequences.push_back({.sequence_id = i + 1,
                              .batch_slot = i + 1,
                              .new_tokens = ends[index],
                              .context_tokens = std::ssize(prefix),
                              .pages = pages[index],
                              .sample = true,
                              .sampling = &greedy});
  }
  request::BatchPlan plan = hand.flat();
  for (request::SlotStart& start : plan.starts) start.context = plan.add_tokens(prefix);
  std::vector<int> first_steps(2, -1);  // that made drafts
  std::vector<Tokens> drawn(2), drafts(2);
  constexpr int kSteps = 12;
  for (int step = 0; step < kSteps; ++step) {
    plan.computes_draft_slots = true;
    for (auto& sequence : plan.sequences) sequence.wanted_drafts = 2;
    const auto output = model.runner->run(plan);
    ASSERT_TRUE(output.ok()) << output.status().to_string();
    ASSERT_EQ(output->tokens.size(), 2u);
    for (size_t i = 0; i < 2; ++i) drawn[i].push_back(output->tokens[i].token);
    for (const request::MadeDraft& draft : output->drafts) {
      const auto i = static_cast<size_t>(draft.sequence_id - 1);
      if (first_steps[i] < 0) first_steps[i] = step;
      if (first_steps[i] == step) drafts[i].push_back(draft.token);
    }
    for (auto& sequence : hand.sequences) {
      sequence.context_tokens += sequence.feeds_drawn_token ? 1 : std::ssize(ends[0]);
      sequence.new_tokens = {};
      sequence.feeds_drawn_token = true;
    }
    plan = hand.flat();
    plan.starts.clear();
    plan.page_updates.clear();
  }
  const auto [first, last] = std::ranges::minmax(first_steps);
  EXPECT_GE(first, 2) << "it is read in parts";
  EXPECT_LE(last, first + 1);
  for (size_t i = 0; i < 2; ++i) {
    const auto behind = drawn[i].begin() + first_steps[i] + 1;
    EXPECT_EQ(drafts[i], Tokens(behind, behind + 2));
  }
}

// Which drafts pay is measured; whatever comes of that, the text is the same, and the drafter reads
// what it was not asked to follow.
TEST(StandaloneCacheTest, AsManyAsPayChangeNoText) {
  const auto expected = ask(*start(options_of(tiny(), 0)), chats(), Order::kInTurn, 0, 200);
  EngineOptions options = options_of(tiny(), 4);
  options.speculative.num_draft_tokens = 0;
  options.cache.enabled = true;
  const auto engine = start(options);
  ASSERT_NE(engine, nullptr);
  for (const Order order : {Order::kInTurn, Order::kTogether}) {
    const auto drafted = ask(*engine, chats(), order, 0, 200);
    expect_equal(drafted, expected);
    for (const StandaloneAnswer& answer : drafted) EXPECT_EQ(answer.drafts.rejected_tokens, 0);
  }
}

// A copy of heddle-tiny's folder with another config.json.
class OtherFolder {
 public:
  OtherFolder(const char* key, int64_t value)
      : path_(std::filesystem::path(::testing::TempDir()) /
              fmt::format("heddle_standalone_{}_{}_{}", key, value, getpid())) {
    std::filesystem::create_directories(path_);
    for (const auto& file : std::filesystem::directory_iterator(tiny())) {
      if (file.path().filename() == "config.json") continue;
      std::filesystem::create_symlink(file.path(), path_ / file.path().filename());
    }
    auto config = nlohmann::ordered_json::parse(std::ifstream(tiny() / "config.json"));
    config[key] = value;
    std::ofstream(path_ / "config.json") << config.dump();
  }

  ~OtherFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  OtherFolder(const OtherFolder&) = delete;
  OtherFolder& operator=(const OtherFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A small model may be made for shorter texts than the one it drafts for.
TEST(StandaloneLimitsTest, BehindItsContextItDraftsNothing) {
  const auto expected = ask(*start(options_of(tiny(), 0)), {letters(60)}, Order::kInTurn);
  const OtherFolder folder("max_position_embeddings", 100);
  EngineOptions options = options_of(tiny(), 4);
  options.speculative.draft_model_dir = folder.path();
  const auto engine = start(options);
  ASSERT_NE(engine, nullptr);
  const auto drafted = ask(*engine, {letters(60)}, Order::kInTurn);
  expect_equal(drafted, expected);
  EXPECT_EQ(drafted[0].drafts.rejected_tokens, 0);
  // 40 of its tokens have room, the model draws every fourth of them.
  EXPECT_NEAR(static_cast<double>(drafted[0].drafts.accepted_tokens), 30, 2);
}

// Vocabularies of one tokenizer are padded to different sizes. With random weights nothing holds.
// The step behind one that failed computes the rest of a text whose beginning was not read.
TEST(StandaloneLimitsTest, BehindAStepThatFailedItDraftsNothing) {
  EngineOptions options = options_of(dense(), 4);
  runner::LoadedModel model = runner::load_model(options).value();
  const Tokens first = {5, 1 << 20, 6};  // one is no token
  const Tokens rest = {7, 8, 9};
  const std::vector<int32_t> pages = {1, 2};
  SamplingParams greedy;
  greedy.temperature = 0;
  testing::HandPlan hand;
  hand.sequences = {{.new_tokens = first, .pages = pages, .sampling = &greedy}};
  request::BatchPlan plan = hand.flat();
  plan.computes_draft_slots = true;
  EXPECT_EQ(model.runner->run(plan).status().code(), StatusCode::kInvalidArgument);
  hand.sequences[0].new_tokens = rest;
  hand.sequences[0].context_tokens = 3;
  hand.sequences[0].sample = true;
  plan = hand.flat();
  plan.starts.clear();
  plan.computes_draft_slots = true;
  plan.sequences[0].wanted_drafts = 2;
  const auto output = model.runner->run(plan);
  ASSERT_TRUE(output.ok()) << output.status().to_string();
  EXPECT_EQ(output->tokens.size(), 1u);
  EXPECT_TRUE(output->drafts.empty());
}

TEST(StandaloneLimitsTest, VocabulariesMayBePaddedDifferently) {
  EngineOptions options = options_of(tiny(), 0);
  options.load_format = LoadFormat::kDummy;
  const std::vector<Tokens> prompts = {letters(40), {5, 1510, 6, 7}};
  const auto expected = ask(*start(options), prompts, Order::kTogether);
  for (const int64_t vocab_size : {1500, 1600}) {
    SCOPED_TRACE(vocab_size);
    const OtherFolder folder("vocab_size", vocab_size);
    options.speculative = {.algorithm = DraftAlgorithm::kStandalone,
                           .draft_model_dir = folder.path(),
                           .num_draft_tokens = 4};
    const auto engine = start(options);
    ASSERT_NE(engine, nullptr);
    const auto drafted = ask(*engine, prompts, Order::kTogether);
    expect_equal(drafted, expected);
    EXPECT_GT(drafted[0].drafts.accepted_tokens + drafted[0].drafts.rejected_tokens, 20);
    const int64_t unread = drafted[1].drafts.accepted_tokens + drafted[1].drafts.rejected_tokens;
    EXPECT_EQ(unread == 0, vocab_size < 1510) << "it cannot read that prompt";
  }
}

class StandaloneOptionsTest : public ::testing::Test {
 protected:
  static EngineOptions options() {
    EngineOptions options = options_of(tiny(), 4);
    options.num_threads = 1;
    return options;
  }

  static std::string failure(const EngineOptions& options) {
    const auto model = runner::load_model(options);
    return model.ok() ? "" : std::string(model.status().message());
  }
};

TEST_F(StandaloneOptionsTest, ItsMemoryIsPlanned) {
  EngineOptions plain_options = options();
  plain_options.speculative = {.algorithm = DraftAlgorithm::kNone};
  const auto plain = runner::load_model(plain_options).value();
  const auto drafts = runner::load_model(options()).value();
  EXPECT_GE(drafts.plan.weights_bytes + drafts.plan.mapped_weights_bytes,
            2 * (plain.plan.weights_bytes + plain.plan.mapped_weights_bytes));
  EXPECT_GT(drafts.plan.activation_bytes, plain.plan.activation_bytes);
  EXPECT_EQ(drafts.runner->pool_sizes().page_bytes, 2 * plain.runner->pool_sizes().page_bytes);
  // States of four sequences, of their guesses, and slot 0; and of the rows that are verified.
  const int64_t slot = plain.runner->pool_sizes().state_slot_bytes;
  EXPECT_EQ(drafts.plan.draft_state_bytes,
            (9 + drafts.runner->step_limits().max_draft_rows) * slot);
  EXPECT_EQ(drafts.runner->step_limits().max_made_drafts, 3);
  EXPECT_TRUE(drafts.runner->step_limits().drafter_reads_texts);
}

TEST_F(StandaloneOptionsTest, RefusesByNameAModelThatCannotDraft) {
  EngineOptions wrong = options();
  wrong.speculative.draft_model_dir = dense();
  EXPECT_THAT(failure(wrong), AllOf(HasSubstr("the model that drafts, "), HasSubstr("dense_model"),
                                    HasSubstr("a vocabulary of"), HasSubstr("the same tokenizer")));
  wrong.speculative.draft_model_dir = tiny() / "nothing";
  EXPECT_THAT(failure(wrong), AllOf(HasSubstr("the model that drafts, "), HasSubstr("nothing")));

  const auto folder =
      std::filesystem::path(::testing::TempDir()) / fmt::format("heddle_standalone_{}", getpid());
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(tiny() / "config.json", folder / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  wrong.speculative.draft_model_dir = folder;
  EXPECT_THAT(failure(wrong), AllOf(HasSubstr("the model that drafts, "),
                                    HasSubstr(folder.string()), HasSubstr("safetensors")));
  std::filesystem::remove_all(folder);
}

TEST_F(StandaloneOptionsTest, ItsWeightsMustFit) {
  const OtherFolder huge("moe_intermediate_size", int64_t{1} << 20);
  EngineOptions large = options();
  large.load_format = LoadFormat::kDummy;
  large.speculative.draft_model_dir = huge.path();
  EXPECT_THAT(failure(large), AllOf(HasSubstr("the model that drafts, "),
                                    HasSubstr("the weights need"), HasSubstr("free memory")));
}

TEST_F(StandaloneOptionsTest, StatesForAllRequestsMustFit) {
  EngineOptions many = options();
  many.max_running_requests = 4096;
  many.max_total_tokens = 0;
  many.memory_fraction = 1e-3;
  EXPECT_THAT(failure(many), AllOf(HasSubstr("the recurrent states of the model that drafts"),
                                   HasSubstr("lower max_running_requests")));
}

TEST_F(StandaloneOptionsTest, ItDraftsNoTrees) {
  EngineOptions trees = options();
  trees.speculative.num_steps = 3;
  trees.speculative.eagle_topk = 2;
  EXPECT_THAT(failure(trees), HasSubstr("a standalone model drafts chains"));
}

// Tokens that have the same numbers and mean something else.
TEST_F(StandaloneOptionsTest, AnotherTokenizerIsRefused) {
  const auto folder =
      std::filesystem::path(::testing::TempDir()) / fmt::format("heddle_tokenizer_{}", getpid());
  std::filesystem::create_directories(folder);
  for (const auto& file : std::filesystem::directory_iterator(tiny())) {
    std::filesystem::create_symlink(file.path(), folder / file.path().filename());
  }
  EngineOptions same = options();
  same.skip_tokenizer = false;
  same.speculative.draft_model_dir = folder;
  EXPECT_TRUE(Engine::create(same).ok());

  std::string text;
  {
    std::ifstream file(tiny() / "tokenizer.json");
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  const size_t place = text.find("<|im_end|>");
  ASSERT_NE(place, std::string::npos);
  for (size_t at = place; at != std::string::npos; at = text.find("<|im_end|>", at)) {
    text.replace(at, 10, "<|im_fin|>");
  }
  std::filesystem::remove(folder / "tokenizer.json");
  std::ofstream(folder / "tokenizer.json") << text;
  std::filesystem::remove(folder / "tokenizer_config.json");
  const auto engine = Engine::create(same);
  EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(engine.status().message(),
              AllOf(HasSubstr("<|im_fin|>"), HasSubstr("<|im_end|>"), HasSubstr(folder.string())));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace heddle
