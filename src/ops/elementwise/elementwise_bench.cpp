// SPDX-License-Identifier: Apache-2.0
// Every kind of elementwise op, decode and prefill, and gates of one column.
#include <memory>

#include <fmt/format.h>

#include "ops/benchmark/op_benchmark.h"
#include "ops/elementwise/elementwise.h"

namespace heddle::ops {

namespace {

constexpr int64_t kRowWidth = 1024;

struct ElementwiseLoad {
  ElementwiseKind kind;
  const char* name;
  int64_t flops;    // flops of an element; an exponential counts as ten
  int64_t b_width;  // 0: there is no b
};

constexpr ElementwiseLoad kLoads[] = {
    {ElementwiseKind::kAdd, "add", 1, kRowWidth},
    {ElementwiseKind::kMul, "mul", 1, kRowWidth},
    {ElementwiseKind::kScale, "scale", 1, 0},
    {ElementwiseKind::kSigmoid, "sigmoid", 12, 0},
    {ElementwiseKind::kSigmoidMul, "sigmoid_mul", 12, kRowWidth},
    {ElementwiseKind::kSigmoidMul, "sigmoid_mul", 1, 1},  // one exponential serves a whole row
    {ElementwiseKind::kSiluMul, "silu_mul", 13, kRowWidth},
    {ElementwiseKind::kBoundedSiluMul, "bounded_silu_mul", 16, kRowWidth},
    {ElementwiseKind::kGeluMul, "gelu_mul", 17, kRowWidth},
    {ElementwiseKind::kErfGeluMul, "erf_gelu_mul", 30, kRowWidth},
    {ElementwiseKind::kGelu, "gelu", 16, 0},
    {ElementwiseKind::kErfGelu, "erf_gelu", 29, 0},
    {ElementwiseKind::kSquaredRelu, "squared_relu", 2, 0},
    {ElementwiseKind::kSoftcap, "softcap", 14, 0}};

OpBenchmark elementwise_benchmark(CpuContext& context, int64_t T, const ElementwiseLoad& load) {
  struct Data {
    Tensor a, b, y;
  };

  const auto data = std::make_shared<Data>();
  return {.name = load.name,
          .shape = fmt::format("T {}, N {}{}", T, kRowWidth,
                               load.b_width == 1 ? ", b of one column" : ""),
          .bytes = static_cast<double>(4 * T * (2 * kRowWidth + load.b_width)),
          .flops = static_cast<double>(load.flops * T * kRowWidth),
          .run = [&context, data, T, load] {
            if (data->a.shape().rank() == 0) {
              data->a = Tensor({T, kRowWidth}, DType::kF32);
              if (load.b_width > 0) data->b = Tensor({T, load.b_width}, DType::kF32);
              data->y = Tensor({T, kRowWidth}, DType::kF32);
            }
            const Status status = elementwise(
                context,
                {.kind = load.kind, .a = data->a.view(), .b = data->b.view(), .y = data->y.view()});
            HEDDLE_CHECK(status.ok());
          }};
}

}  // namespace

std::vector<OpBenchmark> elementwise_benchmarks(CpuContext& context) {
  std::vector<OpBenchmark> benchmarks;
  for (const ElementwiseLoad& load : kLoads) {
    for (const int64_t T : {1, 16, 512, 8192}) {
      benchmarks.push_back(elementwise_benchmark(context, T, load));
    }
  }
  return benchmarks;
}

}  // namespace heddle::ops
