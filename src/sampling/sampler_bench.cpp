// SPDX-License-Identifier: Apache-2.0
// Time per row at the vocabulary of Qwen3-Next, with logits spread as a language model's are.
#include <random>

#include <benchmark/benchmark.h>

#include "sampling/sampler.h"

namespace heddle::sampling {
namespace {

constexpr size_t kVocabSize = 151936;

void run(benchmark::State& state, const SamplingParams& params, float scale, bool logprobs) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> logits(kVocabSize);
  for (float& x : logits) x = normal(random);
  Sampler sampler(kVocabSize);
  TokenLogprob logprob;
  int64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.sample(
        {.logits = logits, .params = &params, .seed = 1, .position = ++position, .top_logprobs = 5},
        logprobs ? &logprob : nullptr));
  }
}

void greedy(benchmark::State& state) { run(state, {.temperature = 0}, 3, false); }

void greedy_with_logprobs(benchmark::State& state) { run(state, {.temperature = 0}, 3, true); }

void open_draw(benchmark::State& state) { run(state, {}, 3, false); }

void top_k_20(benchmark::State& state) { run(state, {.top_k = 20}, 3, false); }

void top_k_20_top_p(benchmark::State& state) {
  run(state, {.temperature = 0.7f, .top_p = 0.9f, .top_k = 20}, 3, false);
}

void top_p(benchmark::State& state) { run(state, {.top_p = 0.9f}, 3, false); }

void top_p_of_a_flat_row(benchmark::State& state) { run(state, {.top_p = 0.9f}, 0.1f, false); }

void min_p(benchmark::State& state) { run(state, {.min_p = 0.05f}, 3, false); }

BENCHMARK(greedy)->Unit(benchmark::kMicrosecond);
BENCHMARK(greedy_with_logprobs)->Unit(benchmark::kMicrosecond);
BENCHMARK(open_draw)->Unit(benchmark::kMicrosecond);
BENCHMARK(top_k_20)->Unit(benchmark::kMicrosecond);
BENCHMARK(top_k_20_top_p)->Unit(benchmark::kMicrosecond);
BENCHMARK(top_p)->Unit(benchmark::kMicrosecond);
BENCHMARK(top_p_of_a_flat_row)->Unit(benchmark::kMicrosecond);
BENCHMARK(min_p)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace heddle::sampling
