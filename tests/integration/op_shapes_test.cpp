// SPDX-License-Identifier: Apache-2.0
// Every op in steps of random sizes: its launch does what its shape function says (GuardedStep).
#include <array>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_fixture.h"
#include "device/cpu_device.h"
#include "graph/builder.h"
#include "integration/guarded_step.h"
#include "models/small_config.h"
#include "request/batch_slots.h"
#include "runner/forward_batch.h"
#include "runner/forward_pass.h"
#include "runner/pools.h"
#include "support/hand_plan.h"

namespace heddle {
namespace {

using models::testing::small_config;
using models::testing::small_gated_hybrid;
using models::testing::small_latent_experts;
using models::testing::small_latent_hybrid;
using nlohmann::json;
using runner::ForwardPass;
using testing::Bytes;
using testing::GuardedStep;

constexpr int kNumSizes = 50;
constexpr std::byte kPatterns[] = {std::byte{0x00}, std::byte{0xff}};
constexpr int64_t kMaxStepTokens = 80;
constexpr int64_t kMaxContext = 40;
constexpr int32_t kMaxSequences = 3;
constexpr int32_t kPageSize = 16;
constexpr int32_t kPagesPerSequence = (kMaxStepTokens + kMaxContext) / kPageSize + 1;

// A step of up to kMaxSequences sequences of random lengths behind random contexts, some with a
// snapshot of their state.
class RandomStep {
 public:
  explicit RandomStep(std::mt19937& random) : random_(random) {
    const int64_t num_sequences = between(1, kMaxSequences);
    int64_t left = between(num_sequences, kMaxStepTokens);
    for (int64_t b = 0; b < num_sequences; ++b) {
      const int64_t later = num_sequences - 1 - b;
      const int64_t count = later == 0 ? left : between(1, left - later);
      left -= count;
      add(static_cast<int32_t>(b), count);
    }
  }

  RandomStep(const RandomStep&) = delete;
  RandomStep& operator=(const RandomStep&) = delete;

  [[nodiscard]] request::BatchPlan plan() const { return plan_.flat(); }

 private:
  int64_t between(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }

  void add(int32_t b, int64_t count) {
    auto& tokens = tokens_[static_cast<size_t>(b)];
    for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(between(0, 319)));
    auto& pages = pages_[static_cast<size_t>(b)];
    for (int32_t i = 0; i < kPagesPerSequence; ++i) pages.push_back(1 + b * kPagesPerSequence + i);
    const int64_t context = between(0, 1) * between(0, kMaxContext);
    auto& snapshots = snapshots_[static_cast<size_t>(b)];
    if (between(0, 1) == 1) {
      snapshots.push_back({.tokens = context + between(1, count), .slot = kMaxSequences + 1 + b});
    }
    plan_.sequences.push_back({.sequence_id = b,
                               .batch_slot = b,
                               .new_tokens = tokens,
                               .context_tokens = context,
                               .kv_tokens = context,
                               .pages = pages,
                               .state_slot = 1 + b,
                               .snapshots = snapshots,
                               .sample = between(0, 3) > 0});
  }

