// SPDX-License-Identifier: Apache-2.0
#include "ops/benchmark/benchmark_data.h"

#include <cstdlib>
#include <random>

#include <sys/mman.h>

#include "core/check.h"

namespace heddle::ops {

ColdMemory::ColdMemory(int64_t bytes) : bytes_((bytes + 4095) / 4096 * 4096) {}

ColdMemory::~ColdMemory() { std::free(data_); }

void ColdMemory::fill() {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t size = (static_cast<size_t>(bytes_) + kHugePage - 1) / kHugePage * kHugePage;
  data_ = std::aligned_alloc(kHugePage, size);
  HEDDLE_CHECK(data_ != nullptr);
  (void)madvise(data_, size, MADV_HUGEPAGE);
  // Random sign and six random fraction bits, fixed exponent: +-[1, 1.06) as fp16, +-[2^-7, 2^-6)
  // as bf16 and, in pairs, as fp32.
  auto* words = static_cast<uint32_t*>(data_);
  uint32_t state = 1;
  for (size_t i = 0; i < static_cast<size_t>(bytes_) / 4; ++i) {
    state = state * 1664525u + 1013904223u;
    words[i] = 0x3c003c00u | (state & 0x803f803fu);
  }
}

const void* ColdMemory::next(int64_t bytes) {
  HEDDLE_CHECK_LE(bytes, bytes_);
  if (data_ == nullptr) fill();
  if (position_ + bytes > bytes_) position_ = 0;
  const void* here = static_cast<const char*>(data_) + position_;
  position_ += (bytes + 63) / 64 * 64;
  return here;
}

Tensor noise_tensor(const Shape& shape) {
  Tensor tensor(shape, DType::kF32);
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (float& value : tensor.span<float>()) value = uniform(random);
  return tensor;
}

}  // namespace heddle::ops
