// SPDX-License-Identifier: Apache-2.0
// Models that several ranks share on the CPU. In exact mode their logits have the same bits as with
// one rank, for every way of feeding a text. Otherwise they differ only by rounding.
#include <algorithm>
#include <chrono>
#include <future>
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
#include "runner/load/decode_traffic.h"
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
      {"dense_eight",
       small_config("LlamaForCausalLM",
                    {{"num_attention_heads", 16}, {"num_key_value_heads", 4}, {"head_dim", 8}}),
       {8}},
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
      {"biased_experts", small_of("GptOssForCausalLM"), {2, 4}},
      {"biased_experts_cut_within", updated(small_of("GptOssForCausalLM"), six_heads), {3}},
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
  explicit SharedFolder(json config) : config_(std::move(config)) {
    folder_.write("config.json", config_.dump());
  }

  [[nodiscard]] const json& config() const { return config_; }

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
  json config_;
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

// Each rank reads its experts and what all ranks have.
TEST(SharedModelTest, CountsTheBytesOfADecodeStep) {
  const SharedFolder folder(small_of("MixtralForCausalLM"));
  const auto one = folder.pass(1, /*exact=*/false), two = folder.pass(2, /*exact=*/false);
  ASSERT_TRUE(one != nullptr && two != nullptr);
  for (const int64_t batch : {1, 3}) {
    double more = 0;  // bytes that a step reads on the second rank, too
    for (const auto& spec : models::testing::model_of(folder.config())->weight_specs()) {
      const bool is_table = spec.name == "embed_tokens";  // a step reads a row for each sequence
      if (is_table) more += static_cast<double>(4 * batch * spec.shape[1]);
      if (is_table) continue;
      more -= static_cast<double>(4 * spec.shape.num_elements());
      for (int64_t rank = 0; rank < 2; ++rank) {
        const auto slice = checkpoint::sliced(spec, rank, {.count = 2}).value();
        more += static_cast<double>(4 * slice.shape.num_elements());
      }
    }
    constexpr double kRotaryFrequencies = 256;
    EXPECT_NEAR(runner::decode_traffic(*two, batch, 0).weight_bytes,
                runner::decode_traffic(*one, batch, 0).weight_bytes + more, kRotaryFrequencies)
        << batch;
  }
}

TEST(SharedModelTest, TellsTheProgressOfAllRanks) {
  const checkpoint::testing::TemporaryFolder folder;
  folder.write("config.json", small_config("LlamaForCausalLM").dump());
  std::vector<std::pair<int64_t, int64_t>> reports;
  const auto pass = ForwardPass::create(
      {.model_dir = folder.path(),
       .dummy_weights = true,
       .num_threads = 2,
       .on_load_progress = [&](int64_t done, int64_t total) { reports.emplace_back(done, total); },
       .num_ranks = 4});
  ASSERT_TRUE(pass.ok()) << pass.status().to_string();
  ASSERT_GE(reports.size(), 4U);
  for (size_t i = 1; i < reports.size(); ++i) {
    EXPECT_GE(reports[i].first, reports[i - 1].first);
    const bool is_last = i + 1 == reports.size();
    EXPECT_EQ(reports[i].first == reports[i].second, is_last) << i;
  }
  const int64_t all = reports.back().second;
  int64_t bytes = 0;
  for (int64_t rank = 0; rank < 4; ++rank) {
    bytes += (*pass)->of_rank(rank).weights().bytes_copied();
  }
  EXPECT_NEAR(static_cast<double>(all), static_cast<double>(bytes),
              0.05 * static_cast<double>(bytes));
}

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

  EXPECT_THAT(refusal(dense, 8).message(),
              HasSubstr("which 8 ranks do not divide; legal: 1, 2, 4"));

  const struct {
    const char* architecture;
    const char* part;
  } kNotShared[] = {{"MiniMaxM2ForCausalLM", "layers.0.self_attn"},
                    {"Lfm2ForCausalLM", "layers.0.conv"},
                    {"JambaForCausalLM", "layers.0.mamba"},
                    {"BambaForCausalLM", "layers.0.mamba"},
                    {"MiniMaxForCausalLM", "layers.1.self_attn"},
                    {"Gemma4ForCausalLM", "what all layers read"}};

  for (const auto& [architecture, part] : kNotShared) {
    const Status status = refusal(small_of(architecture), 2);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << architecture;
    EXPECT_EQ(status.message(),
              fmt::format("--tp 2: ranks do not share {} of this family yet; legal: 1", part));
  }
}