  std::mt19937& random_;
  std::array<std::vector<TokenId>, kMaxSequences> tokens_;
  std::array<std::vector<int32_t>, kMaxSequences> pages_;
  std::array<std::vector<request::StateSnapshot>, kMaxSequences> snapshots_;
  testing::HandPlan plan_;
};

struct Case {
  std::string name;
  json config;
  bool exact = false;
  std::optional<checkpoint::Rounding> rounding = std::nullopt;
};

void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

std::vector<Case> cases() {
  using quant::Scheme;
  const json gated_hybrid = small_gated_hybrid("Qwen3NextForCausalLM");
  std::vector<Case> all = {
      {"gated_hybrid", gated_hybrid},
      {"dense", small_config("LlamaForCausalLM")},
      {"biases", small_config("Qwen2ForCausalLM")},
      {"normed_heads", small_config("Qwen3ForCausalLM")},
      {"sinks",
       small_config("GptOssForCausalLM", {{"num_local_experts", 4}, {"num_experts_per_tok", 2}})},
      {"latent_scored", small_latent_experts("DeepseekV2ForCausalLM")},
      {"latent_corrected", small_latent_experts("DeepseekV3ForCausalLM")},
      {"latent_hybrid", small_latent_hybrid("KimiLinearForCausalLM")},
  };
  const size_t count = all.size();
  for (size_t i = 0; i < count; ++i) {
    Case exact = all[i];
    exact.name += "_exact";
    exact.exact = true;
    all.push_back(std::move(exact));
  }
  all.push_back({"gated_hybrid_fp8", gated_hybrid, false, {{.scheme = Scheme::kFp8}}});
  all.push_back({"gated_hybrid_int8", gated_hybrid, false, {{.scheme = Scheme::kInt8}}});
  all.push_back(
      {"gated_hybrid_int4", gated_hybrid, false, {{.scheme = Scheme::kInt4, .group_size = 32}}});
  return all;
}

std::unique_ptr<ForwardPass> pass_of(const Case& tested) {
  const checkpoint::testing::TemporaryFolder folder;
  folder.write("config.json", tested.config.dump());
  auto pass = ForwardPass::create({.model_dir = folder.path(),
                                   .dummy_weights = true,
                                   .exact = tested.exact,
                                   .rounding = tested.rounding,
                                   .num_threads = 2,
                                   .max_step_tokens = kMaxStepTokens,
                                   .max_logit_rows = kMaxStepTokens});
  EXPECT_TRUE(pass.ok()) << pass.status().to_string();
  return pass.ok() ? std::move(*pass) : nullptr;
}

class OpShapes : public ::testing::TestWithParam<Case> {};

TEST_P(OpShapes, AreWhatLaunchesFill) {
  const auto pass = pass_of(GetParam());
  ASSERT_NE(pass, nullptr);
  std::mt19937 random(7);
  for (int size = 0; size < kNumSizes; ++size) {
    const RandomStep step(random);
    SCOPED_TRACE(fmt::format("step {} of {} tokens", size, step.plan().num_rows()));
    std::vector<Bytes> written;
    for (const std::byte pattern : kPatterns) {
      auto pools = runner::Pools::create(pass->device(), pass->cache_needs(),
                                         {.sizes = {.num_pages = kMaxSequences * kPagesPerSequence,
                                                    .page_size = kPageSize,
                                                    .num_state_slots = 2 * kMaxSequences},
                                          .kv_dtype = pass->kv_dtype()});
      ASSERT_TRUE(pools.ok()) << pools.status().to_string();
      runner::ForwardBatch batch({.max_tokens = kMaxStepTokens,
                                  .max_sequences = kMaxSequences,
                                  .max_pages_per_sequence = kPagesPerSequence,
                                  .page_size = kPageSize});
      request::BatchSlots slots(kMaxSequences, kPagesPerSequence);
      const request::BatchPlan plan = step.plan();
      ASSERT_TRUE(slots.take(plan).ok());
      ASSERT_TRUE(batch.build(plan, slots, runner::LogitRows::kSampled).ok());
      const ops::ForwardContext forward = batch.context(*pools);
      const Shape tokens{std::ssize(batch.ids())};
      const std::array<TensorView, 2> inputs = {
          TensorView(batch.ids().data(), DType::kI32, tokens),
          TensorView(batch.positions().data(), DType::kI32, tokens)};
      GuardedStep guarded(pass->program(),
                          {.tokens = tokens[0], .logits = std::ssize(forward.logit_rows)}, pattern);
      written.push_back(guarded.run(pass->context(), forward, inputs));
      if (HasFailure()) return;
    }
    ASSERT_TRUE(written[0] == written[1]) << "an output was not written whole";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, OpShapes, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

// Ops that no compiled model is left with: fusion and copy elision replace them.
graph::Program plain_program(const ops::Context& context) {
  graph::GraphBuilder g(ops::builtin_ops(), [](std::string_view) { return nullptr; });
  const auto parts = g.split(
      g.input("x", {DType::kF32,
                    {ops::SymbolicDim::of(ops::Symbol::kTokens), ops::SymbolicDim::fixed(23)}}),
      {11, 11, 1});
  g.output(g.mul(parts[0], g.sigmoid(parts[1])), "gated");
  g.output(g.mul(parts[1], parts[2]), "scaled");
  auto program = graph::compile(std::move(g.finish()).value(), ops::builtin_ops(), context,
                                {.largest = {.tokens = kMaxStepTokens}, .fuse = false});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return std::move(program).value();
}

TEST(PlainOpShapes, AreWhatLaunchesFill) {
  device::ThreadPool pool(2);
  ops::CpuContext context(pool);
  const graph::Program program = plain_program(context);
  std::mt19937 random(11);
  for (int64_t num_tokens = 1; num_tokens <= kNumSizes; ++num_tokens) {
    SCOPED_TRACE(num_tokens);
    Tensor x({num_tokens, 23}, DType::kF32);
    for (float& value : x.span<float>()) value = static_cast<float>(random()) * 1e-9f - 2;
    const std::array<TensorView, 1> inputs = {x.view()};
    std::vector<Bytes> written;
    for (const std::byte pattern : kPatterns) {
      GuardedStep guarded(program, {.tokens = num_tokens}, pattern);
      written.push_back(guarded.run(context, {}, inputs));
      if (HasFailure()) return;
    }
    ASSERT_TRUE(written[0] == written[1]) << "an output was not written whole";
  }
}

TEST(EveryOp, IsAmongThese) {
  std::set<std::string_view> seen;
  const auto add = [&seen](const graph::Program& program) {
    for (const graph::Node& node : program.placed.graph.nodes) seen.insert(node.op->name);
  };
  for (const Case& tested : cases()) {
    const auto pass = pass_of(tested);
    ASSERT_NE(pass, nullptr);
    add(pass->program());
  }
  device::ThreadPool pool(1);
  add(plain_program(ops::CpuContext(pool)));
  for (const auto& [name, op] : ops::builtin_ops().all()) {
    EXPECT_THAT(seen, ::testing::Contains(name));
  }
}

}  // namespace
}  // namespace heddle
