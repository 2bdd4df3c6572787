// SPDX-License-Identifier: Apache-2.0
// Models that several ranks share on the CPU. In exact mode their logits have the same bits as with
// one rank, for every way of feeding a text. Otherwise they differ only by rounding.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/dummy_weights.h"
#include "core/mutex.h"
#include "integration/every_feeding.h"
#include "models/small_config_fixture.h"
#include "runner/step/following_ranks.h"
#include "support/test_data.h"
#include "verify/session.h"

namespace heddle {
namespace {

using models::testing::small_config;
using models::testing::small_gated_hybrid;
using models::testing::small_latent_experts;
using models::testing::small_latent_hybrid;
using models::testing::small_of;
using nlohmann::json;
using runner::ForwardPass;
using ::testing::HasSubstr;

constexpr int64_t kSharedTokens = 70;
constexpr int64_t kSharedStepTokens = kSharedTokens + 64;
constexpr double kSharedTolerance = 2e-4;

struct SharedCase {
  std::string name;
  json config;
  std::vector<int64_t> ranks = {2};
};

void PrintTo(const SharedCase& tested, std::ostream* out) { *out << tested.name; }

json updated(json config, const json& changes) {
  config.update(changes);
  return config;
}

std::vector<SharedCase> shared_cases() {
  json latent_hybrid = small_latent_hybrid("KimiLinearForCausalLM");
  latent_hybrid["linear_attn_config"]["num_heads"] = 4;
  const json six_heads = {
      {"hidden_size", 96}, {"num_attention_heads", 6}, {"num_key_value_heads", 3}};
  const json wide_hybrid = {{"num_attention_heads", 8},
                            {"linear_num_key_heads", 4},
                            {"linear_num_value_heads", 8},
                            {"shared_expert_intermediate_size", 48}};
  return {
      {"dense", small_config("LlamaForCausalLM"), {2, 4}},
      {"dense_three", small_config("LlamaForCausalLM", six_heads), {3}},
      {"dense_tied", small_config("LlamaForCausalLM", {{"tie_word_embeddings", true}})},
      {"biases", small_config("Qwen2ForCausalLM")},
      {"biases_of_sums", small_config("LlamaForCausalLM", {{"attention_bias", true}})},
      {"normed_heads", small_config("Qwen3ForCausalLM")},
      {"gated_hybrid", small_gated_hybrid("Qwen3NextForCausalLM")},
      {"gated_hybrid_four", small_gated_hybrid("Qwen3NextForCausalLM", wide_hybrid), {4}},
      {"shared_expert", small_of("Qwen2MoeForCausalLM")},
      {"experts", small_of("MixtralForCausalLM"), {2, 4}},
      {"experts_cut_within",
       updated(small_of("MixtralForCausalLM"), updated(six_heads, {{"num_local_experts", 4}})),
       {3}},
      {"latent_scored", small_latent_experts("DeepseekV2ForCausalLM"), {2, 4}},
      {"latent_corrected", small_latent_experts("DeepseekV3ForCausalLM")},
      {"latent_hybrid", latent_hybrid, {2, 4}},
      {"narrow_values", small_of("MiMoV2FlashForCausalLM")},
      {"gates_of_heads", small_of("Step3p5ForCausalLM")},
      {"parallel", small_of("Cohere2ForCausalLM")},
      {"sandwich", small_of("Gemma3ForCausalLM")},
      {"norms_without_weights", small_of("NanoChatForCausalLM")},
      {"sparsemixer", small_of("PhimoeForCausalLM")},
  };
}

class SharedFolder {
 public:
  explicit SharedFolder(const json& config) { folder_.write("config.json", config.dump()); }

  [[nodiscard]] Result<std::unique_ptr<ForwardPass>> open(
      int64_t num_ranks, bool exact,
      const std::optional<checkpoint::Rounding>& rounding = std::nullopt) const {
    return ForwardPass::create({.model_dir = folder_.path(),
                                .dummy_weights = true,
                                .dtype = DType::kF32,
                                .exact = exact,
                                .rounding = rounding,
                                .num_threads = 2,
                                .max_step_tokens = kSharedStepTokens,
                                .max_logit_rows = kSharedStepTokens,
                                .collect_hidden_states = true,
                                .head_alone = true,
                                .num_ranks = num_ranks});
  }

