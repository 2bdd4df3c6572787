// SPDX-License-Identifier: Apache-2.0
#include "ops/benchmark/all_benchmarks.h"

#include "ops/attention/paged_attention_benchmark.h"
#include "ops/elementwise/elementwise_benchmark.h"
#include "ops/embedding/embedding_benchmark.h"
#include "ops/gemm/linear_benchmark.h"
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
    {"linear", linear_benchmarks},
    {"delta_rule", linear_attention_benchmarks},
    {"moe", moe_benchmarks},
    {"norm", norm_benchmarks},
    {"rope", rope_benchmarks},
};

}  // namespace

std::span<const BenchmarkFamily> all_benchmarks() { return kFamilies; }

}  // namespace heddle::ops
