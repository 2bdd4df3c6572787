// SPDX-License-Identifier: Apache-2.0
// Query heads: with their norm and a quarter of the channels rotated, without it and all of them,
// and the last third in pairs of neighbours; and the scale of queries by their positions.
#include <cmath>
#include <memory>
#include <numeric>

#include <fmt/format.h>

#include "ops/benchmark/op_benchmark.h"
#include "ops/rope/rope.h"

namespace heddle::ops {

namespace {

constexpr int64_t kHeads = 8;

struct RopeLoad {
  const char* name;
  int64_t D;
  int64_t R;
  bool has_norm = false;
  int64_t first_channel = 0;
  bool interleaved = false;
  int64_t num_axes = 0;  // 0: one position a row
};

// Qwen3-Next's heads, Llama's, those of patches and of a text with pictures, and the queries of
// DeepSeek-V2.
constexpr RopeLoad kLoads[] = {
    {.name = "qk_norm_rope", .D = 128, .R = 32, .has_norm = true},
    {.name = "qk_norm_rope", .D = 256, .R = 64, .has_norm = true},
    {.name = "rope", .D = 64, .R = 64},
    {.name = "rope", .D = 128, .R = 128},
    {.name = "rope_axes", .D = 72, .R = 72, .num_axes = 2},
    {.name = "rope_axes", .D = 128, .R = 128, .num_axes = 3},
    {.name = "rope_channels", .D = 192, .R = 64, .first_channel = 128, .interleaved = true}};

struct RopeData {
  RopeData(int64_t T, const RopeLoad& load)
      : x({T, kHeads * load.D}, DType::kF32),
        positions(load.num_axes == 0 ? Shape{T} : Shape{T, load.num_axes}, DType::kI32),
        frequencies({load.R / 2}, DType::kF32),
        y({T, kHeads * load.D}, DType::kF32) {
    if (load.has_norm) weight = Tensor({load.D}, DType::kF32);
    // Angles as in the middle of a text: a sine of zero would be had for less.
    const auto position = positions.span<int32_t>();
    std::iota(position.begin(), position.end(), 4096);
    if (load.num_axes > 0) {
      axes = Tensor({load.R / 2}, DType::kI32);
      int64_t pair = 0;
      for (int32_t& axis : axes.span<int32_t>())
        axis = static_cast<int32_t>(pair++ % load.num_axes);
    }
    float exponent = 0;
    for (float& frequency : frequencies.span<float>()) {
      frequency = std::pow(10000.0f, exponent);
      exponent -= 2.0f / static_cast<float>(load.R);
    }
  }

  Tensor x, weight, positions, frequencies, y, axes;
};

OpBenchmark rope_benchmark(CpuContext& context, int64_t T, const RopeLoad& load) {
  const int64_t elements = T * kHeads * load.D;
  const int64_t rotated = T * kHeads * load.R;
  const int64_t angles = T * load.R / 2;
  const int64_t constants = load.R / 2 + (load.has_norm ? load.D : 0);
  const auto data = std::make_shared<std::unique_ptr<RopeData>>();
  return {
      .name = load.name,
      .shape = fmt::format("T {}, N {}, D {}, R {}", T, kHeads, load.D, load.R),
      .bytes = static_cast<double>(4 * (2 * elements + T + constants)),
      // A sine or a cosine counts as ten, as an exponential does elsewhere.
      .flops = static_cast<double>((load.has_norm ? 4 * elements : 0) + 3 * rotated + 20 * angles),
      .run = [&context, data, T, load] {
        if (*data == nullptr) *data = std::make_unique<RopeData>(T, load);
        RopeData& tensors = **data;
        const Status status = rope(context, {.x = tensors.x.view(),
                                             .norm_weight = tensors.weight.view(),
                                             .positions = tensors.positions.view(),
                                             .inverse_frequencies = tensors.frequencies.view(),
                                             .y = tensors.y.view(),
                                             .head_dim = load.D,
                                             .first_channel = load.first_channel,
                                             .interleaved = load.interleaved,
                                             .axes = tensors.axes.view()});
        HEDDLE_CHECK(status.ok());
      }};
}

OpBenchmark position_scale_benchmark(CpuContext& context, int64_t T) {
  struct Data {
    Tensor positions, y;
  };

  const auto data = std::make_shared<Data>();
  return {.name = "position_scale",
          .shape = fmt::format("T {}", T),
          .bytes = static_cast<double>(8 * T),
          .flops = static_cast<double>(13 * T),  // a logarithm counts as ten
          .run = [&context, data, T] {
            if (data->y.shape().rank() == 0) {
              data->positions = Tensor({T}, DType::kI32);
              data->y = Tensor({T, 1}, DType::kF32);
            }
            const Status status = position_scale(context, {.positions = data->positions.view(),
                                                           .y = data->y.view(),
                                                           .beta = 0.1,
                                                           .length = 8192});
            HEDDLE_CHECK(status.ok());
          }};
}

}  // namespace

std::vector<OpBenchmark> rope_benchmarks(CpuContext& context) {
  std::vector<OpBenchmark> benchmarks;
  for (const RopeLoad& load : kLoads) {
    for (const int64_t T : {1, 16, 512}) benchmarks.push_back(rope_benchmark(context, T, load));
  }
  for (const int64_t T : {1, 512}) benchmarks.push_back(position_scale_benchmark(context, T));
  return benchmarks;
}

}  // namespace heddle::ops