// A model whose logits are changed on rank 1.
class ChangedOnRank1 final : public models::Model {
 public:
  using Change = graph::Value (*)(graph::GraphBuilder& g, graph::Value logits);

  ChangedOnRank1(std::unique_ptr<const Model> model, Change change)
      : model_(std::move(model)), change_(change) {}

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
    if (g.rank().index == 1) outputs.logits = change_(g, outputs.logits);
    return outputs;
  }

  graph::Value build_head(graph::GraphBuilder& g, graph::Value rows) const override {
    return model_->build_head(g, rows);
  }

 private:
  std::unique_ptr<const Model> model_;
  Change change_;
};

// The pass of two ranks. `change` must be a function object without state.
template <typename Change>
Result<std::unique_ptr<ForwardPass>> pass_changed_on_rank_1(
    Change /*change*/, std::chrono::milliseconds timeout = std::chrono::minutes(5)) {
  const checkpoint::testing::TemporaryFolder folder;
  folder.write("config.json", small_config("LlamaForCausalLM").dump());
  return ForwardPass::create(
      {.model_dir = folder.path(),
       .dummy_weights = true,
       .num_threads = 2,
       .num_ranks = 2,
       .collective_timeout = timeout,
       .create_model =
           [](const checkpoint::ModelConfig& config) -> std::unique_ptr<const models::Model> {
         return std::make_unique<ChangedOnRank1>(models::create_model(config), Change());
       }});
}

