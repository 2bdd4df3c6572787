// SPDX-License-Identifier: Apache-2.0
// Weights and activations of realistic magnitude for benchmarks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor.h"

namespace heddle::ops {

// A size that exceeds the last-level cache of every CPU that Heddle is run on.
inline constexpr int64_t kColdBytes = int64_t{640} << 20;

// ColdMemory: a large block of weights that benchmarks read piece by piece, so that every run finds
// its weights in memory instead of in a cache, as a step of a model larger than the cache does.
//
// The bytes are small numbers whether read as fp32, bf16 or fp16. Memory is allocated and filled at
// first use, so that a list of benchmarks costs nothing until one of them runs. Threading:
// thread-confined.
class ColdMemory {
 public:
  explicit ColdMemory(int64_t bytes);
  ~ColdMemory();
  ColdMemory(const ColdMemory&) = delete;
  ColdMemory& operator=(const ColdMemory&) = delete;

  // Returns the next `bytes` bytes, 64-byte aligned; continues at the front when the end is near.
  // `bytes` is at most size(). The first call aborts when the system does not have that much
  // memory: only benchmarks use this.
  const void* next(int64_t bytes);

  [[nodiscard]] int64_t size() const { return bytes_; }

 private:
  void fill();

  int64_t bytes_;
  int64_t position_ = 0;
  void* data_ = nullptr;
};

// f32 numbers spread evenly over [-1, 1); every call returns the same ones.
[[nodiscard]] Tensor noise_tensor(const Shape& shape);

}  // namespace heddle::ops
