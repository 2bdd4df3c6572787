// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise/elementwise_benchmark.h"

#include <memory>

#include <fmt/format.h>

#include "ops/elementwise/elementwise.h"

namespace heddle::ops {

std::vector<OpBenchmark> elementwise_benchmarks(CpuContext& context) {
  struct Data {
    Tensor a, b, y;
  };

  struct Kind {
    ElementwiseKind kind;
    const char* name;
    int64_t flops;  // of an element; an exponential counts as ten
  };

  constexpr Kind kKinds[] = {{ElementwiseKind::kAdd, "add", 1},
                             {ElementwiseKind::kSiluMul, "silu_mul", 13}};
  std::vector<OpBenchmark> benchmarks;
  for (const Kind& kind : kKinds) {
    for (const int64_t T : {1, 16, 512, 8192}) {
      constexpr int64_t N = 1024;
      const auto data = std::make_shared<Data>();
      benchmarks.push_back(
          {.name = kind.name,
           .shape = fmt::format("T {}, N {}", T, N),
           .bytes = static_cast<double>(3 * 4 * T * N),
           .flops = static_cast<double>(kind.flops * T * N),
           .run = [&context, data, T, op = kind.kind] {
             if (data->a.shape().rank() == 0) {
               data->a = Tensor({T, N}, DType::kF32);
               data->b = Tensor({T, N}, DType::kF32);
               data->y = Tensor({T, N}, DType::kF32);
             }
             const Status status = elementwise(
                 context,
                 {.kind = op, .a = data->a.view(), .b = data->b.view(), .y = data->y.view()});
             HEDDLE_CHECK(status.ok());
           }});
    }
  }
  return benchmarks;
}

}  // namespace heddle::ops