  [[nodiscard]] std::unique_ptr<ForwardPass> pass(int64_t num_ranks, bool exact) const {
    auto pass = open(num_ranks, exact);
    EXPECT_TRUE(pass.ok()) << pass.status().to_string();
    return pass.ok() ? std::move(*pass) : nullptr;
  }

 private:
  checkpoint::testing::TemporaryFolder folder_;
};

// A text with the logits that `pass` computes for it.
verify::GoldenCase shared_golden(ForwardPass& pass) {
  verify::GoldenCase golden{.name = "made"};
  for (int64_t i = 0; i < kSharedTokens; ++i) {
    golden.ids.push_back(static_cast<TokenId>((i * 7919 + 31 * i * i) % pass.config().vocab_size));
  }
  auto session = verify::Session::create(pass, {.max_tokens = kSharedTokens});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  const std::vector<verify::Session::Feed> feed = {{0, golden.ids}};
  const Status status = session->step(feed, runner::LogitRows::kAll);
  EXPECT_TRUE(status.ok()) << status.to_string();
  const TensorView logits = session->logits();
  golden.logits = Tensor(logits.shape, DType::kF32);
  std::copy_n(logits.as<float>(), logits.num_elements(), golden.logits.span<float>().begin());
  return golden;
}

// The logits of all tokens, computed in one step.
std::vector<float> whole_logits(ForwardPass& pass, const verify::GoldenCase& golden) {
  std::vector<float> logits;
  const auto result = verify::check_case(pass, golden, verify::all_feedings().front(), logits);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return logits;
}

class SharedModel : public ::testing::TestWithParam<SharedCase> {};

TEST_P(SharedModel, HasTheBitsOfOneRankInExactMode) {
  const SharedFolder folder(GetParam().config);
  const auto one = folder.pass(1, /*exact=*/true);
  ASSERT_NE(one, nullptr);
  const verify::GoldenCase golden = shared_golden(*one);
  std::vector<float> logits = whole_logits(*one, golden);
  for (const int64_t num_ranks : GetParam().ranks) {
    SCOPED_TRACE(fmt::format("{} ranks", num_ranks));
    const auto shared = folder.pass(num_ranks, /*exact=*/true);
    ASSERT_NE(shared, nullptr);
    testing::check_every_feeding(*shared, golden, logits, [](const verify::CaseResult& result) {
      EXPECT_TRUE(result.same_bits);
      EXPECT_EQ(result.logits_error, 0);
    });
  }
}

// Weights are quantised before ranks cut them, so that a cut changes no number.
TEST(SharedModelTest, HasTheBitsOfOneRankInExactModeWithQuantisedWeights) {
  const checkpoint::Rounding roundings[] = {{.scheme = quant::Scheme::kInt8},
                                            {.scheme = quant::Scheme::kInt4, .group_size = 32},
                                            {.scheme = quant::Scheme::kFp8Block}};
  for (const json& config :
       {small_gated_hybrid("Qwen3NextForCausalLM"), small_of("Qwen2MoeForCausalLM")}) {
    const SharedFolder folder(config);
    for (const checkpoint::Rounding& rounding : roundings) {
      SCOPED_TRACE(fmt::format("{}, rounding {}", config["architectures"][0].get<std::string>(),
                               &rounding - roundings));
      const auto one = folder.open(1, /*exact=*/true, rounding);
      const auto shared = folder.open(2, /*exact=*/true, rounding);
      ASSERT_TRUE(one.ok()) << one.status().to_string();
      ASSERT_TRUE(shared.ok()) << shared.status().to_string();
      const verify::GoldenCase golden = shared_golden(**one);
      std::vector<float> logits = whole_logits(**one, golden);
      testing::check_every_feeding(**shared, golden, logits, [](const verify::CaseResult& result) {
        EXPECT_TRUE(result.same_bits);
      });
    }
  }
}

TEST_P(SharedModel, IsNearOneRankOtherwise) {
  const SharedFolder folder(GetParam().config);
  const auto one = folder.pass(1, /*exact=*/false);
  ASSERT_NE(one, nullptr);
  const verify::GoldenCase golden = shared_golden(*one);
  for (const int64_t num_ranks : GetParam().ranks) {
    SCOPED_TRACE(fmt::format("{} ranks", num_ranks));
    const auto shared = folder.pass(num_ranks, /*exact=*/false);
    ASSERT_NE(shared, nullptr);
    std::vector<float> logits;
    testing::check_every_feeding(*shared, golden, logits, [](const verify::CaseResult& result) {
      EXPECT_LT(result.logits_error, kSharedTolerance);
    });
  }
}

// All ranks meet in the same collectives, and each has its slices of the weights and no more.
TEST_P(SharedModel, GivesEachRankItsSlicesAndTheSameCollectives) {
  constexpr int64_t kAlignment = 64;
  const SharedFolder folder(GetParam().config);
  for (const bool exact : {false, true}) {
    const int64_t num_ranks = GetParam().ranks.back();
    const auto shared = folder.pass(num_ranks, exact);
    ASSERT_NE(shared, nullptr);
    const auto specs = models::testing::model_of(GetParam().config)->weight_specs();
    std::vector<std::string> collectives;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      const ForwardPass& own = shared->of_rank(rank);
      const auto slices = checkpoint::sliced(specs, rank, {num_ranks, exact}).value();
      int64_t bytes = 0;
      for (const auto& slice : slices) {
        EXPECT_EQ(own.weights()[slice.name].shape, slice.shape) << slice.name;
        bytes += 4 * slice.shape.num_elements();
      }
      const int64_t taken = own.weights().bytes_copied() + own.weights().bytes_in_place();
      EXPECT_GE(taken, bytes);
      EXPECT_LT(taken, bytes + kAlignment * std::ssize(slices));
      const std::string dump = graph::dump(own.program());
      const size_t begin = dump.find("collective 0");
      ASSERT_NE(begin, std::string::npos);
      collectives.push_back(dump.substr(begin, dump.find("-- segment") - begin));
      EXPECT_EQ(collectives.back(), collectives.front());
    }
    // all_reduce adds floats of several ranks, which exact mode must not do.
    EXPECT_EQ(collectives.front().find("all_reduce of") == std::string::npos, exact);
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, SharedModel, ::testing::ValuesIn(shared_cases()),
                         [](const auto& tested) { return tested.param.name; });

// Overwrites a weight of rank 1 with zeros. This removes the rank's term from a sum, or sets its
// part of a gathered result to zero.
void drop_the_term_of_rank_1(ForwardPass& pass, std::string_view weight) {
  const TensorView* const view = pass.of_rank(1).find_constant(weight);
  ASSERT_NE(view, nullptr) << weight;
  auto* const numbers = const_cast<float*>(view->as<float>());
  std::fill_n(numbers, view->num_elements(), 0.0f);
}

TEST(SharedModelTest, IsWrongWithoutTheTermOfARank) {
  const SharedFolder folder(small_of("Qwen2MoeForCausalLM"));
  for (const bool exact : {false, true}) {
    for (const char* weight :
         {"layers.0.self_attn.o_proj", "layers.3.mlp.experts.w2", "layers.1.mlp.shared_down"}) {
      SCOPED_TRACE(fmt::format("{}, exact = {}", weight, exact));
      const auto one = folder.pass(1, exact);
      const auto shared = folder.pass(2, exact);
      ASSERT_TRUE(one != nullptr && shared != nullptr);
      const verify::GoldenCase golden = shared_golden(*one);
      drop_the_term_of_rank_1(*shared, weight);
      std::vector<float> logits = whole_logits(*one, golden);
      const auto result =
          verify::check_case(*shared, golden, verify::all_feedings().front(), logits);
      ASSERT_TRUE(result.ok()) << result.status().to_string();
      EXPECT_GT(result->logits_error, kSharedTolerance);
      EXPECT_FALSE(result->same_bits);
    }
  }
}

TEST(SharedModelTest, IsRefusedWithTheLegalNumbersOfRanks) {
  const auto refusal = [](const json& config, int64_t num_ranks) {
    return SharedFolder(config).open(num_ranks, /*exact=*/false).status();
  };
  const json dense = small_config("LlamaForCausalLM");
  EXPECT_EQ(refusal(dense, 3).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal(dense, 3).message(),
            "--tp 3: layers.0.self_attn.qkv_proj: 64 rows or columns have 4 units of 16, which 3 "
            "ranks do not divide; legal: 1, 2, 4");

  const struct {
    const char* architecture;
    const char* part;
  } kNotShared[] = {
      {"GptOssForCausalLM", "layers.0.mlp"},        {"MiniMaxM2ForCausalLM", "layers.0.self_attn"},
      {"Lfm2ForCausalLM", "layers.0.conv"},         {"JambaForCausalLM", "layers.0.mamba"},
      {"BambaForCausalLM", "layers.0.mamba"},       {"MiniMaxForCausalLM", "layers.1.self_attn"},
      {"Gemma4ForCausalLM", "what all layers read"}};

  for (const auto& [architecture, part] : kNotShared) {
    const Status status = refusal(small_of(architecture), 2);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << architecture;
    EXPECT_EQ(status.message(),
              fmt::format("--tp 2: ranks do not share {} of this family yet; legal: 1", part));
  }
}

// A model whose graph has one more collective on rank 1 than on rank 0.
class OneMoreOnRank1 final : public models::Model {
 public:
  explicit OneMoreOnRank1(std::unique_ptr<const Model> model) : model_(std::move(model)) {}

