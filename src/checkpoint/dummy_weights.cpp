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
    2048;  // number of floats drawn at a time, 8 KiB; all their indices have the same upper 32 bits

uint64_t key_of(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a hash of the name
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return split_mix(hash ^ split_mix(seed));
}

HEDDLE_VECTOR_CLONES
void draw_normal(DrawKeys keys, uint32_t first, float mean, float deviation, float* values,
                 int32_t count) {
  const float scale = deviation / kDeviationOfBell;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t bell = draw_bell(keys, first + static_cast<uint32_t>(i));
    values[i] = mean + scale * static_cast<float>(bell);
  }
}

void draw_log_decay(uint32_t key, uint32_t first, float* values, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    const uint32_t bits = mix_word((first + static_cast<uint32_t>(i)) ^ key) >> 8;
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

std::optional<DrawnWeight> DummyWeights::drawn(const StoredWeight& weight) const {
  // not drawn by the GPU: needs a logarithm
  if (weight.initial == Initial::kLogDecay) return std::nullopt;
  return DrawnWeight{.key = key_of(seed_, weight.name),
                     .mean = weight.initial == Initial::kAroundOne ? 1.0f : 0.0f,
                     .deviation = 0.02f};
}

void DummyWeights::read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
                        void* target) const {
  HEDDLE_CHECK(is_convertible(dtype));
  auto* bytes = static_cast<std::byte*>(target);
  const uint64_t key = key_of(seed_, weight.name);
  const std::optional<DrawnWeight> bell = drawn(weight);
  std::array<float, kDrawnAtOnce> block;
  for (int64_t done = 0; done < count;) {
    const int64_t index = first + done;
    const int64_t length = std::min(kDrawnAtOnce - index % kDrawnAtOnce, count - done);
    const DrawKeys keys = draw_keys(key, index);
    const auto low = static_cast<uint32_t>(index);
    const auto num = static_cast<int32_t>(length);
    if (bell) {
      draw_normal(keys, low, bell->mean, bell->deviation, block.data(), num);
    } else {
      draw_log_decay(keys.a, low, block.data(), num);
    }
    convert_elements(block.data(), DType::kF32, bytes + bytes_of(dtype, done), dtype, length);
    done += length;
  }
}

}  // namespace heddle::checkpoint
