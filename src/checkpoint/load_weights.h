// SPDX-License-Identifier: Apache-2.0
// Turns a WeightSource into the weights a model asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/loaded_weights.h"
#include "checkpoint/packed_load.h"
#include "checkpoint/quantization_config.h"
#include "checkpoint/weight_map.h"
#include "checkpoint/weight_source.h"
#include "device/device.h"

namespace heddle::checkpoint {

// Called on the thread that called load_weights(), many times, the last time with done == total.
using ProgressCallback = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

struct LoadOptions {
  // fp32, bf16 or fp16: what WeightDType::kRun means. None: as stored.
  std::optional<DType> dtype;
  // Copies every weight into huge pages. Without, a weight that needs no new layout and no
  // conversion is used where it lies in the mapped file, and only the rest is copied.
  bool copy_to_huge_pages = true;
  // Hub tensors that may be there unused, by the beginning of their names ("mtp."). Rotary tables
  // (*.rotary_emb.inv_freq) are always ignored: they are computed.
  std::vector<std::string> ignored_prefixes;
  int num_threads = 0;  // 0: one per core, at most 8
  ProgressCallback progress;

  // The checkpoint's quantization_config; null: it has none. Must outlive the call.
  const QuantizationConfig* quantization = nullptr;
  // Quantises weights that are unquantised and worth it (packed_load.h).
  std::optional<Rounding> rounding;

  // A device whose memory the host does not read: the weights lie there, all of
  // WeightDType::kRun in one dtype or packed, as on the host; those of Packing::kColumns are
  // dequantised to that dtype. Null: on the host. Must outlive the weights.
  device::Device* device = nullptr;

  // If true, set by any thread, loading stops. May be null. Must outlive the call.
  const std::atomic<bool>* cancelled = nullptr;
};

// Every spec becomes one dense tensor, 64-byte aligned unless it is used in place, or a packed one
// (dtype kPacked) where hub tensors of it are quantised: for WeightDType::kRun only, and as its
// Packing allows. In an fp32 run (run_dtype), packed weights are multiplied as exactly the numbers
// they stand for. All hub tensors must be used, ignored by prefix, or belong to an alternative of a
// spec that was not taken.
//
// Error: kInvalidArgument, with the counts and up to eight names each of the hub tensors that are
// missing, unexpected, of another shape, of another dtype, or quantised in a way that cannot be
// read, or that must not be; kUnimplemented, naming them, for experts that are not quantised alike;
// kDataLoss, naming the module, for scales that are not finite; kResourceExhausted before any
// copying when the memory is not there; kCancelled; kDeviceLost.
Result<LoadedWeights> load_weights(std::unique_ptr<const WeightSource> source,
                                   std::span<const WeightSpec> specs,
                                   const LoadOptions& options = {});

// The bytes of memory that load_weights() would allocate. Weights used directly from mapped files
// are not counted. Reads no weight. Error: those of load_weights() that do not concern memory or
// values.
Result<int64_t> bytes_to_load(const WeightSource& source, std::span<const WeightSpec> specs,
                              const LoadOptions& options);

}  // namespace heddle::checkpoint
