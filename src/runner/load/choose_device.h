// SPDX-License-Identifier: Apache-2.0
// Chooses the device that computes a model: the one that was asked for, or a GPU where one can be
// used, else the CPU; with the reason in words.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runner/program/compute_device.h"

namespace heddle::runner {

struct DeviceRequest {
  enum class Kind { kAuto, kCpu, kCuda };

  Kind kind = Kind::kCpu;
  int cuda_index = 0;
};

// "auto", "cpu", "cuda" (the first GPU) or "cuda:N". Error: kInvalidArgument, listing them.
Result<DeviceRequest> parse_device(std::string_view name);

struct ChosenDevice {
  std::unique_ptr<ComputeDevice> compute;
  std::string reason;  // "asked for", "CUDA is not used: ..."
};

// kAuto takes the first GPU if the driver answers, the GPU has compute capability 8.0 and its
// kernels pass the self-test (ops/kernel_check.h); whether the model fits is seen when it is
// loaded. Errors: for kCuda, what keeps kAuto from the GPU. Cost: some 100 to 400 ms with a GPU; a
// line in the log says what part of it is the self-test's.
Result<ChosenDevice> choose_device(const DeviceRequest& request, int num_threads, bool exact);

// The CPU instead of a GPU that a model was not loaded on, because of `why`.
Result<ChosenDevice> fall_back_to_cpu(const Status& why, int num_threads, bool exact);

inline constexpr int64_t kLeastPoolLimit = int64_t{1} << 30;

// Defaults of options that were not set.
struct DeviceDefaults {
  int64_t chunked_prefill_tokens = 0;
  int32_t max_running_requests = 0;  // at most
  double memory_fraction = 0;

  // Where neither their share of the memory nor their tokens are given, pools take at most this
  // many times the bytes of the weights, so that a small model leaves a shared machine's memory to
  // others; but kLeastPoolLimit, two whole contexts, or what the requests asked for need, where
  // that is more. 0: no limit.
  int64_t pool_bytes_per_weight_byte = 0;

  // Prompt tokens scored per step. Each takes a row of logits: some 600 KB for a vocabulary of
  // 150,000 tokens. With fewer rows, such steps are too short to be efficient.
  int64_t max_scored_rows = 0;
};

// The CPU is shared with other programs and slow enough for small steps; a GPU is the engine's own.
[[nodiscard]] DeviceDefaults defaults_for(device::DeviceKind kind);

}  // namespace heddle::runner
