// SPDX-License-Identifier: Apache-2.0
// Both products around latent attention, decode and prefill.
#include <memory>

#include <fmt/format.h>

#include "ops/attention/latent_projection.h"
#include "ops/benchmark/benchmark_data.h"
#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

namespace {

// The widths of the DeepSeek families and Kimi-Linear, which differ in heads.
constexpr int64_t kKeyDim = 128;     // Dn
constexpr int64_t kRotaryDim = 64;   // Dr
constexpr int64_t kValueDim = 128;   // Dv
constexpr int64_t kLatentDim = 512;  // C

struct LatentProduct {
  const char* name;
  Status (*op)(Context& context, const LatentProjectionArgs& args);
  int64_t x_dim;        // width of a head of x
  int64_t y_dim;        // width of a head of y
  int64_t weight_rows;  // rows of the weight that a head reads
};

constexpr LatentProduct kProducts[] = {
    {"absorb_query", absorb_query, kKeyDim + kRotaryDim, kLatentDim + kRotaryDim, kKeyDim},
    {"expand_values", expand_values, kLatentDim, kValueDim, kValueDim}};

OpBenchmark latent_benchmark(CpuContext& context, const std::shared_ptr<ColdMemory>& cold,
                             const LatentProduct& product, int64_t T, int64_t N, DType dtype) {
  struct Data {
    Tensor x, y;
  };

  const auto data = std::make_shared<Data>();
  // Elements of the weight that are read.
  const int64_t terms = N * product.weight_rows * kLatentDim;
  return {
      .name = product.name,
      .shape = fmt::format("T {}, N {}, Dn {}, Dr {}, Dv {}, C {}, {}", T, N, kKeyDim, kRotaryDim,
                           kValueDim, kLatentDim, to_string(dtype)),
      .bytes =
          static_cast<double>(bytes_of(dtype, terms) + 4 * T * N * (product.x_dim + product.y_dim)),
      .flops = static_cast<double>(2 * T * terms),
      .run = [&context, cold, data, product, T, N, dtype] {
        if (data->x.shape().rank() == 0) {
          data->x = noise_tensor({T, N * product.x_dim});
          data->y = Tensor({T, N * product.y_dim}, DType::kF32);
        }
        const Shape shape{N * (kKeyDim + kValueDim), kLatentDim};
        const TensorView weight(cold->next(bytes_of(dtype, shape.num_elements())), dtype, shape);
        const Status status = product.op(context, {.x = data->x.view(),
                                                   .weight = weight,
                                                   .y = data->y.view(),
                                                   .num_heads = N,
                                                   .key_dim = kKeyDim});
        HEDDLE_CHECK(status.ok());
      }};
}

}  // namespace

std::vector<OpBenchmark> latent_projection_benchmarks(CpuContext& context) {
  const auto cold = std::make_shared<ColdMemory>(kColdBytes);
  std::vector<OpBenchmark> benchmarks;
  for (const LatentProduct& product : kProducts) {
    for (const int64_t N : {16, 32}) {
      for (const DType dtype : {DType::kBf16, DType::kF32}) {
        for (const int64_t T : {1, 16, 512}) {
          benchmarks.push_back(latent_benchmark(context, cold, product, T, N, dtype));
        }
      }
    }
  }
  return benchmarks;
}

}  // namespace heddle::ops
