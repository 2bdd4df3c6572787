// SPDX-License-Identifier: Apache-2.0
// Chooses the device that computes a model: the requested one, or a GPU if one can be used, else
// the CPU. The reason is given in words.
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

// Parses "auto", "cpu", "cuda" (the first GPU) or "cuda:N". Error: kInvalidArgument, with a list of
// these.
Result<DeviceRequest> parse_device(std::string_view name);

struct ChosenDevice {
  std::unique_ptr<ComputeDevice> compute;
  std::string reason;  // for example "asked for", "CUDA is not used: ..."
};

// kAuto uses the first GPU if the driver answers, the GPU has compute capability 8.0 or later and
// its kernels pass the self-test (ops/kernel_check.h); whether the model fits is found out when it
// is loaded. Errors: for kCuda, the reason for which kAuto would not use the GPU. Cost: some 100 to
// 400 ms with a GPU; a line in the log says how much of that the self-test takes.
Result<ChosenDevice> choose_device(const DeviceRequest& request, int num_threads, bool exact);

// Opens the CPU after a model could not be loaded on a GPU, because of `why`.
Result<ChosenDevice> fall_back_to_cpu(const Status& why, int num_threads, bool exact);

inline constexpr int64_t kLeastPoolLimit = int64_t{1} << 30;

// Defaults of options that the user did not set.
struct DeviceDefaults {
  int64_t chunked_prefill_tokens = 0;
  int32_t max_running_requests = 0;  // default upper limit of running requests
  double memory_fraction = 0;

  // If neither their share of the memory nor their tokens are given, pools get at most this many
  // times the bytes of the weights, so that a small model leaves memory of a shared machine to
  // others. The limit is at least kLeastPoolLimit, two whole contexts, and the needs of the
  // requests asked for. 0: no limit.
  int64_t pool_bytes_per_weight_byte = 0;

  // Most prompt tokens scored per step. Each needs a row of logits: some 600 KB for a vocabulary of
  // 150,000 tokens. With fewer rows, such steps are too short to be efficient.
  int64_t max_scored_rows = 0;
};

// The defaults of a device. The CPU is shared with other programs and slow enough for small steps;
// a GPU belongs to the engine alone.
[[nodiscard]] DeviceDefaults defaults_for(device::DeviceKind kind);

}  // namespace heddle::runner
