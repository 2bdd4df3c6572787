// SPDX-License-Identifier: Apache-2.0
// Every op in steps of random sizes: its launch does what its shape function says (WatchedStep),
// and on a GPU gives what the CPU gives (CpuReference).
#include <array>
#include <chrono>
#include <map>
#include <memory>
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
#include "distributed/rank_group.h"
#include "graph/builder.h"
#include "integration/cpu_reference.h"
#include "integration/on_device.h"
#include "integration/watched_step.h"
#include "models/small_config_fixture.h"
#include "ops/device_batch.h"
#include "request/batch_slots.h"
#include "runner/program/compute_device.h"
#include "runner/program/forward_pass.h"
#include "runner/step/forward_batch.h"
#include "runner/step/pools.h"
#include "support/hand_plan.h"

namespace heddle {
namespace {

using models::testing::small_config;
using models::testing::small_gated_hybrid;
using models::testing::small_latent_experts;
using models::testing::small_latent_hybrid;
using models::testing::small_of;
using nlohmann::json;
using runner::ComputeDevice;
using runner::ForwardPass;
using testing::Bytes;
using testing::CpuReference;
using testing::WatchedStep;

constexpr int kNumSizes = 50;
constexpr std::byte kPatterns[] = {std::byte{0x00}, std::byte{0xff}};
constexpr int64_t kMaxStepTokens = 80;
constexpr int64_t kMaxContext = 40;
constexpr int32_t kMaxSequences = 3;
constexpr int32_t kPageTokens = 16;
constexpr int32_t kPagesPerSequence = (kMaxStepTokens + kMaxContext) / kPageTokens + 1;

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
  std::array<std::vector<request::PlannedSnapshot>, kMaxSequences> snapshots_;
  testing::HandPlan plan_;
};

struct Case {
  std::string name;
  json config = {};
  bool exact = false;
  std::optional<checkpoint::Rounding> rounding = std::nullopt;
  std::string device = "cpu";
  std::optional<DType> dtype = std::nullopt;  // of the run; none: as stored
};

void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

json with(json config, const json& changes) {
  config.update(changes);
  return config;
}

std::vector<Case> families() {
  const json scaled_queries = {{"llama_4_scaling_beta", 0.5},
                               {"original_max_position_embeddings", 16}};
  const json experts = {{"enable_moe_block", true},
                        {"num_experts", 8},
                        {"top_k_experts", 2},
                        {"moe_intermediate_size", 32}};
  return {
      {"gated_hybrid", small_gated_hybrid("Qwen3NextForCausalLM")},
      {"dense", small_config("LlamaForCausalLM")},
      {"biases", small_config("Qwen2ForCausalLM")},
      {"normed_heads", small_config("Qwen3ForCausalLM")},
      {"sinks", small_of("GptOssForCausalLM")},
      {"latent_scored", small_latent_experts("DeepseekV2ForCausalLM")},
      {"latent_corrected", small_latent_experts("DeepseekV3ForCausalLM")},
      {"latent_hybrid", small_latent_hybrid("KimiLinearForCausalLM")},
      {"pages_of_other_layers", small_of("Gemma4ForCausalLM")},
      {"narrow_values", small_of("MiMoV2FlashForCausalLM")},
      {"gates_of_heads",
       with(small_of("Step3p5ForCausalLM"), {{"swiglu_limits", {0.8, 0.8, 0.8, 0.8}},
                                             {"swiglu_limits_shared", {0.8, 0.8, 0.8, 0.8}}})},
      {"experts_with_scales", with(small_of("Gemma4ForCausalLM"), experts)},
      {"scaled_queries",
       small_config("Ministral3ForCausalLM", {{"rope_parameters", scaled_queries}})},
      {"norms_without_weights", small_of("NanoChatForCausalLM")},
      {"norms_of_projections", small_of("MiniMaxM2ForCausalLM")},
      {"layer_norms", small_of("Cohere2ForCausalLM")},
      {"short_convolutions", small_of("Lfm2MoeForCausalLM")},
      {"constant_decays", small_of("MiniMaxForCausalLM")},
      {"selective_scan", small_of("JambaForCausalLM")},
      {"state_space_experts", with(small_of("NemotronHForCausalLM"), {{"use_bias", true}})},
      {"shared_blocks", small_of("Zamba2ForCausalLM")},
      {"state_space_beside_attention", small_of("FalconH1ForCausalLM")},
  };
}

std::vector<Case> cpu_cases() {
  using quant::Scheme;
  std::vector<Case> all = families();
  const json gated_hybrid = all.front().config;
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

// Without quantised weights: those are dequantised when they are loaded, GPUs have no kernels for
// them.
std::vector<Case> cuda_cases() {
  std::vector<Case> all;
  const auto add = [&all](const Case& family, const char* name, bool exact, DType dtype) {
    all.push_back({.name = family.name + name,
                   .config = family.config,
                   .exact = exact,
                   .device = "cuda",
                   .dtype = dtype});
  };
  for (const Case& family : families()) {
    add(family, "", false, DType::kF32);
    add(family, "_bf16", false, DType::kBf16);
    add(family, "_exact", true, DType::kF32);
  }
  // With widths that tensor cores take (paged_attention_sm90.h, paged_attention_split.h,
  // routed_moe_sm90.h, few_experts.h, skinny_product.h).
  const json wide = small_gated_hybrid("Qwen3NextForCausalLM", {{"hidden_size", 256},
                                                                {"num_attention_heads", 8},
                                                                {"num_key_value_heads", 1},
                                                                {"head_dim", 128},
                                                                {"moe_intermediate_size", 256}});
  add({"wide_gated_hybrid", wide}, "_bf16", false, DType::kBf16);
  return all;
}

// Of a result on a GPU, as a part of the largest number of its tensor: what the suites of the ops
// allow, in fp32 that of the experts.
double tolerance_of(DType dtype) { return dtype == DType::kF32 ? 2e-5 : 1e-2; }

std::unique_ptr<ComputeDevice> open_device(const Case& tested) {
  auto compute = tested.device == "cuda" ? ComputeDevice::open_cuda(0, tested.exact)
                                         : ComputeDevice::open_cpu(2, tested.exact);
  EXPECT_TRUE(compute.ok()) << compute.status().to_string();
  return compute.ok() ? std::move(*compute) : nullptr;
}

std::unique_ptr<ForwardPass> pass_of(const Case& tested) {
  const checkpoint::testing::TemporaryFolder folder;
  folder.write("config.json", tested.config.dump());
  std::unique_ptr<ComputeDevice> compute = open_device(tested);
  if (compute == nullptr) return nullptr;
  auto pass = ForwardPass::create({.model_dir = folder.path(),
                                   .dummy_weights = true,
                                   .dtype = tested.dtype,
                                   .exact = tested.exact,
                                   .rounding = tested.rounding,
                                   .num_threads = 2,
                                   .max_step_tokens = kMaxStepTokens,
                                   .max_logit_rows = kMaxStepTokens},
                                  std::move(compute));
  EXPECT_TRUE(pass.ok()) << pass.status().to_string();
  return pass.ok() ? std::move(*pass) : nullptr;
}

class OpShapes : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    HEDDLE_DEVICE_OR_SKIP(GetParam().device);
    pass_ = pass_of(GetParam());
    ASSERT_NE(pass_, nullptr);
    cpu_ = ComputeDevice::open_cpu(2, /*exact=*/true).value();
    upload_ =
        ops::DeviceBatchUpload::create(pass_->device(), {.max_rows = kMaxStepTokens,
                                                         .max_sequences = kMaxSequences,
                                                         .max_pages_per_sequence = kUploadedPages,
                                                         .max_snapshots = kMaxSequences,
                                                         .max_logit_rows = kMaxStepTokens})
            .value();
  }

