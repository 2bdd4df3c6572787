// SPDX-License-Identifier: Apache-2.0
// Rows of a bfloat16 table of 151,936 ids, and of a table of positions with 48 x 48 rows that is
// resampled for a picture.
#include <memory>

#include <fmt/format.h>

#include "ops/benchmark/op_benchmark.h"
#include "ops/embedding/embedding.h"
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
  return benchmarks;
}

}  // namespace heddle::ops
