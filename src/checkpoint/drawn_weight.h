// SPDX-License-Identifier: Apache-2.0
// DrawnWeight: the rule of a seeded random weight. An element is a pure function of key and
// position, the same bits on the CPU and on a GPU, so that a GPU computes such weights in place.
#pragma once

#include <cstddef>
#include <cstdint>

#include <heddle/status.h>

#include "core/compiler.h"

namespace heddle::device {
class CudaDevice;
class CudaStream;
}  // namespace heddle::device

namespace heddle::checkpoint {

struct CopyJob;  // defined in copy_job.h

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
[[nodiscard]] HEDDLE_HOST_DEVICE constexpr uint64_t split_mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A bijection of 32-bit words in which every input bit moves every output bit; 32-bit multiplies
// only, because those exist as vector instructions.
[[nodiscard]] HEDDLE_HOST_DEVICE constexpr uint32_t mix_word(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// The two hash keys of all elements whose indices have the same upper 32 bits.
struct DrawKeys {
  uint32_t a;
  uint32_t b;
};

[[nodiscard]] HEDDLE_HOST_DEVICE constexpr DrawKeys draw_keys(uint64_t key, int64_t index) {
  const uint64_t keys = split_mix(key + static_cast<uint64_t>(index >> 32));
  return {static_cast<uint32_t>(keys), static_cast<uint32_t>(keys >> 32)};
}

// The sum of four uniform 16-bit numbers about its mean: a bell curve, close enough to the normal
// one for weights.
[[nodiscard]] HEDDLE_HOST_DEVICE constexpr int32_t draw_bell(DrawKeys keys, uint32_t low_index) {
  constexpr int32_t kMeanOfSum = 2 * 65535;
  const uint32_t a = mix_word(low_index ^ keys.a);
  const uint32_t b = mix_word(a + keys.b);
  const uint32_t sum = (a & 0xffffu) + (a >> 16) + (b & 0xffffu) + (b >> 16);
  return static_cast<int32_t>(sum) - kMeanOfSum;
}

inline constexpr float kDeviationOfBell = 37837.22f;  // standard deviation of draw_bell(): sqrt(4 *
                                                      // (65536^2 - 1) / 12)

struct DrawnWeight {
  uint64_t key = 0;  // hash of the seed and the hub name
  float mean = 0;
  float deviation = 0;
};

// Enqueues the GPU's computation of the elements of `job` into `arena`, GPU memory, at the job's
// target_byte. The bits are those that DummyWeights::read() returns.
// Errors: kDeviceLost; kUnimplemented in a build without CUDA.
// Cost: two hashes per element; each element is written once.
Status draw_weight_cuda(device::CudaDevice& gpu, device::CudaStream& stream,
                        const DrawnWeight& weight, const CopyJob& job, std::byte* arena);

}  // namespace heddle::checkpoint
