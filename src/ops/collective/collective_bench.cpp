// SPDX-License-Identifier: Apache-2.0
// Measures the collectives in a group of one rank, that is, without waiting for other ranks.
#include <chrono>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "distributed/rank_group.h"
#include "ops/benchmark/op_benchmark.h"
#include "ops/collective/collective.h"

namespace heddle::ops {

namespace {

struct CollectiveData {
  CollectiveData(device::ThreadPool& pool, int64_t T, int64_t N)
      : context(pool),
        ranks(std::make_shared<distributed::RankGroup>(1, std::chrono::milliseconds(0)), 0),
        x({T, N}, DType::kF32),
        y({T, N}, DType::kF32) {
    context.ranks = &ranks;
  }

  CpuContext context;
  distributed::Communicator ranks;
  Tensor x, y;
};

}  // namespace

std::vector<OpBenchmark> collective_benchmarks(CpuContext& context) {
  const int64_t hidden = 2048;
  std::vector<OpBenchmark> benchmarks;
  for (const char* name : {"all_reduce", "all_reduce_bits", "gather_columns"}) {
    for (const int64_t T : {1, 512}) {
      const auto data = std::make_shared<std::unique_ptr<CollectiveData>>();
      benchmarks.push_back(
          {.name = name,
           .shape = fmt::format("one rank, T {}, N {}", T, hidden),
           .bytes = static_cast<double>(8 * T * hidden),
           .flops = 0,
           .run = [&context, data, T, hidden, op = std::string_view(name)] {
             if (*data == nullptr)
               *data = std::make_unique<CollectiveData>(context.pool, T, hidden);
             CollectiveData& own = **data;
             const auto reduction = op == "all_reduce" ? Reduction::kSum : Reduction::kBits;
             const Status status =
                 op == "gather_columns"
                     ? gather_columns(own.context, own.x.view(), hidden, own.y.view())
                     : all_reduce(own.context, reduction, own.x.view(), own.y.view());
             HEDDLE_CHECK(status.ok());
           }});
    }
  }
  return benchmarks;
}

}  // namespace heddle::ops
