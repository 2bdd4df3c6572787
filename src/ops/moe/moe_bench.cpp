// SPDX-License-Identifier: Apache-2.0
// grouped_linear, moe_route and the routed_moe ops at the shapes of small hybrid models.
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "ops/benchmark/benchmark_data.h"
#include "ops/benchmark/op_benchmark.h"
#include "ops/gemm/grouped_linear.h"
#include "ops/moe/moe_route.h"
#include "ops/moe/routed_moe.h"

namespace heddle::ops {

namespace {

// The blocks of models with H = 512 and H = 1024.
constexpr RoutedMoeShape kShapes[] = {{.H = 512, .I = 128, .E = 16, .A = 4},
                                      {.H = 1024, .I = 256, .E = 64, .A = 8}};

// The settings of an op of the family beside those of routed_moe.
struct MoeKind {
  const char* name = "routed_moe";
  bool has_bias = false;
  ExpertActivation activation = {};
  RouterScoring scoring = {};
  bool has_correction = false;
  bool has_scales = false;
};

// As gpt-oss, DeepSeek-V2, DeepSeek-V3 and Gemma 4 have them.
constexpr MoeKind kKinds[] = {
    {.name = "routed_moe_bias", .has_bias = true, .activation = {.limit = 7.0f, .alpha = 1.702f}},
    {.name = "routed_moe_scored", .scoring = {.num_groups = 8, .groups_kept = 3, .scale = 16.0f}},
    {.name = "routed_moe_corrected",
     .scoring = {.score = RouterScore::kSigmoid,
                 .num_groups = 8,
                 .groups_kept = 4,
                 .group_terms = 2,
                 .scale = 2.5f},
     .has_correction = true},
    {.name = "routed_moe_scaled", .activation = {.form = ExpertForm::kGeglu}, .has_scales = true}};

// The number of experts that the T * A rows touch, when every token's are all different and tokens
// independent.
double touched_experts(int64_t T, const RoutedMoeShape& shape) {
  double untouched = static_cast<double>(shape.E);
  for (int64_t t = 0; t < T; ++t) {
    untouched *= 1.0 - static_cast<double>(shape.A) / static_cast<double>(shape.E);
  }
  return static_cast<double>(shape.E) - untouched;
}

OpBenchmark routed_moe_benchmark(CpuContext& context, const std::shared_ptr<ColdMemory>& cold,
                                 int64_t T, RoutedMoeShape shape, DType dtype,
                                 const MoeKind& kind = {}) {
  struct Data {
    Tensor x, logits, w13_bias, w2_bias, correction, scales, y;
    std::vector<std::byte> workspace;
  };

  shape.weight = dtype;
  const auto data = std::make_shared<Data>();
  const auto [H, I, E, A, weight, x] = shape;
  const int64_t biases = kind.has_bias ? 2 * I + H : 0;  // biases per expert
  const auto expert_bytes = static_cast<double>(bytes_of(dtype, 3 * H * I) + 4 * biases);
  const int64_t row_bytes = 4 * T * (2 * H + E);
  return {
      .name = kind.name,
      .shape = fmt::format("T {}, H {}, I {}, E {}, A {}, {}", T, H, I, E, A, to_string(dtype)),
      .bytes =
          touched_experts(T, shape) * expert_bytes +
          static_cast<double>(row_bytes + (kind.has_correction || kind.has_scales ? 4 * E : 0)),
      .flops = static_cast<double>(T * A * (6 * H * I + biases)),
      .run = [&context, cold, data, T, shape, kind] {
        if (data->x.shape().rank() == 0) {
          data->x = noise_tensor({T, shape.H});
          data->logits = noise_tensor({T, shape.E});
          data->y = Tensor({T, shape.H}, DType::kF32);
          if (kind.has_bias) {
            data->w13_bias = Tensor({shape.E, 2 * shape.I}, DType::kF32);
            data->w2_bias = Tensor({shape.E, shape.H}, DType::kF32);
          }
          if (kind.has_correction) data->correction = Tensor({shape.E}, DType::kF32);
          if (kind.has_scales) data->scales = Tensor({shape.E}, DType::kF32);
          data->workspace.resize(
              static_cast<size_t>(routed_moe_workspace_bytes(context, T, shape)));
        }
        const int64_t w13_bytes = bytes_of(shape.weight, shape.E * 2 * shape.I * shape.H);
        const TensorView w13(cold->next(w13_bytes), shape.weight, {shape.E, 2 * shape.I, shape.H});
        const TensorView w2(cold->next(w13_bytes / 2), shape.weight, {shape.E, shape.H, shape.I});
        const Status status = routed_moe(context, {.x = data->x.view(),
                                                   .router_logits = data->logits.view(),
                                                   .w13 = w13,
                                                   .w2 = w2,
                                                   .w13_bias = data->w13_bias.view(),
                                                   .w2_bias = data->w2_bias.view(),
                                                   .y = data->y.view(),
                                                   .activation = kind.activation,
                                                   .experts_per_token = shape.A,
                                                   .scoring = kind.scoring,
                                                   .correction = data->correction.view(),
                                                   .expert_scales = data->scales.view(),
                                                   .workspace = data->workspace});
        HEDDLE_CHECK(status.ok());
      }};
}

// `rows` rows for each of the first `active` experts.
OpBenchmark grouped_linear_benchmark(CpuContext& context, const std::shared_ptr<ColdMemory>& cold,
                                     int64_t rows, int64_t active, const RoutedMoeShape& shape,
                                     DType dtype) {
  struct Data {
    Tensor x, y, offsets;
    std::vector<std::byte> workspace;
  };

  const auto data = std::make_shared<Data>();
  const int64_t R = rows * active;
  const int64_t N = 2 * shape.I;
  const int64_t K = shape.H;
  const int64_t E = shape.E;
  return {.name = "grouped_linear",
          .shape = fmt::format("{} rows for each of {} of {} experts, N {}, K {}, {}", rows, active,
                               E, N, K, to_string(dtype)),
          .bytes = static_cast<double>(bytes_of(dtype, active * N * K) + 4 * R * (N + K)),
          .flops = 2.0 * static_cast<double>(R * N * K),
          .run = [&context, cold, data, rows, active, R, N, K, E, dtype] {
            if (data->x.shape().rank() == 0) {
              data->x = noise_tensor({R, K});
              data->y = Tensor({R, N}, DType::kF32);
              data->offsets = Tensor({E + 1}, DType::kI32);
              for (int64_t e = 0; e <= E; ++e) {
                data->offsets.span<int32_t>()[static_cast<size_t>(e)] =
                    static_cast<int32_t>(std::min(e, active) * rows);
              }
              data->workspace.resize(
                  static_cast<size_t>(grouped_linear_workspace_bytes(context, R, E, K, dtype)));
            }
            const TensorView weight(cold->next(bytes_of(dtype, E * N * K)), dtype, {E, N, K});
            const Status status = grouped_linear(context, {.x = data->x.view(),
                                                           .weight = weight,
                                                           .row_offsets = data->offsets.view(),
                                                           .y = data->y.view(),
                                                           .workspace = data->workspace});
            HEDDLE_CHECK(status.ok());
          }};
}

OpBenchmark moe_route_benchmark(CpuContext& context, int64_t T, const RoutedMoeShape& shape) {
  struct Data {
    Tensor logits, experts, weights;
  };

  const auto data = std::make_shared<Data>();
  return {.name = "moe_route",
          .shape = fmt::format("T {}, E {}, A {}", T, shape.E, shape.A),
          .bytes = static_cast<double>(4 * T * shape.E + 8 * T * shape.A),
          .flops = 0,
          .run = [&context, data, T, shape] {
            if (data->logits.shape().rank() == 0) {
              data->logits = noise_tensor({T, shape.E});
              data->experts = Tensor({T, shape.A}, DType::kI32);
              data->weights = Tensor({T, shape.A}, DType::kF32);
            }
            const Status status = moe_route(context, {.logits = data->logits.view(),
                                                      .experts = data->experts.view(),
                                                      .weights = data->weights.view()});
            HEDDLE_CHECK(status.ok());
          }};
}

}  // namespace

std::vector<OpBenchmark> moe_benchmarks(CpuContext& context) {
  const auto cold = std::make_shared<ColdMemory>(kColdBytes);
  std::vector<OpBenchmark> benchmarks;
  for (const RoutedMoeShape& shape : kShapes) {
    for (const int64_t T : {1, 512}) benchmarks.push_back(moe_route_benchmark(context, T, shape));
    for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
      benchmarks.push_back(grouped_linear_benchmark(context, cold, 1, shape.A, shape, dtype));
      benchmarks.push_back(
          grouped_linear_benchmark(context, cold, 512 * shape.A / shape.E, shape.E, shape, dtype));
      for (const int64_t T : {1, 4, 16, 64, 512}) {
        benchmarks.push_back(routed_moe_benchmark(context, cold, T, shape, dtype));
      }
    }
  }
  for (const MoeKind& kind : kKinds) {
    for (const int64_t T : {1, 4, 16, 64, 512}) {
      benchmarks.push_back(routed_moe_benchmark(context, cold, T, kShapes[1], DType::kBf16, kind));
    }
  }
  return benchmarks;
}

}  // namespace heddle::ops
