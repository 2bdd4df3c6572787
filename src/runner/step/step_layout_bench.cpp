// SPDX-License-Identifier: Apache-2.0
// Host time of laying a decode step out for a GPU, before its launches: the batch's arrays, the
// check of their ids, and the block that goes to the device. A copy in memory stands for the launch
// that brings it.
#include <numeric>
#include <vector>

#include <benchmark/benchmark.h>

#include "device/cpu_device.h"
#include "ops/device_batch.h"
#include "runner/step/forward_batch.h"

namespace heddle::runner {
namespace {

constexpr int32_t kPageSize = 16;

// Sequences that decode at about `context` tokens each, one token further with every step. Their
// pages were sent before.
class DecodingBatch {
 public:
  DecodingBatch(int32_t num_sequences, int64_t context)
      : pages_each_((context + kMostSteps) / kPageSize + 2),
        slots_(num_sequences, pages_each_),
        batch_({.max_tokens = num_sequences,
                .max_sequences = num_sequences,
                .max_pages_per_sequence = pages_each_,
                .page_size = kPageSize}) {
    for (int32_t i = 0; i < num_sequences; ++i) {
      const request::PlanRange pages{.begin = static_cast<int32_t>(plan_.pages.size()),
                                     .count = static_cast<int32_t>(pages_each_)};
      plan_.starts.push_back({.sequence_id = i, .batch_slot = i});
      plan_.page_updates.push_back({.batch_slot = i, .pages = pages});
      plan_.pages.resize(plan_.pages.size() + static_cast<size_t>(pages_each_));
      plan_.sequences.push_back({.sequence_id = i,
                                 .batch_slot = i,
                                 .new_tokens = {.begin = i, .count = 1},
                                 .context_tokens = context + i % kPageSize,
                                 .state_slot = i + 1,
                                 .sample = true});
      plan_.tokens.push_back(i);
    }
    std::iota(plan_.pages.begin(), plan_.pages.end(), 1);
    HEDDLE_CHECK(slots_.take(plan_).ok());
    const Shape pool{std::ssize(plan_.pages) + 1, kPageSize, 2, 256};
    const Shape states{num_sequences + 1, 32, 128, 128};
    kv_layers_.assign(12, {.k = {nullptr, DType::kBf16, pool}, .v = {nullptr, DType::kBf16, pool}});
    state_layers_.assign(36, {.recurrent = {nullptr, DType::kF32, states}});
    upload_ = ops::DeviceBatchUpload::create(device_, {.max_rows = num_sequences,
                                                       .max_sequences = num_sequences,
                                                       .max_pages_per_sequence = 2 * pages_each_,
                                                       .max_logit_rows = num_sequences})
                  .value();
  }

  [[nodiscard]] Status lay_out_next() {
    if (++num_steps_ % kMostSteps == 0) {
      for (auto& sequence : plan_.sequences) sequence.context_tokens -= kMostSteps;
    }
    for (auto& sequence : plan_.sequences) ++sequence.context_tokens;
    HEDDLE_RETURN_IF_ERROR(batch_.build(plan_, slots_, LogitRows::kSampled));
    ops::ForwardContext forward = batch_.context(pools_);
    forward.kv_layers = kv_layers_;
    forward.state_layers = state_layers_;
    HEDDLE_RETURN_IF_ERROR(ops::check_batch(forward, std::ssize(batch_.ids())));
    return upload_->upload(context_, *stream_, batch_.ids(), batch_.positions(), forward);
  }

 private:
  static constexpr int64_t kMostSteps = 1024;

  device::CpuDevice device_{1};
  ops::CpuContext context_{device_.pool(), /*exact_mode=*/true};
  std::unique_ptr<device::Stream> stream_ = device_.create_stream().value();
  int64_t pages_each_;
  int64_t num_steps_ = 0;
  request::BatchPlan plan_;
  request::BatchSlots slots_;
  ForwardBatch batch_;
  Pools pools_;
  std::vector<ops::KvLayer> kv_layers_;
  std::vector<ops::StateLayer> state_layers_;
  std::optional<ops::DeviceBatchUpload> upload_;
};

void lay_out_decode_step(benchmark::State& state) {
  DecodingBatch batch(static_cast<int32_t>(state.range(0)), state.range(1));
  for (auto _ : state) HEDDLE_CHECK(batch.lay_out_next().ok());
}

BENCHMARK(lay_out_decode_step)
    ->ArgNames({"sequences", "context"})
    ->Args({1, 4096})
    ->Args({64, 4096})
    ->Args({256, 4096})
    ->Args({256, 32768})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace heddle::runner
