// SPDX-License-Identifier: Apache-2.0
// Sizes of vision towers: the patches of a small picture and of a page as one segment each, and the
// patches of a page in windows of 64.
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "ops/attention/segment_attention.h"
#include "ops/benchmark/benchmark_data.h"
#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

namespace {

struct SegmentLoad {
  int64_t num_rows, num_heads, D, segment;
};

struct SegmentData {
  SegmentData(const CpuContext& context, const SegmentLoad& load)
      : qkv(noise_tensor({load.num_rows, 3 * load.num_heads * load.D})),
        segments({load.num_rows, 2}, DType::kI32),
        y({load.num_rows, load.num_heads * load.D}, DType::kF32),
        workspace(static_cast<size_t>(
            segment_attention_workspace_bytes(context, load.num_rows, load.D))) {
    for (int64_t row = 0; row < load.num_rows; ++row) {
      auto* const bounds = segments.view().row<int32_t>(row);
      bounds[0] = static_cast<int32_t>(row / load.segment * load.segment);
      bounds[1] = static_cast<int32_t>(std::min(bounds[0] + load.segment, load.num_rows));
    }
  }

  [[nodiscard]] TensorView part(int64_t i) const {
    const int64_t width = y.shape()[1];
    return {qkv.view().as<float>() + i * width, DType::kF32, y.shape(), 3 * width};
  }

  Tensor qkv, segments, y;
  std::vector<std::byte> workspace;
};

OpBenchmark segment_attention_benchmark(CpuContext& context, const SegmentLoad& load) {
  const auto data = std::make_shared<std::unique_ptr<SegmentData>>();
  const auto elements = static_cast<double>(load.num_rows * load.num_heads * load.D);
  return {.name = "segment_attention",
          .shape = fmt::format("{} rows in segments of {}, N {}, D {}", load.num_rows, load.segment,
                               load.num_heads, load.D),
          .bytes = 16 * elements + 8 * static_cast<double>(load.num_rows),
          .flops = 4 * elements * static_cast<double>(load.segment),
          .run = [&context, data, load] {
            if (*data == nullptr) *data = std::make_unique<SegmentData>(context, load);
            const Status status = segment_attention(context, {.q = (*data)->part(0),
                                                              .k = (*data)->part(1),
                                                              .v = (*data)->part(2),
                                                              .segments = (*data)->segments.view(),
                                                              .y = (*data)->y.view(),
                                                              .head_dim = load.D,
                                                              .scale = 0.125f,
                                                              .workspace = (*data)->workspace});
            HEDDLE_CHECK(status.ok());
          }};
}

}  // namespace

std::vector<OpBenchmark> segment_attention_benchmarks(CpuContext& context) {
  std::vector<OpBenchmark> benchmarks;
  for (const SegmentLoad& load : {SegmentLoad{400, 4, 24, 400}, SegmentLoad{3072, 16, 72, 3072},
                                  SegmentLoad{3072, 16, 80, 64}}) {
    benchmarks.push_back(segment_attention_benchmark(context, load));
  }
  return benchmarks;
}

}  // namespace heddle::ops
