// SPDX-License-Identifier: Apache-2.0
#include "ops/benchmark/cuda_benchmark.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "ops/attention/paged_attention.h"
#include "ops/device_batch.h"
#include "ops/gemm/linear.h"
#include "ops/linear_attention/causal_conv1d.h"
#include "ops/linear_attention/gated_delta_rule.h"
#include "ops/moe/routed_moe.h"
#include "ops/norm/rms_norm.h"
#include "ops/sampling/sample_rows.h"
#include "quant/packed_rows.h"
#include "quant/round_to_nearest.h"

namespace heddle::ops {

namespace {

// Normally distributed random numbers in device memory. Zeros would not do: products of zeros run
// faster.
Result<device::Buffer> noise(CudaContext& context, int64_t count, DType dtype, uint64_t seed) {
  constexpr int64_t kPeriod = int64_t{1} << 20;  // the numbers repeat after this many
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const int64_t num_drawn = std::min(count, kPeriod);
  const int64_t bytes = bytes_of(dtype, num_drawn);
  HEDDLE_ASSIGN_OR_RETURN(const device::Buffer host, context.gpu.allocate_pinned(bytes));
  for (int64_t i = 0; i < num_drawn; ++i) {
    const float value = normal(random);
    if (dtype == DType::kBf16) {
      reinterpret_cast<Bf16*>(host.data())[i] = to_bf16(value);
    } else {
      reinterpret_cast<float*>(host.data())[i] = value;
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(device::Buffer buffer, context.gpu.allocate(bytes_of(dtype, count)));
  for (int64_t at = 0; at < buffer.size(); at += bytes) {
    HEDDLE_RETURN_IF_ERROR(
        context.stream.copy(buffer.data() + at, host.data(), std::min(bytes, buffer.size() - at)));
  }
  HEDDLE_RETURN_IF_ERROR(context.stream.synchronize());
  return buffer;
}

// A weight in a quantisation scheme with random codes and scales; valid as long as the buffers
// exist.
class PackedNoise {
 public:
  static Result<PackedNoise> create(CudaContext& context, quant::Scheme scheme, int64_t N,
                                    int64_t K, uint64_t seed) {
    PackedNoise made;
    quant::PackedRows rows{.format = quant::format_of(scheme, K, /*group_size=*/128),
                           .num_rows = N};
    rows.rows_per_scale = rows.format.block_rows;
    const auto bytes = [&](int64_t count) {
      return noise(context, count / 2 + 1, DType::kBf16, seed);
    };
    HEDDLE_ASSIGN_OR_RETURN(made.codes_, bytes(N * rows.format.code_bytes()));
    HEDDLE_ASSIGN_OR_RETURN(made.scales_, bytes(rows.num_scale_rows() * rows.format.scale_bytes()));
    rows.codes = made.codes_.data();
    rows.scales = made.scales_.data();
    if (rows.format.has_zeros) rows.zeros = reinterpret_cast<uint8_t*>(made.codes_.data());
    made.weight_ = std::make_unique<quant::PackedWeight>(quant::PackedWeight{.on_gpu = true});
    made.weight_->parts.push_back({.num_rows = N, .packed = rows});
    return made;
  }

  [[nodiscard]] TensorView view(const Shape& shape) const {
    TensorView view(nullptr, DType::kPacked, shape);
    view.packed = weight_.get();
    return view;
  }

 private:
  device::Buffer codes_, scales_;
  std::unique_ptr<quant::PackedWeight> weight_;
};

// A scheme that is measured, and its bits per weight.
struct MeasuredScheme {
  std::optional<quant::Scheme> scheme;  // nullopt: bfloat16
  const char* name;
  double bits;
};

constexpr MeasuredScheme kBfloat16{{}, "bfloat16", 16};
constexpr MeasuredScheme kQuantised[] = {{quant::Scheme::kFp8Block, "fp8-block", 8},
                                         {quant::Scheme::kInt8, "int8", 8},
                                         {quant::Scheme::kInt4, "int4", 4.19},
                                         {quant::Scheme::kMxfp4, "mxfp4", 4.25}};

// --- products ---

struct LinearLoad {
  int64_t T = 1, N = 0, K = 0;
  MeasuredScheme weight = kBfloat16;
};

// Times products; the weights are used in turn from more memory than the caches hold.
class LinearRun {
 public:
  static Result<std::unique_ptr<LinearRun>> create(CudaContext& context, const LinearLoad& load) {
    constexpr int64_t kWeightBytes = int64_t{600} << 20;
    auto run = std::unique_ptr<LinearRun>(new LinearRun(context, load));
    run->num_weights_ =
        static_cast<int64_t>(kWeightBytes * 8 /
                             (load.weight.bits * static_cast<double>(load.N * load.K))) +
        1;
    HEDDLE_ASSIGN_OR_RETURN(run->x_, noise(context, load.T * load.K, DType::kBf16, 1));
    if (load.weight.scheme) {
      for (int64_t i = 0; i < run->num_weights_; ++i) {
        HEDDLE_ASSIGN_OR_RETURN(PackedNoise packed,
                                PackedNoise::create(context, *load.weight.scheme, load.N, load.K,
                                                    static_cast<uint64_t>(i)));
        run->packed_.push_back(std::move(packed));
      }
    } else {
      HEDDLE_ASSIGN_OR_RETURN(run->weights_,
                              noise(context, run->num_weights_ * load.N * load.K, DType::kBf16, 2));
    }
    HEDDLE_ASSIGN_OR_RETURN(run->y_, context.gpu.allocate(bytes_of(DType::kBf16, load.T * load.N)));
    HEDDLE_ASSIGN_OR_RETURN(run->workspace_,
                            context.gpu.allocate(linear_workspace_bytes(
                                context, load.T, load.K, load.N, run->weight(0).dtype)));
    return run;
  }

  Status multiply() {
    return linear(context_,
                  {.x = TensorView(x_.data(), DType::kBf16, Shape{load_.T, load_.K}),
                   .weight = weight(next_++ % num_weights_),
                   .y = MutableTensorView(y_.data(), DType::kBf16, Shape{load_.T, load_.N}),
                   .workspace = workspace_.bytes()});
  }

 private:
  LinearRun(CudaContext& context, const LinearLoad& load) : context_(context), load_(load) {}

  [[nodiscard]] TensorView weight(int64_t turn) const {
    const Shape shape{load_.N, load_.K};
    if (!packed_.empty()) return packed_[static_cast<size_t>(turn)].view(shape);
    return {weights_.data() + turn * bytes_of(DType::kBf16, load_.N * load_.K), DType::kBf16,
            shape};
  }

  CudaContext& context_;
  LinearLoad load_;
  int64_t num_weights_ = 1;
  int64_t next_ = 0;
  device::Buffer x_, weights_, y_, workspace_;
  std::vector<PackedNoise> packed_;
};

// --- the delta rule ---

struct DeltaRuleLoad {
  int64_t B = 1;
  int64_t rows = 1;         // new tokens of each sequence
  bool slow_decay = false;  // log decays of most tokens are -0.001 to 0 instead of -1 to 0
};

// The delta rule in a layer of Qwen3-Next: 16 key and 32 value heads of 128. States are used in
// turn.
class DeltaRuleRun {
 public:
  static constexpr int64_t Nk = 16, Nv = 32, D = 128;

  static Result<std::unique_ptr<DeltaRuleRun>> create(CudaContext& context,
                                                      const DeltaRuleLoad& load) {
    auto run = std::unique_ptr<DeltaRuleRun>(new DeltaRuleRun(context, load));
    const int64_t T = load.B * load.rows;
    HEDDLE_ASSIGN_OR_RETURN(run->qkv_, noise(context, T * kWidth, DType::kBf16, 1));
    HEDDLE_ASSIGN_OR_RETURN(run->a_, noise(context, T * Nv, DType::kF32, 2));
    HEDDLE_ASSIGN_OR_RETURN(run->b_, noise(context, T * Nv, DType::kF32, 3));
    HEDDLE_ASSIGN_OR_RETURN(run->dt_bias_, noise(context, Nv, DType::kF32, 4));
    HEDDLE_ASSIGN_OR_RETURN(run->neg_exp_a_log_, context.gpu.allocate(bytes_of(DType::kF32, Nv)));
    const std::vector<float> decay(static_cast<size_t>(Nv), load.slow_decay ? -0.0003f : -0.3f);
    HEDDLE_RETURN_IF_ERROR(
        context.stream.copy(run->neg_exp_a_log_.data(), decay.data(), run->neg_exp_a_log_.size()));
    HEDDLE_ASSIGN_OR_RETURN(run->y_, context.gpu.allocate(bytes_of(DType::kBf16, T * Nv * D)));
    HEDDLE_ASSIGN_OR_RETURN(
        run->states_, context.gpu.allocate(bytes_of(DType::kF32, run->num_slots_ * Nv * D * D)));
    HEDDLE_ASSIGN_OR_RETURN(run->workspace_, context.gpu.allocate(gated_delta_rule_workspace_bytes(
                                                 context, {.max_tokens = T,
                                                           .num_value_heads = Nv,
                                                           .key_dim = D,
                                                           .value_dim = D,
                                                           .dtype = DType::kBf16})));
    for (int64_t b = 0; b <= load.B; ++b) {
      run->query_start_.push_back(static_cast<int32_t>(b * load.rows));
    }
    // A context of 64 tokens: states are read, and prompts begin at a chunk boundary.
    run->context_lens_.assign(static_cast<size_t>(load.B), 64);
    const std::vector<int32_t> zeros(static_cast<size_t>(T));
    for (int64_t turn = 0; turn < run->num_slots_ / load.B; ++turn) {
      Turn& next = run->turns_.emplace_back();
      for (int64_t b = 0; b < load.B; ++b) {
        next.slots.push_back(static_cast<int32_t>(turn * load.B + b));
      }
      HEDDLE_ASSIGN_OR_RETURN(
          next.batch,
          DeviceBatchUpload::create(
              context.gpu,
              {.max_rows = T, .max_sequences = load.B, .max_snapshots = 0, .max_logit_rows = 0}));
      next.forward.query_start = run->query_start_;
      next.forward.context_lens = run->context_lens_;
      next.forward.state_slots = next.slots;
      HEDDLE_RETURN_IF_ERROR(
          next.batch.upload(context, context.stream, zeros, zeros, next.forward));
    }
    HEDDLE_RETURN_IF_ERROR(context.stream.synchronize());
    return run;
  }

  Status recur() {
    const Turn& turn = turns_[static_cast<size_t>(next_++) % turns_.size()];
    const int64_t T = load_.B * load_.rows;
    const auto gate = [&](const device::Buffer& buffer) {
      return TensorView(buffer.data(), DType::kF32, Shape{T, Nv});
    };
    const auto per_head = [&](const device::Buffer& buffer) {
      return TensorView(buffer.data(), DType::kF32, Shape{Nv});
    };
    return gated_delta_rule(context_,
                            {.qkv = TensorView(qkv_.data(), DType::kBf16, Shape{T, kWidth}),
                             .a = gate(a_),
                             .b = gate(b_),
                             .neg_exp_a_log = per_head(neg_exp_a_log_),
                             .dt_bias = per_head(dt_bias_),
                             .y = MutableTensorView(y_.data(), DType::kBf16, Shape{T, Nv * D}),
                             .num_key_heads = Nk,
                             .key_dim = D,
                             .value_dim = D,
                             .state = {.conv = {},
                                       .recurrent = MutableTensorView(states_.data(), DType::kF32,
                                                                      Shape{num_slots_, Nv, D, D})},
                             .forward = &turn.forward,
                             .workspace = workspace_.bytes()});
  }

 private:
  static constexpr int64_t kWidth = (2 * Nk + Nv) * D;

  struct Turn {
    std::vector<int32_t> slots;
    ForwardContext forward;
    DeviceBatchUpload batch;
  };

  DeltaRuleRun(CudaContext& context, const DeltaRuleLoad& load)
      : context_(context),
        load_(load),
        num_slots_(load.B * (load.rows > 1 ? 1 : 256 / load.B + 1)) {
    // reserved, so that views of slots stay valid.
    turns_.reserve(static_cast<size_t>(num_slots_ / load.B));
  }

  CudaContext& context_;
  DeltaRuleLoad load_;
  int64_t num_slots_;
  int64_t next_ = 0;
  device::Buffer qkv_, a_, b_, dt_bias_, neg_exp_a_log_, y_, states_, workspace_;
  std::vector<int32_t> query_start_, context_lens_;
  std::vector<Turn> turns_;
};

// --- the convolution before the delta rule ---

// The convolution of one prompt: 8,192 channels, as in a layer of Qwen3-Next.
class ConvolutionRun {
 public:
  static constexpr int64_t C = 8192, W = 4;

  static Result<std::unique_ptr<ConvolutionRun>> create(CudaContext& context, int64_t T) {
    auto run = std::unique_ptr<ConvolutionRun>(new ConvolutionRun(context, T));
    HEDDLE_ASSIGN_OR_RETURN(run->x_, noise(context, T * C, DType::kBf16, 1));
    HEDDLE_ASSIGN_OR_RETURN(run->weight_, noise(context, C * W, DType::kF32, 2));
    HEDDLE_ASSIGN_OR_RETURN(run->y_, context.gpu.allocate(bytes_of(DType::kBf16, T * C)));
    HEDDLE_ASSIGN_OR_RETURN(run->state_, context.gpu.allocate(bytes_of(DType::kF32, (W - 1) * C)));
    run->query_start_ = {0, static_cast<int32_t>(T)};
    run->forward_.query_start = run->query_start_;
    run->forward_.context_lens = run->zero_;
    run->forward_.state_slots = run->zero_;
    HEDDLE_ASSIGN_OR_RETURN(
        run->batch_,
        DeviceBatchUpload::create(
            context.gpu,
            {.max_rows = T, .max_sequences = 1, .max_snapshots = 0, .max_logit_rows = 0}));
    const std::vector<int32_t> zeros(static_cast<size_t>(T));
    HEDDLE_RETURN_IF_ERROR(
        run->batch_.upload(context, context.stream, zeros, zeros, run->forward_));
    HEDDLE_RETURN_IF_ERROR(context.stream.synchronize());
    return run;
  }

  Status convolve() {
    return causal_conv1d(
        context_,
        {.x = TensorView(x_.data(), DType::kBf16, Shape{T_, C}),
         .weight = TensorView(weight_.data(), DType::kF32, Shape{C, W}),
         .y = MutableTensorView(y_.data(), DType::kBf16, Shape{T_, C}),
         .state = {.conv = MutableTensorView(state_.data(), DType::kF32, Shape{1, W - 1, C}),
                   .recurrent = {}},
         .forward = &forward_});
  }

 private:
  ConvolutionRun(CudaContext& context, int64_t T) : context_(context), T_(T) {}

  CudaContext& context_;
  int64_t T_;
  device::Buffer x_, weight_, y_, state_;
  std::vector<int32_t> query_start_, zero_ = {0};
  ForwardContext forward_;
  DeviceBatchUpload batch_;
};

// --- the norm between layers ---

// The norm with the residual sum before it, as wide as in Qwen3-Next.
class NormRun {
 public:
  static constexpr int64_t H = 2048;

  static Result<std::unique_ptr<NormRun>> create(CudaContext& context, int64_t T) {
    auto run = std::unique_ptr<NormRun>(new NormRun(context, T));
    HEDDLE_ASSIGN_OR_RETURN(run->x_, noise(context, T * H, DType::kBf16, 1));
    HEDDLE_ASSIGN_OR_RETURN(run->residual_, noise(context, T * H, DType::kBf16, 2));
    HEDDLE_ASSIGN_OR_RETURN(run->weight_, noise(context, H, DType::kF32, 3));
    HEDDLE_ASSIGN_OR_RETURN(run->y_, context.gpu.allocate(bytes_of(DType::kBf16, T * H)));
    return run;
  }

  Status add_and_normalise() {
    return rms_norm(context_,
                    {.x = TensorView(x_.data(), DType::kBf16, Shape{T_, H}),
                     .residual = MutableTensorView(residual_.data(), DType::kBf16, Shape{T_, H}),
                     .weight = TensorView(weight_.data(), DType::kF32, Shape{H}),
                     .y = MutableTensorView(y_.data(), DType::kBf16, Shape{T_, H})});
  }

 private:
  NormRun(CudaContext& context, int64_t T) : context_(context), T_(T) {}

  CudaContext& context_;
  int64_t T_;
  device::Buffer x_, residual_, weight_, y_;
};

// --- experts ---

struct ExpertsLoad {
  int64_t T = 1;
  MeasuredScheme weight = kBfloat16;
};

// The experts of a layer of Qwen3-Next: 512 experts of 512, ten for each token, hidden 2048. Their
// weights, 3.2 GB, are more than any cache holds.
class ExpertsRun {
 public:
  static constexpr int64_t H = 2048, I = 512, E = 512, A = 10;

  static Result<std::unique_ptr<ExpertsRun>> create(CudaContext& context, const ExpertsLoad& load) {
    const int64_t T = load.T;
    auto run = std::unique_ptr<ExpertsRun>(new ExpertsRun(context, T));
    HEDDLE_ASSIGN_OR_RETURN(run->x_, noise(context, T * H, DType::kBf16, 1));
    HEDDLE_ASSIGN_OR_RETURN(run->logits_, noise(context, T * E, DType::kF32, 2));
    if (load.weight.scheme) {
      const quant::Scheme scheme = *load.weight.scheme;
      HEDDLE_ASSIGN_OR_RETURN(run->packed13_,
                              PackedNoise::create(context, scheme, E * 2 * I, H, 3));
      HEDDLE_ASSIGN_OR_RETURN(run->packed2_, PackedNoise::create(context, scheme, E * H, I, 4));
    } else {
      HEDDLE_ASSIGN_OR_RETURN(run->w13_, noise(context, E * 2 * I * H, DType::kBf16, 3));
      HEDDLE_ASSIGN_OR_RETURN(run->w2_, noise(context, E * H * I, DType::kBf16, 4));
    }
    HEDDLE_ASSIGN_OR_RETURN(run->y_, context.gpu.allocate(bytes_of(DType::kBf16, T * H)));
    HEDDLE_ASSIGN_OR_RETURN(run->workspace_,
                            context.gpu.allocate(routed_moe_workspace_bytes(
                                context, T,
                                {.H = H,
                                 .I = I,
                                 .E = E,
                                 .A = A,
                                 .weight = load.weight.scheme ? DType::kPacked : DType::kBf16,
                                 .x = DType::kBf16})));
    return run;
  }

  Status choose_and_multiply() {
    return routed_moe(context_,
                      {.x = TensorView(x_.data(), DType::kBf16, Shape{T_, H}),
                       .router_logits = TensorView(logits_.data(), DType::kF32, Shape{T_, E}),
                       .w13 = weight(packed13_, w13_, Shape{E, 2 * I, H}),
                       .w2 = weight(packed2_, w2_, Shape{E, H, I}),
                       .y = MutableTensorView(y_.data(), DType::kBf16, Shape{T_, H}),
                       .experts_per_token = A,
                       .workspace = workspace_.bytes()});
  }

 private:
  ExpertsRun(CudaContext& context, int64_t T) : context_(context), T_(T) {}

  static TensorView weight(const std::optional<PackedNoise>& packed, const device::Buffer& plain,
                           const Shape& shape) {
    return packed ? packed->view(shape) : TensorView(plain.data(), DType::kBf16, shape);
  }

  CudaContext& context_;
  int64_t T_;
  device::Buffer x_, logits_, w13_, w2_, y_, workspace_;
  std::optional<PackedNoise> packed13_, packed2_;
};

// --- attention ---

struct CudaAttentionLoad {
  int64_t B = 1;
  int64_t rows = 1;     // new tokens of each sequence
  int64_t context = 0;  // tokens of each sequence before the new ones
};

// Attention in a layer of Qwen3-Next: 16 query and 2 key heads of 256, pages of 16 tokens. The
// step's keys and values are in the pages already, as in models, where the launch that rotates them
// stores them (attention/rotate_append.h). Decode uses pages in turn from more memory than the
// caches hold.
class CudaAttentionRun {
 public:
  static constexpr int64_t Nq = 16, Nkv = 2, D = 256, S = 16;

  static Result<std::unique_ptr<CudaAttentionRun>> create(CudaContext& context,
                                                          const CudaAttentionLoad& load) {
    auto run = std::unique_ptr<CudaAttentionRun>(new CudaAttentionRun(context, load));
    const int64_t T = load.B * load.rows;
    const int64_t width = (load.context + load.rows + S - 1) / S;
    HEDDLE_ASSIGN_OR_RETURN(run->qkv_, noise(context, T * kWidth, DType::kBf16, 1));
    HEDDLE_ASSIGN_OR_RETURN(run->y_, context.gpu.allocate(bytes_of(DType::kBf16, T * Nq * D)));
    const int64_t bytes = bytes_of(DType::kBf16, load.B * width * S * Nkv * D * 2);
    const int64_t num_turns = load.rows > 1 ? 1 : (int64_t{200} << 20) / bytes + 1;
    run->num_pages_ = num_turns * load.B * width;
    for (device::Buffer* pool : {&run->k_pages_, &run->v_pages_}) {
      HEDDLE_ASSIGN_OR_RETURN(*pool,
                              noise(context, run->num_pages_ * S * Nkv * D, DType::kBf16, 2));
    }
    HEDDLE_ASSIGN_OR_RETURN(
        run->workspace_, context.gpu.allocate(paged_attention_workspace_bytes(context, T, D, D)));
    for (int64_t b = 0; b <= load.B; ++b) {
      run->query_start_.push_back(static_cast<int32_t>(b * load.rows));
    }
    run->context_lens_.assign(static_cast<size_t>(load.B), static_cast<int32_t>(load.context));
    // reserved, so that views of tables stay valid.
    run->turns_.reserve(static_cast<size_t>(num_turns));
    // Consecutive pages of a sequence are not adjacent in the pool.
    std::vector<int32_t> pages(static_cast<size_t>(run->num_pages_));
    std::iota(pages.begin(), pages.end(), 0);
    std::ranges::shuffle(pages, std::mt19937_64(3));
    const std::vector<int32_t> zeros(static_cast<size_t>(T));
    for (int64_t turn = 0; turn < num_turns; ++turn) {
      Turn& next = run->turns_.emplace_back();
      const auto first = pages.begin() + turn * load.B * width;
      next.pages.assign(first, first + load.B * width);
      next.forward.query_start = run->query_start_;
      next.forward.context_lens = run->context_lens_;
      next.forward.page_tables[0] = next.pages;
      next.forward.page_table_width = width;
      next.forward.page_size = S;
      HEDDLE_ASSIGN_OR_RETURN(
          next.batch,
          DeviceBatchUpload::create(
              context.gpu, {.max_rows = T,
                            .max_sequences = load.B,
                            .max_pages_per_sequence = DeviceBatchUpload::width_of(next.forward)}));
      HEDDLE_RETURN_IF_ERROR(
          next.batch.upload(context, context.stream, zeros, zeros, next.forward));
    }
    HEDDLE_RETURN_IF_ERROR(context.stream.synchronize());
    return run;
  }

  Status attend() {
    const Turn& turn = turns_[static_cast<size_t>(next_++) % turns_.size()];
    const int64_t T = load_.B * load_.rows;
    const auto rows = [&](int64_t first, int64_t width) {
      return TensorView(qkv_.data() + bytes_of(DType::kBf16, first), DType::kBf16, Shape{T, width},
                        kWidth);
    };
    const auto pool = [&](device::Buffer& pages) {
      return MutableTensorView(pages.data(), DType::kBf16, Shape{num_pages_, S, Nkv, D});
    };
    return attend_to_pages_cuda(context_,
                                {.q = rows(0, Nq * D),
                                 .k = rows(Nq * D, Nkv * D),
                                 .v = rows((Nq + Nkv) * D, Nkv * D),
                                 .y = MutableTensorView(y_.data(), DType::kBf16, Shape{T, Nq * D}),
                                 .num_kv_heads = Nkv,
                                 .head_dim = D,
                                 .scale = 0.0625f,
                                 .kv = {.k = pool(k_pages_), .v = pool(v_pages_)},
                                 .forward = &turn.forward,
                                 .workspace = workspace_.bytes()});
  }

 private:
  static constexpr int64_t kWidth = (Nq + 2 * Nkv) * D;

  struct Turn {
    std::vector<int32_t> pages;
    ForwardContext forward;
    DeviceBatchUpload batch;
  };

  CudaAttentionRun(CudaContext& context, const CudaAttentionLoad& load)
      : context_(context), load_(load) {}

  CudaContext& context_;
  CudaAttentionLoad load_;
  int64_t num_pages_ = 0;
  int64_t next_ = 0;
  device::Buffer qkv_, y_, k_pages_, v_pages_, workspace_;
  std::vector<int32_t> query_start_, context_lens_;
  std::vector<Turn> turns_;
};

// --- sampling ---

struct SamplingLoad {
  int64_t rows = 1;
  const char* name = "";
  SamplingSlot slot;
};

// Logits for Qwen3-Next's vocabulary, with the spread of a language model's (inverse temperature
// 3). They are used in turn from more memory than the caches hold, as if another step had run in
// between; right after an LM head they would be in the cache.
class SamplingRun {
 public:
  static constexpr int64_t V = 151936;

  static Result<std::unique_ptr<SamplingRun>> create(CudaContext& context,
                                                     const SamplingLoad& load) {
    auto run = std::unique_ptr<SamplingRun>(new SamplingRun(context, load));
    run->num_turns_ = (int64_t{200} << 20) / bytes_of(DType::kF32, load.rows * V) + 1;
    HEDDLE_ASSIGN_OR_RETURN(run->logits_,
                            noise(context, run->num_turns_ * load.rows * V, DType::kF32, 1));
    std::vector<SamplingRow> rows;
    for (int64_t r = 0; r < load.rows; ++r) {
      rows.push_back({.slot = static_cast<int32_t>(r), .position = 100 * r});
    }
    const std::vector<SamplingSlot> slots(static_cast<size_t>(load.rows), load.slot);
    HEDDLE_ASSIGN_OR_RETURN(run->rows_, run->uploaded(rows));
    HEDDLE_ASSIGN_OR_RETURN(run->slots_, run->uploaded(slots));
    HEDDLE_ASSIGN_OR_RETURN(
        run->sampled_, context.gpu.allocate(load.rows * static_cast<int64_t>(sizeof(SampledRow))));
    HEDDLE_ASSIGN_OR_RETURN(
        run->top_logits_,
        context.gpu.allocate(load.rows * kMostTopLogits * static_cast<int64_t>(sizeof(TopLogit))));
    HEDDLE_ASSIGN_OR_RETURN(run->workspace_,
                            context.gpu.allocate(sample_rows_workspace_bytes(load.rows, V)));
    return run;
  }

  Status sample() {
    const int64_t turn = next_++ % num_turns_;
    std::byte* logits = logits_.data() + turn * bytes_of(DType::kF32, load_.rows * V);
    return sample_rows(context_,
                       {.logits = MutableTensorView(logits, DType::kF32, Shape{load_.rows, V}),
                        .rows = reinterpret_cast<const SamplingRow*>(rows_.data()),
                        .slots = reinterpret_cast<const SamplingSlot*>(slots_.data()),
                        .kind = draw_kind(load_.slot),
                        .sampled = reinterpret_cast<SampledRow*>(sampled_.data()),
                        .top_logits = reinterpret_cast<TopLogit*>(top_logits_.data()),
                        .workspace = workspace_.bytes()});
  }

 private:
  SamplingRun(CudaContext& context, const SamplingLoad& load) : context_(context), load_(load) {}

  template <typename Element>
  Result<device::Buffer> uploaded(const std::vector<Element>& host) {
    const auto bytes = static_cast<int64_t>(host.size() * sizeof(Element));
    HEDDLE_ASSIGN_OR_RETURN(device::Buffer buffer, context_.gpu.allocate(bytes));
    HEDDLE_RETURN_IF_ERROR(context_.stream.copy(buffer.data(), host.data(), bytes));
    HEDDLE_RETURN_IF_ERROR(context_.stream.synchronize());
    return buffer;
  }

  CudaContext& context_;
  SamplingLoad load_;
  int64_t num_turns_ = 1;
  int64_t next_ = 0;
  device::Buffer logits_, rows_, slots_, sampled_, top_logits_, workspace_;
};

// Makes a benchmark of `Run`, which allocates its memory at the first call.
template <class Run, class Load>
std::function<Status()> lazily(CudaContext& context, const Load& load, Status (Run::*run)()) {
  auto data = std::make_shared<std::unique_ptr<Run>>();
  return [&context, load, run, data]() -> Status {
    if (*data == nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(*data, Run::create(context, load));
    }
    return ((**data).*run)();
  };
}

}  // namespace

std::vector<CudaBenchmark> cuda_benchmarks(CudaContext& context, std::string_view filter) {
  constexpr int64_t kPromptTokens = 8192;
  std::vector<CudaBenchmark> benchmarks;
  const auto add = [&](CudaBenchmark benchmark) {
    if (benchmark.name.find(filter) != std::string::npos) {
      benchmarks.push_back(std::move(benchmark));
    }
  };
  // The products of Qwen3-Next: projections in and out, the router with the shared expert, the LM
  // head, in steps of few rows; a larger step and a prompt.
  std::vector<LinearLoad> products;
  for (const auto& [N, K] : {std::pair{12288, 2048}, {2048, 4096}, {1537, 2048}, {151936, 2048}}) {
    for (const int64_t T : {1, 4, 8, 16}) products.push_back({.T = T, .N = N, .K = K});
  }
  for (const int64_t T : {64, 8192}) products.push_back({.T = T, .N = 12288, .K = 2048});
  for (const MeasuredScheme& weight : kQuantised) {
    for (const int64_t T : {1, 4, 16, 64, 8192}) {
      products.push_back({.T = T, .N = 12288, .K = 2048, .weight = weight});
    }
    for (const auto& [N, K] : {std::pair{2048, 4096}, {151936, 2048}}) {
      for (const int64_t T : {1, 16})
        products.push_back({.T = T, .N = N, .K = K, .weight = weight});
    }
  }
  for (const LinearLoad& load : products) {
    const auto T = static_cast<double>(load.T), N = static_cast<double>(load.N),
               K = static_cast<double>(load.K);
    add({.name = "linear",
         .shape = fmt::format("T {}, N {}, K {}, {}", load.T, load.N, load.K, load.weight.name),
         .bytes = load.weight.bits / 8 * N * K + 2 * T * (N + K),
         .flops = 2 * T * N * K,
         .run = lazily<LinearRun>(context, load, &LinearRun::multiply)});
  }
  for (const DeltaRuleLoad& load :
       {DeltaRuleLoad{.B = 1, .rows = 1}, DeltaRuleLoad{.B = 32, .rows = 1},
        DeltaRuleLoad{.B = 128, .rows = 1}, DeltaRuleLoad{.B = 256, .rows = 1},
        DeltaRuleLoad{.B = 1, .rows = 2048}, DeltaRuleLoad{.B = 1, .rows = 8192},
        DeltaRuleLoad{.B = 1, .rows = 32768}, DeltaRuleLoad{.B = 8, .rows = 1024},
        DeltaRuleLoad{.B = 4, .rows = 2048},
        // Kernels that skip decayed tokens are slower with slow decay; ours do not look at decays.
        DeltaRuleLoad{.B = 1, .rows = 8192, .slow_decay = true},
        DeltaRuleLoad{.B = 8, .rows = 1024, .slow_decay = true}}) {
    using Run = DeltaRuleRun;
    const auto T = static_cast<double>(load.B * load.rows), B = static_cast<double>(load.B);
    const double heads = Run::Nv, width = Run::D, keys = Run::Nk;
    const double state = heads * width * width;
    // Flops of the recurrent form: two dot products and an update for each token. In chunks of 64:
    // five products for each value head, two for each key head, 8.4 and 2.1 MFLOP a chunk.
    const double chunked = T / 64 * (heads * 8.4e6 + keys * 2.1e6);
    add({.name = "gated_delta_rule",
         .shape =
             fmt::format("B {}, rows {}, Nk {}, Nv {}, Dk {}, Dv {}, bfloat16{}", load.B, load.rows,
                         Run::Nk, Run::Nv, Run::D, Run::D, load.slow_decay ? ", slow decay" : ""),
         .bytes =
             8 * state * B + T * (2 * (2 * keys + heads) * width + 8 * heads + 2 * heads * width),
         .flops = load.rows == 1 ? 6 * T * state : chunked,
         .run = lazily<Run>(context, load, &Run::recur)});
  }
  const auto tokens = static_cast<double>(kPromptTokens);
  add({.name = "causal_conv1d",
       .shape = fmt::format("B 1, rows {}, C {}, W {}, bfloat16", kPromptTokens, ConvolutionRun::C,
                            ConvolutionRun::W),
       .bytes = 4.0 * tokens * ConvolutionRun::C,
       .flops = 2.0 * tokens * ConvolutionRun::C * ConvolutionRun::W,
       .run = lazily<ConvolutionRun>(context, kPromptTokens, &ConvolutionRun::convolve)});
  add({.name = "add_rms_norm",
       .shape = fmt::format("T {}, H {}, bfloat16", kPromptTokens, NormRun::H),
       .bytes = 8.0 * tokens * NormRun::H,
       .flops = 4.0 * tokens * NormRun::H,
       .run = lazily<NormRun>(context, kPromptTokens, &NormRun::add_and_normalise)});
  for (const CudaAttentionLoad& load :
       {CudaAttentionLoad{.rows = 2048}, CudaAttentionLoad{.rows = 8192},
        CudaAttentionLoad{.rows = 2048, .context = 6144}, CudaAttentionLoad{.B = 8, .rows = 1024},
        CudaAttentionLoad{.context = 255}, CudaAttentionLoad{.context = 2047},
        CudaAttentionLoad{.context = 8191}, CudaAttentionLoad{.context = 32767},
        CudaAttentionLoad{.context = 40959}, CudaAttentionLoad{.context = 131071},
        CudaAttentionLoad{.B = 8, .context = 32767}, CudaAttentionLoad{.B = 64, .context = 4095},
        CudaAttentionLoad{.B = 256, .context = 1023}}) {
    using Run = CudaAttentionRun;
    const auto T = static_cast<double>(load.B * load.rows), B = static_cast<double>(load.B);
    const auto rows = static_cast<double>(load.rows), before = static_cast<double>(load.context);
    const double pairs = T * (before + (rows + 1) / 2);
    add({.name = "paged_attention",
         .shape = fmt::format("B {}, rows {} after {}, Nq {}, Nkv {}, D {}, bfloat16", load.B,
                              load.rows, load.context, Run::Nq, Run::Nkv, Run::D),
         .bytes = 4.0 * Run::D * (Run::Nkv * B * (before + rows) + Run::Nq * T),
         .flops = 4.0 * pairs * Run::Nq * Run::D,
         .run = lazily<Run>(context, load, &Run::attend)});
  }
  std::vector<ExpertsLoad> experts_loads;
  for (const int64_t T : {1, 4, 8, 16, 32, 64, 256, 2048, 8192}) experts_loads.push_back({.T = T});
  for (const MeasuredScheme& weight : kQuantised) {
    for (const int64_t T : {1, 64, 256, 1024, 2048, 8192}) experts_loads.push_back({T, weight});
  }
  for (const ExpertsLoad& load : experts_loads) {
    using Run = ExpertsRun;
    const int64_t T = load.T;
    const auto rows = static_cast<double>(T * Run::A);
    const double expert = 3.0 * Run::I * Run::H;  // weights of an expert
    const double experts =
        Run::E * (1 - std::pow(1 - 1.0 * Run::A / Run::E, static_cast<double>(T)));
    add({.name = "routed_moe",
         .shape = fmt::format("T {}, H {}, I {}, E {}, A {}, {}", T, Run::H, Run::I, Run::E, Run::A,
                              load.weight.name),
         .bytes = load.weight.bits / 8 * experts * expert + 4.0 * static_cast<double>(T * Run::H),
         .flops = 2 * rows * expert,
         .run = lazily<Run>(context, load, &Run::choose_and_multiply)});
  }
  for (const int64_t rows : {1, 64, 256}) {
    constexpr double kNoMinP = -std::numeric_limits<double>::infinity();
    const SamplingSlot open{.min_p_reach = kNoMinP, .inverse_temperature = 3};
    SamplingSlot greedy = open, top_k = open, top_p = open, logprobs = open;
    greedy.greedy = 1;
    top_k.top_k = 20;
    top_k.top_p = 0.8f;
    top_p.top_p = 0.95f;
    logprobs.top_logprobs = 20;
    for (const SamplingLoad& load :
         {SamplingLoad{rows, "greedy", greedy}, SamplingLoad{rows, "open", open},
          SamplingLoad{rows, "top_k 20, top_p 0.8", top_k}, SamplingLoad{rows, "top_p 0.95", top_p},
          SamplingLoad{rows, "open with 20 alternatives", logprobs}}) {
      add({.name = "sample_rows",
           .shape = fmt::format("R {}, V {}, {}", rows, SamplingRun::V, load.name),
           .bytes = 4.0 * static_cast<double>(rows * SamplingRun::V),
           .flops = 0,
           .run = lazily<SamplingRun>(context, load, &SamplingRun::sample)});
    }
  }
  return benchmarks;
}

Result<Measurement> measure_cuda(CudaContext& context, const CudaBenchmark& benchmark, int runs) {
  constexpr int kLaunches = 12;
  constexpr int kWarmUp = 2;
  HEDDLE_RETURN_IF_ERROR(benchmark.run());  // allocates memory, loads kernels, chooses algorithms
  HEDDLE_RETURN_IF_ERROR(context.stream.synchronize());
  HEDDLE_ASSIGN_OR_RETURN(const auto start, context.gpu.create_event());
  HEDDLE_ASSIGN_OR_RETURN(const auto end, context.gpu.create_event());
  HEDDLE_RETURN_IF_ERROR(context.stream.begin_capture());
  Status enqueued;
  for (int run = 0; run < runs && enqueued.ok(); ++run) enqueued = benchmark.run();
  HEDDLE_ASSIGN_OR_RETURN(const auto work, context.stream.end_capture());
  HEDDLE_RETURN_IF_ERROR(enqueued);
  std::vector<double> seconds;
  for (int launch = 0; launch < kLaunches; ++launch) {
    HEDDLE_RETURN_IF_ERROR(context.stream.record(*start));
    HEDDLE_RETURN_IF_ERROR(context.stream.launch(*work));
    HEDDLE_RETURN_IF_ERROR(context.stream.record(*end));
    HEDDLE_RETURN_IF_ERROR(end->wait());
    HEDDLE_ASSIGN_OR_RETURN(const double elapsed, end->seconds_since(*start));
    if (launch >= kWarmUp) seconds.push_back(elapsed / runs);
  }
  std::ranges::sort(seconds);
  Measurement result{.median_seconds = seconds[seconds.size() / 2],
                     .best_seconds = seconds.front()};
  result.gb_per_s = benchmark.bytes / result.median_seconds * 1e-9;
  result.gflops = benchmark.flops / result.median_seconds * 1e-9;
  return result;
}

Result<double> measure_cuda_copy(CudaContext& context) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  HEDDLE_ASSIGN_OR_RETURN(const device::Buffer from, context.gpu.allocate(kBytes));
  HEDDLE_ASSIGN_OR_RETURN(const device::Buffer to, context.gpu.allocate(kBytes));
  // Not captured as a graph: copies in a graph are executed differently and are slower.
  HEDDLE_ASSIGN_OR_RETURN(const auto start, context.gpu.create_event());
  HEDDLE_ASSIGN_OR_RETURN(const auto end, context.gpu.create_event());
  double best = 0;
  for (int copy = 0; copy < 10; ++copy) {
    HEDDLE_RETURN_IF_ERROR(context.stream.record(*start));
    HEDDLE_RETURN_IF_ERROR(context.stream.copy(to.data(), from.data(), kBytes));
    HEDDLE_RETURN_IF_ERROR(context.stream.record(*end));
    HEDDLE_RETURN_IF_ERROR(end->wait());
    HEDDLE_ASSIGN_OR_RETURN(const double seconds, end->seconds_since(*start));
    best = std::max(best, 2.0 * static_cast<double>(kBytes) / seconds * 1e-9);
  }
  return best;
}

}  // namespace heddle::ops