  using Model::cache_needs;

  [[nodiscard]] std::vector<checkpoint::WeightSpec> weight_specs() const override {
    return model_->weight_specs();
  }

  [[nodiscard]] std::vector<std::string> ignored_prefixes() const override { return {}; }

  [[nodiscard]] Result<models::DerivedWeights> derive_weights(
      const checkpoint::LoadedWeights& weights) const override {
    return model_->derive_weights(weights);
  }

  [[nodiscard]] models::CacheNeeds cache_needs(const checkpoint::Rank& rank) const override {
    return model_->cache_needs(rank);
  }

  [[nodiscard]] std::string parts_of_one_rank() const override { return {}; }

  models::ForwardOutputs build(graph::GraphBuilder& g,
                               const models::ForwardInputs& inputs) const override {
    models::ForwardOutputs outputs = model_->build(g, inputs);
    if (g.rank().index == 1) outputs.logits = g.apply1("all_reduce", {outputs.logits});
    return outputs;
  }

  graph::Value build_head(graph::GraphBuilder& g, graph::Value rows) const override {
    return model_->build_head(g, rows);
  }

 private:
  std::unique_ptr<const Model> model_;
};

TEST(SharedModelTest, EndsAtTheDeadlineWhereARankIsMissing) {
  const checkpoint::testing::TemporaryFolder folder;
  folder.write("config.json", small_config("LlamaForCausalLM").dump());
  auto pass = ForwardPass::create(
      {.model_dir = folder.path(),
       .dummy_weights = true,
       .num_threads = 2,
       .num_ranks = 2,
       .collective_timeout = std::chrono::milliseconds(100),
       .create_model =
           [](const checkpoint::ModelConfig& config) -> std::unique_ptr<const models::Model> {
         return std::make_unique<OneMoreOnRank1>(models::create_model(config));
       }});
  ASSERT_TRUE(pass.ok()) << pass.status().to_string();
  auto session = verify::Session::create(**pass, {.max_tokens = 8});
  ASSERT_TRUE(session.ok());
  const std::vector<TokenId> ids = {1, 2, 3};
  const std::vector<verify::Session::Feed> feed = {{0, ids}};
  const Status first = session->step(feed, runner::LogitRows::kSampled);
  EXPECT_EQ(first.code(), StatusCode::kDeviceLost) << first.to_string();
  const Status second = session->step(feed, runner::LogitRows::kSampled);
  EXPECT_EQ(second.message(), first.message()) << "no rank computes again";
}

TEST(FollowingRanksTest, DrawWhatRank0Draws) {
  request::StepOutput first, other;
  first.tokens = {{.sequence_id = 7, .token = 5}, {.sequence_id = 9, .token = 6}};
  other.tokens = first.tokens;
  EXPECT_TRUE(runner::compare_draws(first, other, 1).ok());
  other.tokens[1].token = 8;
  const Status differs = runner::compare_draws(first, other, 1);
  EXPECT_EQ(differs.code(), StatusCode::kDeviceLost);
  EXPECT_EQ(differs.message(), "rank 1 drew token 8 for sequence 9, rank 0 token 6");
  other.tokens.pop_back();
  EXPECT_EQ(runner::compare_draws(first, other, 3).message(), "rank 3 drew 1 tokens, rank 0 2");
}

// Runs some requests together and returns their tokens. The prompts repeat themselves, so that
// there are n-gram drafts.
std::vector<std::vector<TokenId>> shared_answers(EngineOptions options) {
  options.model_dir = testing::repository_path("models/heddle-tiny");
  options.device = "cpu";
  options.num_threads = 2;
  if (options.max_total_tokens == 0) options.max_total_tokens = 4096;
  options.exact = true;
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  if (!engine.ok()) return {};
  constexpr size_t kRequests = 3;

  struct {
    Mutex mutex;
    CondVar ended;
    std::vector<std::vector<TokenId>> tokens HEDDLE_GUARDED_BY(mutex);
    size_t num_ended HEDDLE_GUARDED_BY(mutex) = 0;
  } all;

  {
    const MutexLock lock(all.mutex);
    all.tokens.resize(kRequests);
  }
  for (size_t i = 0; i < kRequests; ++i) {
    Request request{.id = fmt::format("{}", i)};
    for (int t = 0; t < 90; ++t)
      request.prompt.push_back(static_cast<TokenId>(20 + t % (9 + 4 * static_cast<int>(i))));
    request.stop.max_new_tokens = 24;
    request.stop.ignore_eos = true;
    request.sampling.temperature = i == 0 ? 0.0f : 0.9f;
    request.sampling.seed = 11 + i;
    const Status status =
        (*engine)->submit(std::move(request), [&all, i](const RequestEvent& event) {
          const MutexLock lock(all.mutex);
          all.tokens[i].insert(all.tokens[i].end(), event.tokens.begin(), event.tokens.end());
          if (!event.finish) return;
          EXPECT_TRUE(event.finish->error.ok()) << event.finish->error.to_string();
          ++all.num_ended;
          all.ended.notify_all();
        });
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  const MutexLock lock(all.mutex);
  all.ended.wait(all.mutex,
                 [&]() HEDDLE_REQUIRES(all.mutex) { return all.num_ended == kRequests; });
  return all.tokens;
}

TEST(SharedEngine, AnswersAsOneRankDoes) {
  const auto one = shared_answers({.speculative = {.algorithm = DraftAlgorithm::kNone}});
  for (const int32_t num_ranks : {2, 4}) {
    for (const DraftAlgorithm drafts : {DraftAlgorithm::kNgram, DraftAlgorithm::kAuto}) {
      EXPECT_EQ(shared_answers({.num_ranks = num_ranks, .speculative = {.algorithm = drafts}}), one)
          << num_ranks << " ranks, " << to_string(drafts);
    }
  }
}

// 342 tokens do not fit into 256: one request is retracted and computed again.
TEST(SharedEngine, AnswersAsOneRankDoesWhenARequestIsRetracted) {
  const SpeculativeOptions none = {.algorithm = DraftAlgorithm::kNone};
  EXPECT_EQ(shared_answers({.num_ranks = 2, .max_total_tokens = 256, .speculative = none}),
            shared_answers({.speculative = none}));
}

TEST(SharedEngine, RefusesNetworksThatDraft) {
  const auto engine = Engine::create({.model_dir = testing::repository_path("models/heddle-tiny"),
                                      .device = "cpu",
                                      .num_ranks = 2,
                                      .speculative = {.algorithm = DraftAlgorithm::kMtp}});
  EXPECT_EQ(engine.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(engine.status().message(),
              HasSubstr("speculative_algorithm \"mtp\": 2 ranks share no network that drafts yet; "
                        "legal: auto, none, ngram"));
}

}  // namespace
}  // namespace heddle
