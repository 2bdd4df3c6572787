// SPDX-License-Identifier: Apache-2.0
// linear at the shapes of small hybrid models: projections and output heads, one token to a
// prefill; linear_bias at those of models that have biases.
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ops/benchmark/benchmark_data.h"
#include "ops/benchmark/op_benchmark.h"
#include "ops/gemm/linear.h"
#include "quant/block_formats.h"
#include "quant/round_to_nearest.h"

namespace heddle::ops {

namespace {

struct LinearShape {
  int64_t N;
  int64_t K;
  bool has_bias = false;
};

// Output projections, input projections and heads of models with H = 512 and H = 1024.
constexpr LinearShape kShapes[] = {{512, 512},   {1536, 512},   {1024, 2048},
                                   {6144, 1024}, {151936, 512}, {151936, 1024}};
// Queries, keys and values of Qwen2.5-0.5B and of gpt-oss-20b.
constexpr LinearShape kBiasedShapes[] = {{1152, 896, true}, {5120, 2880, true}};

// A product of `x` [T, K] with whatever weight [N, K] `next_weight` gives, with a bias where the
// shape has one.
OpBenchmark linear_benchmark(CpuContext& context, int64_t T, const LinearShape& shape,
                             std::string_view format, DType dtype, int64_t weight_bytes,
                             std::function<TensorView()> next_weight) {
  struct Data {
    Tensor x, bias, y;
    std::vector<std::byte> workspace;
  };

  const auto [N, K, has_bias] = shape;
  const auto data = std::make_shared<Data>();
  return {.name = has_bias ? "linear_bias" : "linear",
          .shape = fmt::format("T {}, N {}, K {}, {}", T, N, K, format),
          .bytes = static_cast<double>(weight_bytes + 4 * T * (N + K) + (has_bias ? 4 * N : 0)),
          .flops = static_cast<double>(2 * T * N * K + (has_bias ? T * N : 0)),
          .run = [&context, data, T, N, K, has_bias, dtype, next_weight = std::move(next_weight)] {
            if (data->x.shape().rank() == 0) {  // on the first run, so that a list costs little
              data->x = Tensor({T, K}, DType::kF32);
              if (has_bias) data->bias = Tensor({N}, DType::kF32);
              data->y = Tensor({T, N}, DType::kF32);
              for (float& value : data->x.span<float>()) value = 0.5f;
              data->workspace.resize(
                  static_cast<size_t>(linear_workspace_bytes(context, T, K, N, dtype)));
            }
            const Status status = linear(context, {.x = data->x.view(),
                                                   .weight = next_weight(),
                                                   .bias = data->bias.view(),
                                                   .y = data->y.view(),
                                                   .workspace = data->workspace});
            HEDDLE_CHECK(status.ok());
          }};
}

// With a weight as it lies in a file, other memory every time.
OpBenchmark plain_linear_benchmark(CpuContext& context, const std::shared_ptr<ColdMemory>& cold,
                                   int64_t T, const LinearShape& shape, DType dtype) {
  const int64_t bytes = bytes_of(dtype, shape.N * shape.K);
  return linear_benchmark(context, T, shape, to_string(dtype), dtype, bytes,
                          [cold, shape, dtype, bytes] {
                            return TensorView(cold->next(bytes), dtype, {shape.N, shape.K});
                          });
}

// Rows of `format` read from cold memory, other ones every time.
std::function<TensorView()> packed_weights(const std::shared_ptr<ColdMemory>& cold, int64_t N,
                                           const quant::RowFormat& format) {
  const auto weight = std::make_shared<quant::PackedWeight>();
  weight->parts.push_back(
      {.num_rows = N, .packed = {.format = format, .num_rows = N, .may_round_x = true}});
  return [cold, weight, N] {
    quant::PackedRows& rows = weight->parts[0].packed;
    const auto next = [&](int64_t row_bytes) {
      return static_cast<std::byte*>(const_cast<void*>(cold->next(N * row_bytes)));
    };
    rows.codes = next(rows.format.code_bytes());
    rows.scales = next(rows.format.scale_bytes());
    if (rows.format.has_zeros) {
      rows.zeros = reinterpret_cast<uint8_t*>(next(rows.format.num_groups()));
    }
    TensorView view(nullptr, DType::kPacked, {N, rows.format.K});
    view.packed = weight.get();
    return view;
  };
}

struct PackedFormat {
  std::string_view name;
  quant::Scheme scheme;
  int64_t group_size;
};

constexpr PackedFormat kPackedFormats[] = {{"int4", quant::Scheme::kInt4, 128},
                                           {"int4-g32", quant::Scheme::kInt4, 32},
                                           {"int8", quant::Scheme::kInt8, 0},
                                           {"fp8", quant::Scheme::kFp8, 0},
                                           {"fp8-block", quant::Scheme::kFp8Block, 0}};

// Every packed form that is measured, with its name.
std::vector<std::pair<std::string_view, quant::RowFormat>> packed_formats(int64_t K) {
  std::vector<std::pair<std::string_view, quant::RowFormat>> formats;
  for (const PackedFormat& packed : kPackedFormats) {
    formats.emplace_back(packed.name, quant::format_of(packed.scheme, K, packed.group_size));
  }
  for (const auto& [name, type] : {std::pair("Q4_K", quant::BlockType::kQ4K),
                                   {"Q5_K", quant::BlockType::kQ5K},
                                   {"Q6_K", quant::BlockType::kQ6K},
                                   {"Q8_0", quant::BlockType::kQ8_0}}) {
    formats.emplace_back(name, *quant::packed_format(type, K));
  }
  return formats;
}

// An expert's second projection, an input projection and the head of a model with H = 1024.
constexpr LinearShape kPackedShapes[] = {{8192, 256}, {6144, 1024}, {151936, 1024}};

}  // namespace

std::vector<OpBenchmark> linear_benchmarks(CpuContext& context) {
  const auto cold = std::make_shared<ColdMemory>(kColdBytes);
  std::vector<OpBenchmark> benchmarks;
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    for (const LinearShape& shape : kShapes) {
      for (const int64_t T : {1, 4, 16, 64, 512}) {
        if (shape.N > 100'000 && T > 64) continue;  // a prefill wants the logits of a few rows only
        benchmarks.push_back(plain_linear_benchmark(context, cold, T, shape, dtype));
      }
    }
  }
  for (const LinearShape& shape : kBiasedShapes) {
    for (const int64_t T : {1, 4, 16, 64, 512}) {
      benchmarks.push_back(plain_linear_benchmark(context, cold, T, shape, DType::kBf16));
    }
  }
  for (const LinearShape& shape : kPackedShapes) {
    for (const auto& [name, format] : packed_formats(shape.K)) {
      for (const int64_t T : {1, 4, 16}) {
        benchmarks.push_back(linear_benchmark(context, T, shape, name, DType::kPacked,
                                              shape.N * format.row_bytes(),
                                              packed_weights(cold, shape.N, format)));
      }
    }
  }
  return benchmarks;
}

}  // namespace heddle::ops
