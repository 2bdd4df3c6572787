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

// Reports progress, on the thread that called load_weights(). Called many times; in the last call
// done_bytes equals total_bytes.
using ProgressCallback = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

struct LoadOptions {
  // The dtype that WeightDType::kRun stands for: fp32, bf16 or fp16. None: weights keep the dtype
  // they are stored in.
  std::optional<DType> dtype;
  // If true, every weight is copied into huge pages. If false, a weight that needs neither a new
  // layout nor a conversion is used in place in the mapped file, and only the others are copied.
  bool copy_to_huge_pages = true;
  // Prefixes of names of hub tensors that may exist without being used ("mtp."). Rotary tables
  // (*.rotary_emb.inv_freq) are always ignored: they are computed.
  std::vector<std::string> ignored_prefixes;
  int num_threads = 0;  // number of loading threads; 0: one per core, at most 8
  ProgressCallback progress;

  // The checkpoint's quantization_config; null if it has none. Must outlive the call.
  const QuantizationConfig* quantization = nullptr;
  // If set, quantises the unquantised weights that are worth it (packed_load.h).
  std::optional<Rounding> rounding;

  // Loads the weights into the memory of this device, which the host does not read; null: into host
  // memory. Weights of WeightDType::kRun have one dtype or are packed, as on the host, but those of
  // Packing::kColumns are dequantised to that dtype. Must outlive the weights.
  device::Device* device = nullptr;

  // If true, set by any thread, loading stops. May be null. Must outlive the call.
  const std::atomic<bool>* cancelled = nullptr;
};

// Turns every spec into one dense tensor, 64-byte aligned unless it is used in place. If its hub
// tensors are quantised, it becomes a packed tensor (dtype kPacked), for WeightDType::kRun only and
// as its Packing allows. In an fp32 run (run_dtype), products use exactly the numbers that the
// codes of packed weights represent. Every hub tensor must be used, be ignored by prefix, or belong
// to an alternative of a spec that was not chosen.
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
