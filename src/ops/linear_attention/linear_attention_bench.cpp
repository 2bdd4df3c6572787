// SPDX-License-Identifier: Apache-2.0
// The delta rule at two widths and with a decay for each channel, and decayed linear attention over
// the same rows: prefill in both forms and decode; their convolution and norms.
#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "ops/benchmark/benchmark_data.h"
#include "ops/benchmark/op_benchmark.h"
#include "ops/linear_attention/causal_conv1d.h"
#include "ops/linear_attention/decayed_linear_attention.h"
#include "ops/linear_attention/gated_delta_rule.h"
#include "ops/linear_attention/gated_rms_norm.h"

namespace heddle::ops {

namespace {

constexpr int64_t kConvWidth = 4;

struct LayerShape {
  int64_t Nk = 0, Nv = 0, Dk = 0, Dv = 0;
  bool channel_decay = false;

  // Numbers of a token's decay.
  [[nodiscard]] int64_t decay_width() const { return channel_decay ? Nv * Dk : Nv; }

  [[nodiscard]] int64_t qkv_width() const { return 2 * Nk * Dk + Nv * Dv; }
};

struct LayerLoad {
  LayerShape shape;
  int64_t B = 1;
  int64_t num_rows = 1;
};

// A layer with `num_slots` states, taken in turn so that decode finds its states in memory.
class LayerRun {
 public:
  LayerRun(CpuContext& context, const LayerLoad& load)
      : context_(context), load_(load), num_slots_(load.num_rows == 1 ? 129 : load.B + 1) {
    const auto& [Nk, Nv, Dk, Dv, channel_decay] = load.shape;
    const int64_t T = load.B * load.num_rows, C = load.shape.qkv_width();
    x_ = noise_tensor({T, C});
    qkv_ = Tensor({T, C}, DType::kF32);
    weight_ = noise_tensor({C, kConvWidth});
    a_ = noise_tensor({T, load.shape.decay_width()});
    b_ = noise_tensor({T, Nv});
    neg_exp_a_log_ = Tensor({Nv}, DType::kF32);
    for (float& value : neg_exp_a_log_.span<float>()) value = -0.3f;
    dt_bias_ = noise_tensor({load.shape.decay_width()});
    norm_weight_ = noise_tensor({Dv});
    y_ = Tensor({T, Nv * Dv}, DType::kF32);
    z_ = noise_tensor({T, Nv * Dv});
    conv_ = Tensor({num_slots_, kConvWidth - 1, C}, DType::kF32);
    recurrent_ = Tensor({num_slots_, Nv, Dv, Dk}, DType::kF32);
    slots_.resize(static_cast<size_t>(load.B));
    context_lens_.assign(slots_.size(), 1);
    for (int64_t b = 0; b <= load.B; ++b) {
      query_start_.push_back(static_cast<int32_t>(b * load.num_rows));
    }
    forward_.query_start = query_start_;
    forward_.context_lens = context_lens_;
    forward_.state_slots = slots_;
    workspace_.resize(static_cast<size_t>(
        std::max(gated_delta_rule_workspace_bytes(context, {.max_tokens = T,
                                                            .num_value_heads = Nv,
                                                            .key_dim = Dk,
                                                            .value_dim = Dv,
                                                            .channel_decay = channel_decay}),
                 decayed_linear_attention_workspace_bytes(
                     context, {.max_tokens = T, .key_dim = Dk, .value_dim = Dv}))));
    convolve();
  }

  void convolve() {
    take_slots();
    check(causal_conv1d(context_, {.x = x_.view(),
                                   .weight = weight_.view(),
                                   .y = qkv_.view(),
                                   .state = {conv_.view(), recurrent_.view()},
                                   .forward = &forward_}));
  }

  void recur() {
    take_slots();
    check(gated_delta_rule(context_, {.qkv = qkv_.view(),
                                      .a = a_.view(),
                                      .b = b_.view(),
                                      .neg_exp_a_log = neg_exp_a_log_.view(),
                                      .dt_bias = dt_bias_.view(),
                                      .y = y_.view(),
                                      .num_key_heads = load_.shape.Nk,
                                      .key_dim = load_.shape.Dk,
                                      .value_dim = load_.shape.Dv,
                                      .state = {conv_.view(), recurrent_.view()},
                                      .forward = &forward_,
                                      .workspace = workspace_}));
  }

  void decay() { run_decayed(true); }

  void decay_constantly() { run_decayed(false); }

  void convolve_with_bias() {
    take_slots();
    check(causal_conv1d(context_, {.x = x_.view(),
                                   .weight = weight_.view(),
                                   .bias = {x_.view().data, DType::kF32, {x_.shape()[1]}},
                                   .y = qkv_.view(),
                                   .state = {conv_.view(), recurrent_.view()},
                                   .forward = &forward_}));
  }

  void silu_norm() { norm(NormGate::kSilu); }

  void sigmoid_norm() { norm(NormGate::kSigmoid); }

 private:
  void run_decayed(bool has_steps) {
    take_slots();
    DecayedLinearAttentionArgs args{.vkq = qkv_.view(),
                                    .decay = neg_exp_a_log_.view(),
                                    .y = y_.view(),
                                    .num_key_heads = load_.shape.Nk,
                                    .key_dim = load_.shape.Dk,
                                    .value_dim = load_.shape.Dv,
                                    .state = {conv_.view(), recurrent_.view()},
                                    .forward = &forward_,
                                    .workspace = workspace_};
    if (has_steps) {
      args.a = b_.view();
      args.dt_bias = neg_exp_a_log_.view();
      args.skip = neg_exp_a_log_.view();
    }
    check(decayed_linear_attention(context_, args));
  }

