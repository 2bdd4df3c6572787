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
#include <string_view>
#include <unordered_map>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/packed_load.h"
#include "checkpoint/quantization_config.h"
#include "checkpoint/weight_map.h"
#include "checkpoint/weight_source.h"
#include "device/device.h"
#include "device/host_buffer.h"

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
  // Quantises what is not quantised yet and is worth it (quantisation_rules.h).
  std::optional<Rounding> rounding;

  // A device whose memory the host does not read: the weights lie there, all of
  // WeightDType::kRun in one dtype, and those that are quantised are dequantised to it. Null: on
  // the host. Must outlive the weights.
  device::Device* device = nullptr;

  // Once true, on whatever thread, the load is given up. Null: it never is. Must outlive the call.
  const std::atomic<bool>* cancelled = nullptr;
};

// The weights by our names, and the memory they lie in. Views stay valid until it is destroyed,
// also when it is moved.
//
// Threading: thread-compatible.
class LoadedWeights {
 public:
  // Aborts when the specs had no such weight: that is a typing error in a model.
  [[nodiscard]] const TensorView& operator[](std::string_view name) const;

  // The same, where the host reads it: of vectors of WeightDType::kF32 there is a twin on the host
  // where the weights lie on a device. Aborts for others there.
  [[nodiscard]] const TensorView& host(std::string_view name) const;

  // Null when the specs had no such weight.
  [[nodiscard]] const TensorView* find(std::string_view name) const;

  // Whether replace() can put `other` in the place of these: both come from the same specs.
  // Error: kInvalidArgument, naming the first weight, in order of name, whose dtype or packing
  // differs.
  [[nodiscard]] Status check_alike(const LoadedWeights& other) const;

  // Copies the numbers of `other`, which check_alike() found alike, over these: views keep their
  // addresses and show the new numbers. Nothing of either is used in place (checked). With a
  // device, `stream` is one of its own and `other` was loaded likewise, but for a device whose
  // memory is the host's; otherwise it is null. Waits for the copies. Error: kDeviceLost; the
  // weights are then of both.
  Status replace(const LoadedWeights& other, device::Stream* stream);

  [[nodiscard]] size_t size() const { return weights_.size(); }

  // The dtype that WeightDType::kRun stood for: LoadOptions::dtype or, as stored, the dtype of the
  // first such weight that is not quantised; bf16 if all are.
  [[nodiscard]] DType run_dtype() const { return run_dtype_; }

  [[nodiscard]] int64_t num_parameters() const { return num_parameters_; }

  [[nodiscard]] int64_t bytes_in_place() const { return bytes_in_place_; }

  [[nodiscard]] int64_t bytes_copied() const { return arena_.size() + device_arena_.size(); }

 private:
  friend class WeightLoader;

  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  // Where all weights lie that are dense.
  [[nodiscard]] const std::byte* memory() const {
    return device_arena_.size() > 0 ? device_arena_.data() : arena_.data();
  }

  std::unordered_map<std::string, TensorView, Hash, std::equal_to<>> weights_;
  std::vector<std::unique_ptr<quant::PackedWeight>> packed_;  // what views of kPacked point at
  device::HostBuffer arena_;  // all weights that are not used where they lie in the files; with a
                              // device the twins
  device::Buffer device_arena_;
  std::unordered_map<std::string, TensorView, Hash, std::equal_to<>> twins_;
  std::unique_ptr<const WeightSource> source_;  // kept while a view points into it
  DType run_dtype_ = DType::kBf16;
  int64_t num_parameters_ = 0;
  int64_t bytes_in_place_ = 0;
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

}  // namespace heddle::checkpoint