TEST(SharedModelTest, EndsAtTheDeadlineWhereARankIsMissing) {
  auto pass = pass_changed_on_rank_1(
      [](graph::GraphBuilder& g, graph::Value logits) {
        return g.apply1("all_reduce", {logits});  // rank 0 has no such collective
      },
      std::chrono::milliseconds(100));
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

TEST(FollowingRanksTest, EndTheRanksIfOneDrawsAnotherToken) {
  const auto negated = [](graph::GraphBuilder& g, graph::Value logits) {
    return g.scale(logits, -1);
  };
  const auto as_is = [](graph::GraphBuilder&, graph::Value logits) { return logits; };
  const auto first_step = [](Result<std::unique_ptr<ForwardPass>> pass) {
    const runner::PoolSizes sizes{.num_pages = 1, .page_size = 16, .max_sequences = 1};
    const request::StepLimits limits{.max_tokens = 16};
    std::vector<runner::Pools> pools;
    for (int64_t rank = 0; rank < 2; ++rank) {
      ForwardPass& own = (*pass)->of_rank(rank);
      pools.push_back(runner::Pools::create(own.device(), own.cache_needs(),
                                            {.sizes = sizes, .kv_dtype = own.kv_dtype()})
                          .value());
    }
    runner::StepExecutor first(**pass, std::move(pools.front()), sizes, limits, 16);
    runner::FollowingRanks others(**pass, std::move(pools), sizes, limits, 16,
                                  runner::LogitRows::kSampled);
    EXPECT_TRUE(first.prepare().ok() && others.prepare().ok());
    request::BatchPlan plan;
    const std::vector<int32_t> pages = {1};
    const std::vector<TokenId> prompt = {3, 1, 4};
    plan.starts.push_back({.sequence_id = 7, .sampling = {.temperature = 0}});
    plan.page_updates.push_back({.pages = plan.add_pages(pages)});
    plan.sequences.push_back(
        {.sequence_id = 7, .new_tokens = plan.add_tokens(prompt), .sample = true});
    request::StepOutput output, more;
    Status status = others.run(first, plan, output);
    EXPECT_EQ(others.run(first, plan, more).message(), status.message());
    return status;
  };
  const Status same = first_step(pass_changed_on_rank_1(as_is));
  EXPECT_TRUE(same.ok()) << same.to_string();
  const Status differs = first_step(pass_changed_on_rank_1(negated));
  EXPECT_EQ(differs.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(differs.message(), HasSubstr("rank 1 drew token"));
  EXPECT_THAT(differs.message(), HasSubstr("for sequence 7, rank 0 token"));
}

TEST(ForwardOptionsTest, RoundTheTimeOfCollectivesUp) {
  using std::chrono::milliseconds;
  EXPECT_EQ(runner::collective_timeout_of(0.0005), milliseconds(1));
  EXPECT_EQ(runner::collective_timeout_of(0), milliseconds(0)) << "for ever";
  EXPECT_EQ(runner::ForwardOptions().collective_timeout, milliseconds(20'000));
}

// Runs some requests together and returns their tokens. The prompts repeat themselves, so that
// there are n-gram drafts. With `updates`, made-up weights replace those of the files first.
std::vector<std::vector<TokenId>> shared_answers(EngineOptions options, bool updates = false) {
  options.model_dir = testing::repository_path("models/heddle-tiny");
  options.device = "cpu";
  options.num_threads = 2;
  if (options.max_total_tokens == 0) options.max_total_tokens = 4096;
  options.exact = true;
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  if (!engine.ok()) return {};
  if (updates) {
    std::promise<Status> done;
    (*engine)->update_weights(
        {.model_dir = options.model_dir, .load_format = LoadFormat::kDummy},
        [&done](const Result<WeightsUpdated>& updated) { done.set_value(updated.status()); });
    const Status status = done.get_future().get();
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
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

TEST(SharedEngine, ReplacesTheWeightsOfAllRanks) {
  const SpeculativeOptions none = {.algorithm = DraftAlgorithm::kNone};
  const auto made_up = shared_answers({.load_format = LoadFormat::kDummy, .speculative = none});
  EXPECT_NE(shared_answers({.speculative = none}), made_up);
  EXPECT_EQ(shared_answers({.num_ranks = 2, .speculative = none}, /*updates=*/true), made_up);
}

// Ranks that accepted different drafts would end the engine.
TEST(SharedEngine, SimulatesTheSameAcceptanceOnAllRanks) {
  const SpeculativeOptions simulated = {
      .algorithm = DraftAlgorithm::kNgram, .num_draft_tokens = 4, .simulated_acceptance = 2.5};
  for (const auto& tokens : shared_answers({.num_ranks = 2, .speculative = simulated})) {
    EXPECT_EQ(tokens.size(), 24U);
  }
}

// heddle-tiny has two heads of keys. Four ranks have a copy each.
TEST(SharedEngine, PlansPoolsOfAllRanks) {
  const auto plan_of = [](int32_t num_ranks) {
    auto engine = Engine::create({.model_dir = testing::repository_path("models/heddle-tiny"),
                                  .exact = true,
                                  .device = "cpu",
                                  .num_threads = 2,
                                  .num_ranks = num_ranks,
                                  .max_running_requests = 4,
                                  .max_total_tokens = 4096,
                                  .speculative = {.algorithm = DraftAlgorithm::kNone},
                                  .skip_tokenizer = true});
    EXPECT_TRUE(engine.ok()) << engine.status().to_string();
    return engine.ok() ? (*engine)->memory_plan() : MemoryPlan();
  };
  const MemoryPlan one = plan_of(1), two = plan_of(2), four = plan_of(4);
  EXPECT_GE(one.kv_tokens, 4096);
  EXPECT_EQ(two.kv_tokens, one.kv_tokens);
  EXPECT_EQ(two.kv_pool_bytes, one.kv_pool_bytes);
  EXPECT_EQ(four.kv_pool_bytes, 2 * one.kv_pool_bytes);
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