  void norm(NormGate gate) {
    // x_ is wider than the values: its front serves as their tensor.
    const TensorView x(x_.view().data, DType::kF32, z_.shape());
    check(gated_rms_norm(
        context_,
        {.x = x, .z = z_.view(), .weight = norm_weight_.view(), .y = y_.view(), .gate = gate}));
  }

  static void check(const Status& status) { HEDDLE_CHECK(status.ok()); }

  void take_slots() {
    for (int32_t& slot : slots_) slot = 1 + static_cast<int32_t>(next_++ % (num_slots_ - 1));
  }

  CpuContext& context_;
  LayerLoad load_;
  int64_t num_slots_;
  int64_t next_ = 0;
  Tensor x_, qkv_, weight_, a_, b_, neg_exp_a_log_, dt_bias_, norm_weight_, y_, z_, conv_,
      recurrent_;
  std::vector<int32_t> slots_, context_lens_, query_start_;
  ForwardContext forward_;
  std::vector<std::byte> workspace_;
};

using LazyRun = std::shared_ptr<std::unique_ptr<LayerRun>>;

OpBenchmark benchmark(CpuContext& context, const LayerLoad& load, const LazyRun& data,
                      const char* name, void (LayerRun::*run)()) {
  const auto& [Nk, Nv, Dk, Dv, channel_decay] = load.shape;
  return {.name = name,
          .shape = fmt::format("B {}, rows {}, Nk {}, Nv {}, Dk {}, Dv {}{}", load.B, load.num_rows,
                               Nk, Nv, Dk, Dv, channel_decay ? ", decay by channel" : ""),
          .run = [&context, load, data, run] {
            if (*data == nullptr) *data = std::make_unique<LayerRun>(context, load);
            ((**data).*run)();
          }};
}

}  // namespace

std::vector<OpBenchmark> linear_attention_benchmarks(CpuContext& context) {
  std::vector<OpBenchmark> benchmarks;
  for (const LayerShape shape :
       {LayerShape{.Nk = 4, .Nv = 8, .Dk = 64, .Dv = 64},
        LayerShape{.Nk = 8, .Nv = 16, .Dk = 128, .Dv = 128},
        LayerShape{.Nk = 16, .Nv = 16, .Dk = 128, .Dv = 128, .channel_decay = true}}) {
    for (const LayerLoad load : {LayerLoad{.shape = shape, .num_rows = 512},
                                 LayerLoad{.shape = shape}, LayerLoad{.shape = shape, .B = 16}}) {
      const auto data = std::make_shared<std::unique_ptr<LayerRun>>();
      const auto T = static_cast<double>(load.B * load.num_rows);
      const auto width = static_cast<double>(shape.qkv_width());
      const auto value_width = static_cast<double>(shape.Nv * shape.Dv);
      const double state = value_width * static_cast<double>(shape.Dk);
      OpBenchmark rule = benchmark(context, load, data, "gated_delta_rule", &LayerRun::recur);
      rule.bytes = 8 * state * static_cast<double>(load.B) + 4 * T * (width + value_width);
      if (shape.channel_decay) rule.bytes += 4 * T * static_cast<double>(shape.decay_width());
      rule.flops = 6 * T * state;  // two dot products and an update
      benchmarks.push_back(std::move(rule));
      // Once for both kinds of decay: the convolution does not depend on it.
      if (!shape.channel_decay) {
        OpBenchmark convolution =
            benchmark(context, load, data, "causal_conv1d", &LayerRun::convolve);
        // Numbers in a sequence's window.
        const double window = static_cast<double>(kConvWidth - 1) * width;
        convolution.bytes = 8 * T * width + 8 * static_cast<double>(load.B) * window +
                            4 * static_cast<double>(kConvWidth) * width;
        convolution.flops = 2 * T * width * static_cast<double>(kConvWidth);
        benchmarks.push_back(convolution);
        convolution.name = "causal_conv1d_bias";
        convolution.run =
            benchmark(context, load, data, "causal_conv1d_bias", &LayerRun::convolve_with_bias).run;
        benchmarks.push_back(std::move(convolution));
        for (const auto& [name, run] :
             {std::pair("decayed_linear_attention", &LayerRun::decay),
              std::pair("constant_decay_attention", &LayerRun::decay_constantly)}) {
          OpBenchmark decayed = benchmark(context, load, data, name, run);
          decayed.bytes = 8 * state * static_cast<double>(load.B) + 4 * T * (width + value_width);
          decayed.flops = 5 * T * state;  // a dot product, a decay and an update
          benchmarks.push_back(std::move(decayed));
        }
      }
      // Kimi Delta Attention has both, a decay for each channel and a sigmoid.
      OpBenchmark norm =
          shape.channel_decay
              ? benchmark(context, load, data, "sigmoid_gated_rms_norm", &LayerRun::sigmoid_norm)
              : benchmark(context, load, data, "gated_rms_norm", &LayerRun::silu_norm);
      norm.bytes = 12 * T * value_width;
      norm.flops = 5 * T * value_width;
      benchmarks.push_back(std::move(norm));
    }
  }
  return benchmarks;
}

}  // namespace heddle::ops
