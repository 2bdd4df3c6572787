// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/rms_norm_benchmark.h"

#include <memory>

#include <fmt/format.h>

#include "ops/norm/rms_norm.h"

namespace heddle::ops {

std::vector<OpBenchmark> norm_benchmarks(CpuContext& context) {
  struct Data {
    Tensor x, residual, weight, y;
  };

  std::vector<OpBenchmark> benchmarks;
  for (const int64_t H : {512, 2048}) {
    for (const int64_t T : {1, 16, 512, 8192}) {
      const auto data = std::make_shared<Data>();
      benchmarks.push_back({.name = "add_rms_norm",
                            .shape = fmt::format("T {}, H {}", T, H),
                            .bytes = static_cast<double>(4 * 4 * T * H),
                            .flops = static_cast<double>(5 * T * H),
                            .run = [&context, data, T, H] {
                              if (data->x.shape().rank() == 0) {
                                data->x = Tensor({T, H}, DType::kF32);
                                data->residual = Tensor({T, H}, DType::kF32);
                                data->weight = Tensor({H}, DType::kF32);
                                data->y = Tensor({T, H}, DType::kF32);
                              }
                              const Status status =
                                  rms_norm(context, {.x = data->x.view(),
                                                     .residual = data->residual.view(),
                                                     .weight = data->weight.view(),
                                                     .y = data->y.view()});
                              HEDDLE_CHECK(status.ok());
                            }});
    }
  }
  return benchmarks;
}

}  // namespace heddle::ops
