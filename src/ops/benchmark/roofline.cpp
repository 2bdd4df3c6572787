// SPDX-License-Identifier: Apache-2.0
#include "ops/benchmark/roofline.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "ops/simd/targets.h"
#include "ops/simd/this_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/benchmark/roofline.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/load-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = heddle::ops::simd::HWY_NAMESPACE;

// Reads `count` words, a multiple of 64, and returns their exclusive or.
uint32_t read_words(const uint32_t* words, int64_t count) {
  const hn::ScalableTag<uint32_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr uintptr_t kAhead = 2048;  // bytes by which reads are prefetched ahead
  auto all = hn::Zero(d);
  for (int64_t i = 0; i < count; i += 64) {
    const uintptr_t ahead = reinterpret_cast<uintptr_t>(words + i) + kAhead;
    for (uintptr_t line = 0; line < 256; line += 64) simd::PrefetchLine(ahead + line);
    for (int64_t j = 0; j < 64; j += lanes) all = hn::Xor(all, hn::LoadU(d, words + i + j));
  }
  HWY_ALIGN uint32_t lane[HWY_MAX_BYTES / sizeof(uint32_t)];
  hn::Store(all, d, lane);
  uint32_t result = 0;
  for (int64_t j = 0; j < lanes; ++j) result ^= lane[j];
  return result;
}

}  // namespace heddle::ops::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

HWY_EXPORT(read_words);

double ReadProbe::gb_per_s() {
  constexpr int64_t kBytesPerTask = int64_t{2} << 20;
  constexpr int64_t kWordsPerTask = kBytesPerTask / 4;
  const auto* words = static_cast<const uint32_t*>(memory_.next(kBytes));
  std::array<uint32_t, kBytes / kBytesPerTask> sinks;
  const auto start = std::chrono::steady_clock::now();
  context_.pool.parallel_for(kBytes / kBytesPerTask, [&](int64_t task, int) {
    sinks[static_cast<size_t>(task)] =
        HWY_DYNAMIC_DISPATCH(read_words)(words + task * kWordsPerTask, kWordsPerTask);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const volatile uint32_t sink = sinks[0];
  (void)sink;
  return static_cast<double>(kBytes) / seconds.count() * 1e-9;
}

Roofline measure_roofline(CpuContext& context) {
  constexpr std::chrono::milliseconds kMinTime(
      500);  // other programs disturb only some of the runs
  ReadProbe probe(context);
  double best = probe.gb_per_s();  // the first call also fills the memory
  const auto first = std::chrono::steady_clock::now();
  for (int run = 0; run < 5 || std::chrono::steady_clock::now() - first < kMinTime; ++run) {
    best = std::max(best, probe.gb_per_s());
  }
  const int threads = context.pool.num_threads();
  return {.num_threads = threads,
          .read_gb_per_s = best,
          .float_gflops = threads * peak_float_gflops(),
          .bf16_gflops = threads * peak_bf16_gflops()};
}

double Roofline::floor_seconds(const OpBenchmark& benchmark) const {
  const double from_memory = benchmark.bytes / std::max(read_gb_per_s * 1e9, 1.0);
  const double from_arithmetic =
      benchmark.flops / std::max(std::max(float_gflops, bf16_gflops) * 1e9, 1.0);
  return std::max(from_memory, from_arithmetic);
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
