// SPDX-License-Identifier: Apache-2.0
#include "ops/rope/rope_benchmark.h"

#include <memory>

#include <fmt/format.h>

#include "ops/rope/rope.h"

namespace heddle::ops {

std::vector<OpBenchmark> rope_benchmarks(CpuContext& context) {
  struct Data {
    Tensor x, weight, positions, frequencies, y;
  };

  constexpr int64_t kHeads = 8;
  std::vector<OpBenchmark> benchmarks;
  for (const int64_t D : {128, 256}) {
    for (const int64_t T : {1, 16, 512}) {
      const auto data = std::make_shared<Data>();
      const int64_t elements = T * kHeads * D;
      benchmarks.push_back({.name = "qk_norm_rope",
                            .shape = fmt::format("T {}, N {}, D {}, R {}", T, kHeads, D, D / 4),
                            .bytes = static_cast<double>(2 * 4 * elements),
                            .flops = static_cast<double>(5 * elements),
                            .run = [&context, data, T, D] {
                              if (data->x.shape().rank() == 0) {
                                data->x = Tensor({T, kHeads * D}, DType::kF32);
                                data->weight = Tensor({D}, DType::kF32);
                                data->positions = Tensor({T}, DType::kI32);
                                data->frequencies = Tensor({D / 8}, DType::kF32);
                                data->y = Tensor({T, kHeads * D}, DType::kF32);
                              }
                              const Status status =
                                  rope(context, {.x = data->x.view(),
                                                 .norm_weight = data->weight.view(),
                                                 .positions = data->positions.view(),
                                                 .inverse_frequencies = data->frequencies.view(),
                                                 .y = data->y.view(),
                                                 .head_dim = D});
                              HEDDLE_CHECK(status.ok());
                            }});
    }
  }
  return benchmarks;
}

}  // namespace heddle::ops