  // On a GPU with the first pattern, compares with the CPU.
  void run(const request::BatchPlan& plan, std::byte pattern, Bytes& written) {
    runner::ForwardBatch batch({.max_tokens = kMaxStepTokens,
                                .max_sequences = kMaxSequences,
                                .max_pages_per_sequence = kPagesPerSequence,
                                .page_size = kPageTokens});
    request::BatchSlots slots(kMaxSequences, kPagesPerSequence);
    ASSERT_TRUE(slots.take(plan).ok());
    ASSERT_TRUE(batch.build(plan, slots, runner::LogitRows::kSampled).ok());
    const ComputeDevice& compute = pass_->compute();
    const auto pools = pools_on(compute);
    ASSERT_TRUE(pools.ok()) << pools.status().to_string();
    ops::ForwardContext forward = batch.context(*pools);
    const int32_t *ids = batch.ids().data(), *positions = batch.positions().data();
    if (!compute.shares_memory_with_host()) {
      const Status status = upload_.upload(compute.context(), compute.stream(), batch.ids(),
                                           batch.positions(), forward);
      ASSERT_TRUE(status.ok()) << status.to_string();
      ids = upload_.ids();
      positions = upload_.positions();
    }
    const Shape rows{std::ssize(batch.ids())};
    const std::array<TensorView, 2> inputs = {TensorView(ids, DType::kI32, rows),
                                              TensorView(positions, DType::kI32, rows)};
    const ops::Extents extents{.tokens = rows[0],
                               .logits = std::ssize(forward.logit_rows),
                               .sequences = forward.num_sequences()};
    WatchedStep watched(pass_->program(), compute, extents, pattern);
    if (compute.shares_memory_with_host() || pattern != kPatterns[0]) {
      written = watched.run(forward, inputs);
      return;
    }
    const auto cpu_pools = pools_on(*cpu_);
    ASSERT_TRUE(cpu_pools.ok()) << cpu_pools.status().to_string();
    CpuReference reference(*cpu_, batch.context(*cpu_pools), extents, tolerance_of(pass_->dtype()));
    written = watched.run(forward, inputs, [&reference](const WatchedStep::Launched& launched) {
      reference.expect_near(launched);
    });
    reference.expect_near(compute, *pools);
  }

