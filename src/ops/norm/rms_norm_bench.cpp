// SPDX-License-Identifier: Apache-2.0
// The norms of a small and a large model, RMS norms with and without residual, layer norms with and
// without a bias, decode and prefill.
#include <memory>

#include <fmt/format.h>

#include "ops/benchmark/op_benchmark.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"

namespace heddle::ops {

namespace {

OpBenchmark rms_norm_benchmark(CpuContext& context, int64_t T, int64_t H, bool adds) {
  struct Data {
    Tensor x, residual, weight, y;
  };

  const auto data = std::make_shared<Data>();
  const int64_t passes = adds ? 4 : 2;  // over [T, H], reading or writing
  return {.name = adds ? "add_rms_norm" : "rms_norm",
          .shape = fmt::format("T {}, H {}", T, H),
          .bytes = static_cast<double>(4 * (passes * T * H + H)),
          .flops = static_cast<double>((adds ? 5 : 4) * T * H),
          .run = [&context, data, T, H, adds] {
            if (data->x.shape().rank() == 0) {
              data->x = Tensor({T, H}, DType::kF32);
              if (adds) data->residual = Tensor({T, H}, DType::kF32);
              data->weight = Tensor({H}, DType::kF32);
              data->y = Tensor({T, H}, DType::kF32);
            }
            const Status status = rms_norm(context, {.x = data->x.view(),
                                                     .residual = data->residual.view(),
                                                     .weight = data->weight.view(),
                                                     .y = data->y.view()});
            HEDDLE_CHECK(status.ok());
          }};
}

OpBenchmark layer_norm_benchmark(CpuContext& context, int64_t T, int64_t H, bool biased) {
  struct Data {
    Tensor x, weight, bias, y;
  };

  const auto data = std::make_shared<Data>();
  return {.name = biased ? "layer_norm_bias" : "layer_norm",
          .shape = fmt::format("T {}, H {}", T, H),
          .bytes = static_cast<double>(4 * (2 * T * H + (biased ? 2 : 1) * H)),
          .flops = static_cast<double>((biased ? 8 : 7) * T * H),
          .run = [&context, data, T, H, biased] {
            if (data->x.shape().rank() == 0) {
              data->x = Tensor({T, H}, DType::kF32);
              data->weight = Tensor({H}, DType::kF32);
              if (biased) data->bias = Tensor({H}, DType::kF32);
              data->y = Tensor({T, H}, DType::kF32);
            }
            const Status status = layer_norm(context, {.x = data->x.view(),
                                                       .weight = data->weight.view(),
                                                       .bias = data->bias.view(),
                                                       .y = data->y.view()});
            HEDDLE_CHECK(status.ok());
          }};
}

}  // namespace

std::vector<OpBenchmark> norm_benchmarks(CpuContext& context) {
  std::vector<OpBenchmark> benchmarks;
  for (const bool adds : {false, true}) {
    for (const int64_t H : {512, 2048}) {
      for (const int64_t T : {1, 16, 512, 8192}) {
        benchmarks.push_back(rms_norm_benchmark(context, T, H, adds));
      }
    }
  }
  for (const bool biased : {false, true}) {
    for (const int64_t T : {1, 16, 512, 8192}) {
      benchmarks.push_back(layer_norm_benchmark(context, T, 2048, biased));
    }
  }
  return benchmarks;
}

}  // namespace heddle::ops
