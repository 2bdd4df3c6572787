// SPDX-License-Identifier: Apache-2.0
// Plausible weights and activations for benchmarks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor.h"

namespace heddle::ops {

// Beyond the last cache of every CPU that Heddle knows.
inline constexpr int64_t kColdBytes = int64_t{640} << 20;

// ColdMemory: a large block of plausible weights that benchmarks walk through, so that every run
// finds its weights in memory instead of in a cache, as a step of a model larger than the cache
// does.
//
// The bytes are small numbers whether read as fp32, bf16 or fp16. They are taken and filled at
// first use, so that a list of benchmarks costs nothing until one of them runs. Threading:
// thread-confined.
class ColdMemory {
 public:
  explicit ColdMemory(int64_t bytes);
  ~ColdMemory();
  ColdMemory(const ColdMemory&) = delete;
  ColdMemory& operator=(const ColdMemory&) = delete;

  // The next `bytes`, on a cache line, starting again at the front when the end is near. At most
  // size(). The first call aborts when the system has not that much memory: only benchmarks use
  // this.
  const void* next(int64_t bytes);

  [[nodiscard]] int64_t size() const { return bytes_; }

 private:
  void fill();

  int64_t bytes_;
  int64_t position_ = 0;
  void* data_ = nullptr;
};

// f32 numbers spread evenly over [-1, 1), the same ones every time.
[[nodiscard]] Tensor noise_tensor(const Shape& shape);

}  // namespace heddle::ops