  std::unique_ptr<ForwardPass> pass_;

 private:
  static constexpr int64_t kUploadedPages = 16;  // DeviceBatchUpload::width_of() of every step

  [[nodiscard]] Result<runner::Pools> pools_on(const ComputeDevice& compute) const {
    return runner::Pools::create(compute.device(), pass_->cache_needs(),
                                 {.sizes = {.num_pages = kMaxSequences * kPagesPerSequence,
                                            .page_size = kPageTokens,
                                            .num_state_slots = 2 * kMaxSequences},
                                  .kv_dtype = pass_->kv_dtype()});
  }

  std::unique_ptr<ComputeDevice> cpu_;
  ops::DeviceBatchUpload upload_;
};

TEST_P(OpShapes, AreWhatLaunchesFill) {
  std::mt19937 random(7);
  for (int size = 0; size < kNumSizes; ++size) {
    const RandomStep step(random);
    SCOPED_TRACE(fmt::format("step {} of {} tokens", size, step.plan().num_rows()));
    std::array<Bytes, 2> written;
    for (size_t i = 0; i < 2; ++i) {
      run(step.plan(), kPatterns[i], written[i]);
      if (HasFailure()) return;
    }
    ASSERT_TRUE(written[0] == written[1]) << "an output was not written whole";
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, OpShapes, ::testing::ValuesIn(cpu_cases()),
                         [](const auto& tested) { return tested.param.name; });
INSTANTIATE_TEST_SUITE_P(Cuda, OpShapes, ::testing::ValuesIn(cuda_cases()),
                         [](const auto& tested) { return tested.param.name; });

// Two slots of adapters for a layer of 11 inputs and outputs; a third of the rows has none.
class SmallAdapters {
 public:
  SmallAdapters()
      : a_(testing::random_tensor({2, 6, 11}, DType::kF32, 1)),
        b_(testing::random_tensor({2, 11, 3}, DType::kF32, 2)),
        scales_(testing::random_tensor({2}, DType::kF32, 3)),
        parts_({2, 11}, DType::kI32),
        slots_({kMaxStepTokens}, DType::kI32) {
    int32_t i = 0;
    for (int32_t& part : parts_.span<int32_t>()) part = i++ / 4 % 2;
    for (int32_t& slot : slots_.span<int32_t>()) slot = i++ % 3 - 1;
    for (const auto& [name, tensor] : {std::pair<std::string_view, const Tensor*>("a", &a_),
                                       {"b", &b_},
                                       {"scales", &scales_},
                                       {"parts", &parts_},
                                       {"slots", &slots_}}) {
      views_.emplace(name, tensor->view());
    }
  }

  [[nodiscard]] const TensorView* find(std::string_view name) const {
    const auto found = views_.find(name);
    return found == views_.end() ? nullptr : &found->second;
  }

 private:
  Tensor a_, b_, scales_, parts_, slots_;
  std::map<std::string_view, TensorView> views_;
};

constexpr int64_t kAxes = 2;
constexpr int64_t kJoined = 2;  // patches of a token

struct Given {
  graph::Value segments, positions, axes, frequencies, rows;
};

Given inputs_of_patches(graph::GraphBuilder& g) {
  using ops::SymbolicDim;
  const ops::TensorMeta two(
      DType::kI32, {{.scale = kJoined, .symbol = ops::Symbol::kTokens}, SymbolicDim::fixed(kAxes)});
  return {.segments = g.input("segments", two),
          .positions = g.input("positions", two),
          .axes = g.input("axes", {DType::kI32, {SymbolicDim::fixed(4)}}),
          .frequencies = g.input("frequencies", {DType::kF32, {SymbolicDim::fixed(4)}}),
          .rows = g.input("rows", two)};
}

// The ops of vision towers that only the CPU has.
graph::Program patch_program(const ops::Context& context) {
  using ops::SymbolicDim;
  graph::GraphBuilder g(ops::builtin_ops(), [](std::string_view) { return nullptr; });
  const ops::TensorMeta x(
      DType::kF32, {{.scale = kJoined, .symbol = ops::Symbol::kTokens}, SymbolicDim::fixed(48)});
  const Given given = inputs_of_patches(g);
  const auto qkv = g.split(g.input("qkv", x), {16, 16, 16});
  const graph::Value q =
      g.apply1("rope_axes", {qkv[0], given.positions, given.frequencies, given.axes},
               {{"head_dim", 8.0}, {"factor", 1.0}});
  g.output(g.apply1("segment_attention", {q, qkv[1], qkv[2], given.segments},
                    {{"head_dim", 8.0}, {"scale", 0.35}}),
           "attended");
  const graph::Value table =
      g.input("table", {DType::kF32, {SymbolicDim::fixed(5), SymbolicDim::fixed(7)}});
  const graph::Value weights = g.input(
      "weights", {DType::kF32,
                  {{.scale = kJoined, .symbol = ops::Symbol::kTokens}, SymbolicDim::fixed(kAxes)}});
  g.output(g.apply1("weighted_rows", {table, given.rows, weights}), "resampled");
  const graph::Value picks =
      g.input("picks", {DType::kI32, {{.scale = kJoined, .symbol = ops::Symbol::kTokens}}});
  g.output(g.apply1("place_rows", {qkv[0], picks, qkv[1]}), "placed");
  g.output(g.apply1("add_placed_rows", {qkv[0], picks, qkv[1]}), "added");
  auto program = graph::compile(std::move(g.finish()).value(), ops::builtin_ops(), context,
                                {.largest = {.tokens = kMaxStepTokens}, .fuse = false});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return std::move(program).value();
}

// Ops that no compiled model is left with, because fusion and copy elision replace them, and those
// of vision towers. On the CPU also those by which ranks meet, here one rank, and those of
// adapters, which no model has by itself: null elsewhere.
graph::Program plain_program(const ops::Context& context, DType dtype,
                             const SmallAdapters* adapters) {
  graph::GraphBuilder g(ops::builtin_ops(), [&](std::string_view name) {
    return adapters == nullptr ? nullptr : adapters->find(name);
  });
  const auto parts = g.split(
      g.input("x",
              {dtype, {ops::SymbolicDim::of(ops::Symbol::kTokens), ops::SymbolicDim::fixed(23)}}),
      {11, 11, 1});
  g.output(g.mul(parts[0], g.sigmoid(parts[1])), "gated");
  g.output(g.mul(parts[1], parts[2]), "scaled");
  g.output(g.scale(parts[0], 0.22), "halved");
  const ops::TensorMeta row(DType::kF32, {ops::SymbolicDim::fixed(11)});
  const graph::Value weight = g.input("weight", row), bias = g.input("bias", row);
  g.output(g.apply1("layer_norm_bias", {parts[0], weight, bias}, {{"epsilon", 1e-5}}), "normed");
  if (adapters != nullptr) {
    const graph::Value h = g.apply1(
        "adapter_shrink", {parts[1], g.weight("a"), g.weight("slots"), g.weight("scales")});
    g.output(
        g.apply1("adapter_expand",
                 {g.scale(parts[0], 0.5), h, g.weight("b"), g.weight("parts"), g.weight("slots")},
                 {{"first", 0}}),
        "adapted");
  }
  g.output(g.apply1("gelu", {parts[0]}), "gelu");
  g.output(g.apply1("erf_gelu", {parts[1]}), "erf_gelu");
  const graph::Value patches = g.input(
      "patches",
      {dtype, {{.scale = kJoined, .symbol = ops::Symbol::kTokens}, ops::SymbolicDim::fixed(11)}});
  g.output(g.apply1("join_rows", {patches}, {{"count", static_cast<double>(kJoined)}}), "joined");
  if (context.device == ops::DeviceKind::kCpu) {
    g.output(g.apply1("all_reduce", {parts[0]}), "sum");
    g.output(g.apply1("all_reduce_bits", {parts[1]}), "bits");
    g.output(g.gather_columns(parts[0], {11}), "gathered");
  }
  auto program = graph::compile(std::move(g.finish()).value(), ops::builtin_ops(), context,
                                {.largest = {.tokens = kMaxStepTokens}, .fuse = false});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return std::move(program).value();
}

class PlainOpShapes : public ::testing::TestWithParam<Case> {};

TEST_P(PlainOpShapes, AreWhatLaunchesFill) {
  HEDDLE_DEVICE_OR_SKIP(GetParam().device);
  const DType dtype = *GetParam().dtype;
  const std::unique_ptr<ComputeDevice> compute = open_device(GetParam());
  ASSERT_NE(compute, nullptr);
  const auto cpu = ComputeDevice::open_cpu(2, /*exact=*/true).value();
  const auto alone = std::make_shared<distributed::RankGroup>(1, std::chrono::milliseconds(0));
  for (ComputeDevice* const device : {compute.get(), cpu.get()}) {
    if (device->pool() != nullptr) device->join(alone, 0);
  }
  const SmallAdapters adapters;
  const bool on_cpu = compute->shares_memory_with_host();
  const graph::Program program =
      plain_program(compute->context(), dtype, on_cpu ? &adapters : nullptr);
  std::mt19937 random(11);
  for (int64_t num_tokens = 1; num_tokens <= kNumSizes; ++num_tokens) {
    SCOPED_TRACE(num_tokens);
    Tensor numbers({num_tokens, 23}, DType::kF32);
    for (float& value : numbers.span<float>()) value = static_cast<float>(random()) * 1e-9f - 2;
    const Tensor x = testing::converted(numbers.view(), dtype);
    const device::Buffer memory = compute->device().allocate(x.num_bytes()).value();
    testing::copy_and_wait(*compute, memory.data(), x.view().data, x.num_bytes());
    const Tensor row = testing::random_tensor({11}, DType::kF32, 5);
    const device::Buffer row_memory = compute->device().allocate(row.num_bytes()).value();
    testing::copy_and_wait(*compute, row_memory.data(), row.view().data, row.num_bytes());
    const TensorView row_here(row_memory.data(), DType::kF32, row.shape());
    const std::array<TensorView, 4> inputs = {
        TensorView(memory.data(), dtype, x.shape()), row_here, row_here,
        TensorView(memory.data(), dtype, {kJoined * num_tokens, 11})};
    const ops::Extents extents{.tokens = num_tokens};
    CpuReference reference(*cpu, {}, extents, tolerance_of(dtype));
    std::vector<Bytes> written;
    for (const std::byte pattern : kPatterns) {
      WatchedStep watched(program, *compute, extents, pattern);
      written.push_back(watched.run(
          {}, inputs, [&reference](const auto& launched) { reference.expect_near(launched); }));
      if (HasFailure()) return;
    }
    ASSERT_TRUE(written[0] == written[1]) << "an output was not written whole";
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, PlainOpShapes,
                         ::testing::Values(Case{.name = "f32", .dtype = DType::kF32}),
                         [](const auto& tested) { return tested.param.name; });
INSTANTIATE_TEST_SUITE_P(
    Cuda, PlainOpShapes,
    ::testing::Values(Case{.name = "f32", .device = "cuda", .dtype = DType::kF32},
                      Case{.name = "bf16", .device = "cuda", .dtype = DType::kBf16}),
    [](const auto& tested) { return tested.param.name; });

// Steps of one picture and of several, whose segments are the patches of a token or of all.
TEST(PatchOpShapes, AreWhatLaunchesFill) {
  const auto compute = ComputeDevice::open_cpu(2, /*exact=*/false).value();
  const graph::Program program = patch_program(compute->context());
  const Tensor frequencies = testing::random_tensor({4}, DType::kF32, 3);
  const Tensor table = testing::random_tensor({5, 7}, DType::kF32, 4);
  Tensor axes({4}, DType::kI32);
  axes.span<int32_t>()[2] = axes.span<int32_t>()[3] = 1;
  for (int64_t num_tokens = 1; num_tokens <= kNumSizes; ++num_tokens) {
    SCOPED_TRACE(num_tokens);
    const int64_t num_patches = kJoined * num_tokens;
    Tensor segments({num_patches, 2}, DType::kI32), positions({num_patches, kAxes}, DType::kI32);
    const int64_t segment = num_tokens % 2 == 0 ? kJoined : num_patches;
    for (int64_t i = 0; i < num_patches; ++i) {
      segments.view().row<int32_t>(i)[0] = static_cast<int32_t>(i / segment * segment);
      segments.view().row<int32_t>(i)[1] = static_cast<int32_t>((i / segment + 1) * segment);
      for (int64_t axis = 0; axis < kAxes; ++axis) {
        positions.view().row<int32_t>(i)[axis] = static_cast<int32_t>((i + axis) % 5);
      }
    }
    const Tensor qkv = testing::random_tensor({num_patches, 48}, DType::kF32, 1);
    const Tensor weights = testing::random_tensor({num_patches, kAxes}, DType::kF32, 2);
    Tensor picks({num_patches}, DType::kI32);
    for (size_t i = 0; i < picks.span<int32_t>().size(); i += 2) picks.span<int32_t>()[i] = -1;
    const std::array<TensorView, 9> inputs = {segments.view(),    positions.view(), axes.view(),
                                              frequencies.view(), positions.view(), qkv.view(),
                                              table.view(),       weights.view(),   picks.view()};
    std::vector<Bytes> written;
    for (const std::byte pattern : kPatterns) {
      WatchedStep watched(program, *compute, {.tokens = num_tokens}, pattern);
      written.push_back(watched.run({}, inputs));
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
  for (const Case& tested : cpu_cases()) {
    const auto pass = pass_of(tested);
    ASSERT_NE(pass, nullptr);
    add(pass->program());
  }
  device::ThreadPool pool(1);
  const SmallAdapters adapters;
  add(plain_program(ops::CpuContext(pool), DType::kF32, &adapters));
  add(patch_program(ops::CpuContext(pool)));
  for (const auto& [name, op] : ops::builtin_ops().all()) {
    EXPECT_THAT(seen, ::testing::Contains(name));
  }
}

}  // namespace
}  // namespace heddle
