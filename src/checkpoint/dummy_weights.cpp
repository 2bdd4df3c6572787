// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/dummy_weights.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "checkpoint/convert.h"
#include "core/check.h"
#include "core/compiler.h"

namespace heddle::checkpoint {

namespace {

constexpr int64_t kDrawnAtOnce =
    2048;  // floats drawn at a time, 8 KiB; never spans two upper halves of an index

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
uint64_t split_mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t key_of(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return split_mix(hash ^ split_mix(seed));
}

// A bijection of 32-bit words in which every input bit moves every output bit; 32-bit multiplies
// only, because those exist as vector instructions.
inline uint32_t mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// The sum of four uniform 16-bit numbers: a bell curve, close enough to the normal one for weights.
HEDDLE_VECTOR_CLONES
void draw_normal(uint32_t key_a, uint32_t key_b, uint32_t first, float mean, float deviation,
                 float* values, int32_t count) {
  constexpr int32_t kMeanOfSum = 2 * 65535;
  constexpr float kDeviationOfSum = 37837.22f;  // sqrt(4 * (65536^2 - 1) / 12)
  const float scale = deviation / kDeviationOfSum;
  for (int32_t i = 0; i < count; ++i) {
    const uint32_t index = first + static_cast<uint32_t>(i);
    const uint32_t a = mix(index ^ key_a);
    const uint32_t b = mix(a + key_b);
    const uint32_t sum = (a & 0xffffu) + (a >> 16) + (b & 0xffffu) + (b >> 16);
    values[i] = mean + scale * static_cast<float>(static_cast<int32_t>(sum) - kMeanOfSum);
  }
}

void draw_log_decay(uint32_t key, uint32_t first, float* values, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    const uint32_t bits = mix((first + static_cast<uint32_t>(i)) ^ key) >> 8;
    values[i] = std::log(16.0f * (static_cast<float>(bits) + 0.5f) * 0x1p-24f);
  }
}

}  // namespace

std::optional<StoredWeight> DummyWeights::find(const WeightRequest& request) const {
  return StoredWeight{.name = request.name,
                      .stored_dtype = to_string(dtype_),
                      .dtype = dtype_,
                      .shape = request.shape,
                      .data = nullptr,
                      .initial = request.initial};
}

void DummyWeights::read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
                        void* target) const {
  HEDDLE_CHECK(is_convertible(dtype));
  auto* bytes = static_cast<std::byte*>(target);
  const uint64_t name_key = key_of(seed_, weight.name);
  std::array<float, kDrawnAtOnce> block;
  for (int64_t done = 0; done < count;) {
    const int64_t index = first + done;
    const int64_t length = std::min(kDrawnAtOnce - index % kDrawnAtOnce, count - done);
    const uint64_t key = split_mix(name_key + static_cast<uint64_t>(index >> 32));
    const auto key_a = static_cast<uint32_t>(key);
    const auto key_b = static_cast<uint32_t>(key >> 32);
    const auto low = static_cast<uint32_t>(index);
    const auto num = static_cast<int32_t>(length);
    if (weight.initial == Initial::kLogDecay) {
      draw_log_decay(key_a, low, block.data(), num);
    } else {
      const float mean = weight.initial == Initial::kAroundOne ? 1.0f : 0.0f;
      draw_normal(key_a, key_b, low, mean, 0.02f, block.data(), num);
    }
    convert_elements(block.data(), DType::kF32, bytes + bytes_of(dtype, done), dtype, length);
    done += length;
  }
}

}  // namespace heddle::checkpoint
