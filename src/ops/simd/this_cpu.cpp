// SPDX-License-Identifier: Apache-2.0
#include "ops/simd/this_cpu.h"

#include <algorithm>
#include <chrono>

#include "ops/gemm/bf16_product.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/simd/this_cpu.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/load-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Multiply-adds on 12 independent vectors, enough to hide the latency of two units. Returns the
// number of flops executed.
double multiply_add_loop(int64_t rounds, float* sink) {
  constexpr int kChains = 12;
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> sums[kChains];
  HEDDLE_UNROLL
  for (int i = 0; i < kChains; ++i) sums[i] = hn::Set(d, static_cast<float>(i));
  const auto a = hn::Set(d, sink[0]);
  const auto b = hn::Set(d, sink[1]);
  for (int64_t round = 0; round < rounds; ++round) {
    HEDDLE_UNROLL
    for (int i = 0; i < kChains; ++i) sums[i] = hn::MulAdd(a, b, sums[i]);
  }
  auto total = hn::Zero(d);
  HEDDLE_UNROLL
  for (int i = 0; i < kChains; ++i) total = hn::Add(total, sums[i]);
  sink[2] = hn::GetLane(hn::SumOfLanes(d, total));
  return static_cast<double>(rounds) * kChains * 2.0 * static_cast<double>(hn::Lanes(d));
}

const char* CompiledTargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace heddle::ops::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

HWY_EXPORT(multiply_add_loop);
HWY_EXPORT(CompiledTargetName);

std::string_view simd_target_name() { return HWY_DYNAMIC_DISPATCH(CompiledTargetName)(); }

namespace {

// The best rate of several short runs: interruptions only make a run slower.
template <class Loop>
double best_gflops(const Loop& loop) {
  constexpr int64_t kRounds = 1000;  // a run takes some 3 to 10 microseconds
  double best = 0;
  for (int run = 0; run < 12; ++run) {
    const auto start = std::chrono::steady_clock::now();
    const double flops = loop(kRounds);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, flops / std::max(seconds.count(), 1e-9) * 1e-9);
  }
  return best;
}

}  // namespace

double peak_float_gflops() {
  static const double rate = best_gflops([](int64_t rounds) {
    float sink[3] = {1.0f, 0.5f, 0.0f};
    return HWY_DYNAMIC_DISPATCH(multiply_add_loop)(rounds, sink);
  });
  return rate;
}

double peak_bf16_gflops() {
  static const double rate = has_bf16_products() ? best_gflops(bf16_dot_loop) : 0.0;
  return rate;
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
