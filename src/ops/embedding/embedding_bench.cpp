// SPDX-License-Identifier: Apache-2.0
// Rows of a bfloat16 table of 151,936 ids; a table of positions with 48 x 48 rows that is resampled
// for a picture; features of a picture in place of rows.
#include <memory>

#include <fmt/format.h>

#include "ops/benchmark/op_benchmark.h"
#include "ops/embedding/embedding.h"
#include "ops/embedding/place_rows.h"
#include "ops/embedding/weighted_rows.h"

namespace heddle::ops {

namespace {

OpBenchmark weighted_rows_benchmark(CpuContext& context, int64_t T) {
  struct Data {
    Tensor table, rows, weights, y;
  };

  constexpr int64_t kTableRows = 48 * 48, kTaps = 4, kHidden = 1152;
  const auto data = std::make_shared<Data>();
  return {.name = "weighted_rows",
          .shape = fmt::format("T {}, K {}, N {}, H {}, bfloat16", T, kTaps, kTableRows, kHidden),
          .bytes = static_cast<double>(4 * T * kHidden + 2 * kTableRows * kHidden),
          .flops = static_cast<double>(2 * kTaps * T * kHidden),
          .run = [&context, data, T] {
            if (data->y.shape().rank() == 0) {
              data->table = Tensor({kTableRows, kHidden}, DType::kBf16);
              data->rows = Tensor({T, kTaps}, DType::kI32);
              data->weights = Tensor({T, kTaps}, DType::kF32);
              data->y = Tensor({T, kHidden}, DType::kF32);
            }
            const Status status = weighted_rows(context, {.table = data->table.view(),
                                                          .rows = data->rows.view(),
                                                          .weights = data->weights.view(),
                                                          .y = data->y.view()});
            HEDDLE_CHECK(status.ok());
          }};
}

OpBenchmark place_rows_benchmark(CpuContext& context, int64_t T, bool adds) {
  struct Data {
    Tensor x, rows, staged, y;
  };

  constexpr int64_t kHidden = 2048;
  const auto data = std::make_shared<Data>();
  return {.name = adds ? "add_placed_rows" : "place_rows",
          .shape = fmt::format("T {}, H {}", T, kHidden),
          .bytes = static_cast<double>(4 * (adds ? 3 : 2) * T * kHidden),
          .flops = static_cast<double>(adds ? T * kHidden : 0),
          .run = [&context, data, T, adds] {
            if (data->y.shape().rank() == 0) {
              data->x = Tensor({T, kHidden}, DType::kF32);
              data->rows = Tensor({T}, DType::kI32);  // all refer to row 0
              data->staged = Tensor({T, kHidden}, DType::kF32);
              data->y = Tensor({T, kHidden}, DType::kF32);
            }
            const Status status = place_rows(context, {.x = data->x.view(),
                                                       .rows = data->rows.view(),
                                                       .staged = data->staged.view(),
                                                       .y = data->y.view(),
                                                       .adds = adds});
            HEDDLE_CHECK(status.ok());
          }};
}

}  // namespace

std::vector<OpBenchmark> embedding_benchmarks(CpuContext& context) {
  struct Data {
    Tensor ids, table, y;
  };

  constexpr int64_t kVocabSize = 151936;
  std::vector<OpBenchmark> benchmarks;
  for (const int64_t H : {512, 2048}) {
    for (const int64_t T : {1, 512}) {
      const auto data = std::make_shared<Data>();
      benchmarks.push_back({.name = "embedding",
                            .shape = fmt::format("T {}, V {}, H {}, bfloat16", T, kVocabSize, H),
                            .bytes = static_cast<double>((2 + 4) * T * H),
                            .flops = 0,
                            .run = [&context, data, T, H] {
                              if (data->ids.shape().rank() == 0) {
                                data->ids = Tensor({T}, DType::kI32);
                                data->table = Tensor({kVocabSize, H}, DType::kBf16);
                                data->y = Tensor({T, H}, DType::kF32);
                              }
                              // Other rows every time, so that they come from memory.
                              for (int32_t& id : data->ids.span<int32_t>()) {
                                id = static_cast<int32_t>((int64_t{id} + 7919) % kVocabSize);
                              }
                              const Status status = embedding(context, {.ids = data->ids.view(),
                                                                        .table = data->table.view(),
                                                                        .y = data->y.view()});
                              HEDDLE_CHECK(status.ok());
                            }});
    }
  }
  for (const int64_t T : {400, 3072}) benchmarks.push_back(weighted_rows_benchmark(context, T));
  for (const bool adds : {false, true}) {
    benchmarks.push_back(place_rows_benchmark(context, 512, adds));
  }
  return benchmarks;
}

}  // namespace heddle::ops
