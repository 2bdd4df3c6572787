// SPDX-License-Identifier: Apache-2.0
#include "ops/benchmark/all_benchmarks.h"

#include <string>
#include <utility>

#include "ops/attention/latent_projection_benchmark.h"
#include "ops/attention/paged_attention_benchmark.h"
#include "ops/elementwise/elementwise_benchmark.h"
#include "ops/embedding/embedding_benchmark.h"
#include "ops/gemm/linear_benchmark.h"
#include "ops/layout/layout_benchmark.h"
#include "ops/linear_attention/linear_attention_benchmark.h"
#include "ops/moe/moe_benchmark.h"
#include "ops/norm/rms_norm_benchmark.h"
#include "ops/rope/rope_benchmark.h"

namespace heddle::ops {

namespace {

constexpr BenchmarkFamily kFamilies[] = {
    {"attention", attention_benchmarks},
    {"elementwise", elementwise_benchmarks},
    {"embedding", embedding_benchmarks},
    {"latent_projection", latent_projection_benchmarks},
    {"layout", layout_benchmarks},
    {"linear", linear_benchmarks},
    {"delta_rule", linear_attention_benchmarks},
    {"moe", moe_benchmarks},
    {"norm", norm_benchmarks},
    {"rope", rope_benchmarks},
};

}  // namespace

std::span<const BenchmarkFamily> all_benchmarks() { return kFamilies; }

std::vector<OpBenchmark> benchmarks_matching(CpuContext& context, std::string_view filter) {
  std::vector<OpBenchmark> matching;
  for (const BenchmarkFamily& family : kFamilies) {
    const bool whole_family = family.name.find(filter) != std::string_view::npos;
    for (OpBenchmark& benchmark : family.make(context)) {
      if (!whole_family && benchmark.name.find(filter) == std::string::npos) continue;
      matching.push_back(std::move(benchmark));
    }
  }
  return matching;
}

}  // namespace heddle::ops
