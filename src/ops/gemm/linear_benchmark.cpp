// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/linear_benchmark.h"

#include <memory>

#include <fmt/format.h>

#include "ops/benchmark/cold_memory.h"
#include "ops/gemm/linear.h"

namespace heddle::ops {

namespace {

struct LinearShape {
  int64_t N;
  int64_t K;
};

// Output projections, input projections and heads of models with H = 512 and H = 1024.
constexpr LinearShape kShapes[] = {{512, 512},   {1536, 512},   {1024, 2048},
                                   {6144, 1024}, {151936, 512}, {151936, 1024}};
constexpr int64_t kColdBytes = int64_t{640} << 20;

}  // namespace

std::vector<OpBenchmark> linear_benchmarks(CpuContext& context) {
  const auto cold = std::make_shared<ColdMemory>(kColdBytes);
  std::vector<OpBenchmark> benchmarks;
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    for (const LinearShape& shape : kShapes) {
      const int64_t N = shape.N;
      const int64_t K = shape.K;
      for (const int64_t T : {1, 4, 16, 64, 512}) {
        if (N > 100'000 && T > 64) continue;  // a prefill wants the logits of a few rows only

        struct Data {
          Tensor x, y;
          std::vector<std::byte> workspace;
        };

        const auto data = std::make_shared<Data>();
        const auto bytes = static_cast<double>(bytes_of(dtype, N * K) + 4 * T * (N + K));
        benchmarks.push_back(
            {.name = "linear",
             .shape = fmt::format("T {}, N {}, K {}, {}", T, N, K, to_string(dtype)),
             .bytes = bytes,
             .flops = 2.0 * static_cast<double>(T * N * K),
             .run = [&context, cold, data, T, N, K, dtype] {
               if (data->x.shape().rank() == 0) {  // on the first run, so that a list costs little
                 data->x = Tensor({T, K}, DType::kF32);
                 data->y = Tensor({T, N}, DType::kF32);
                 for (float& value : data->x.span<float>()) value = 0.5f;
                 data->workspace.resize(
                     static_cast<size_t>(linear_workspace_bytes(T, K, N, dtype, context.exact)));
               }
               const TensorView weight(cold->next(bytes_of(dtype, N * K)), dtype, {N, K});
               const Status status = linear(context, {.x = data->x.view(),
                                                      .weight = weight,
                                                      .y = data->y.view(),
                                                      .workspace = data->workspace});
               HEDDLE_CHECK(status.ok());
             }});
      }
    }
  }
  return benchmarks;
}

}  // namespace heddle::ops
