// SPDX-License-Identifier: Apache-2.0
// adapter_shrink and adapter_expand at the sizes of a small model's fused input projection: one
// token, a batch with eight adapters, a prompt.
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "ops/benchmark/op_benchmark.h"
#include "ops/gemm/adapter_product.h"

namespace heddle::ops {

namespace {

constexpr int64_t kAdapterSlots = 8, kAdapterParts = 3, kAdapterInputs = 1024,
                  kAdapterColumns = 3072;

struct AdapterData {
  AdapterData(int64_t T, int64_t R)
      : x({T, kAdapterInputs}, DType::kF32),
        a({kAdapterSlots, kAdapterParts * R, kAdapterInputs}, DType::kBf16),
        b({kAdapterSlots, kAdapterColumns, R}, DType::kBf16),
        parts({kAdapterSlots, kAdapterColumns}, DType::kI32),
        slots({T}, DType::kI32),
        scales({kAdapterSlots}, DType::kF32),
        h({T, kAdapterParts * R}, DType::kF32),
        y({T, kAdapterColumns}, DType::kF32) {
    for (int64_t i = 0; i < kAdapterSlots * kAdapterColumns; ++i) {
      parts.span<int32_t>()[static_cast<size_t>(i)] =
          static_cast<int32_t>(i % kAdapterColumns / (kAdapterColumns / kAdapterParts));
    }
    // Up to 64 rows are sequences that use the adapters in turn; more rows are one prompt.
    for (int64_t t = 0; t < T; ++t) {
      slots.span<int32_t>()[static_cast<size_t>(t)] =
          T > 64 ? 0 : static_cast<int32_t>(t % kAdapterSlots);
    }
  }

  Tensor x, a, b, parts, slots, scales, h, y;
};

OpBenchmark adapter_benchmark(CpuContext& context, bool expands, int64_t T, int64_t R) {
  const auto data = std::make_shared<std::unique_ptr<AdapterData>>();
  const int64_t J = kAdapterParts * R;
  const int64_t used_slots = T > 64 ? 1 : std::min(T, kAdapterSlots);
  const int64_t weights = expands ? kAdapterColumns * (2 * R + 4) : 2 * J * kAdapterInputs;
  const int64_t rows = expands ? J + 2 * kAdapterColumns : kAdapterInputs + J;
  return {
      .name = expands ? "adapter_expand" : "adapter_shrink",
      .shape = fmt::format("T {}, {} adapters of rank {}, {}", T, used_slots, R,
                           expands ? fmt::format("N {}", kAdapterColumns)
                                   : fmt::format("K {}, {} parts", kAdapterInputs, kAdapterParts)),
      .bytes = static_cast<double>(used_slots * weights + 4 * T * rows),
      .flops = static_cast<double>(2 * T * (expands ? kAdapterColumns * R : J * kAdapterInputs)),
      .run = [&context, data, expands, T, R] {
        if (*data == nullptr) *data = std::make_unique<AdapterData>(T, R);
        AdapterData& d = **data;
        const Status status = expands ? adapter_expand(context, {.h = d.h.view(),
                                                                 .b = d.b.view(),
                                                                 .parts = d.parts.view(),
                                                                 .slots = d.slots.view(),
                                                                 .y = d.y.view()})
                                      : adapter_shrink(context, {.x = d.x.view(),
                                                                 .a = d.a.view(),
                                                                 .slots = d.slots.view(),
                                                                 .scales = d.scales.view(),
                                                                 .h = d.h.view()});
        HEDDLE_CHECK(status.ok());
      }};
}

}  // namespace

std::vector<OpBenchmark> adapter_benchmarks(CpuContext& context) {
  std::vector<OpBenchmark> benchmarks;
  for (const bool expands : {false, true}) {
    for (const auto& [T, R] :
         {std::pair<int64_t, int64_t>(1, 16), {16, 16}, {64, 16}, {512, 16}, {1, 64}, {512, 64}}) {
      benchmarks.push_back(adapter_benchmark(context, expands, T, R));
    }
  }
  return benchmarks;
}

}  // namespace heddle::ops
