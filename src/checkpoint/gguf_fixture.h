// SPDX-License-Identifier: Apache-2.0
// GgufWriter: GGUF files for tests, from the description of the format alone (gguf_header.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace heddle::checkpoint::testing {

// The numbers of types of tensors.
inline constexpr uint32_t kGgufF32 = 0;
inline constexpr uint32_t kGgufF16 = 1;
inline constexpr uint32_t kGgufQ4K = 12;
inline constexpr uint32_t kGgufQ8 = 8;
inline constexpr uint32_t kGgufBf16 = 30;

class GgufWriter {
 public:
  void set_version(uint32_t version) { version_ = version; }

  // Also writes general.alignment.
  void set_alignment(uint32_t alignment) {
    alignment_ = alignment;
    u32("general.alignment", alignment);
  }

  void text(std::string_view key, std::string_view value) {
    entry(key, 8);
    entries_ += string(value);
  }

  void u16(std::string_view key, uint16_t value) { scalar(key, 2, value); }

  void u32(std::string_view key, uint32_t value) { scalar(key, 4, value); }

  void i32(std::string_view key, int32_t value) { scalar(key, 5, value); }

  void f32(std::string_view key, float value) { scalar(key, 6, value); }

  void boolean(std::string_view key, bool value) { scalar(key, 7, static_cast<uint8_t>(value)); }

  void texts(std::string_view key, const std::vector<std::string>& values) {
    array(key, 8, values.size());
    for (const std::string& value : values) entries_ += string(value);
  }

  void integers(std::string_view key, const std::vector<int32_t>& values) {
    array(key, 5, values.size());
    for (const int32_t value : values) entries_ += bytes_of(value);
  }

  void numbers(std::string_view key, const std::vector<float>& values) {
    array(key, 6, values.size());
    for (const float value : values) entries_ += bytes_of(value);
  }

  // An entry with a value of any type, as its bytes.
  void raw(std::string_view key, uint32_t type, std::string_view value) {
    entry(key, type);
    entries_ += value;
  }

  // `shape` as the hub has it, slowest first.
  void tensor(std::string_view name, const Shape& shape, uint32_t type,
              std::span<const std::byte> bytes) {
    tensor_at(name, shape, type, data_.size());
    data_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    data_.resize(padded(data_.size()));
  }

  void tensor(std::string_view name, const Shape& shape, std::span<const float> values) {
    tensor(name, shape, kGgufF32, std::as_bytes(values));
  }

  // Declares a tensor at `offset` without writing data.
  void tensor_at(std::string_view name, const Shape& shape, uint32_t type, uint64_t offset) {
    ++num_tensors_;
    tensors_ += string(name) + bytes_of(static_cast<uint32_t>(shape.rank()));
    for (int i = shape.rank(); i-- > 0;) tensors_ += bytes_of(static_cast<uint64_t>(shape[i]));
    tensors_ += bytes_of(type) + bytes_of(offset);
  }

  // More than there are, to claim them.
  void claim(uint64_t tensors, uint64_t entries) {
    extra_tensors_ = tensors;
    extra_entries_ = entries;
  }

  [[nodiscard]] std::string file() const {
    std::string file = "GGUF" + bytes_of(version_) + bytes_of(num_tensors_ + extra_tensors_) +
                       bytes_of(num_entries_ + extra_entries_) + entries_ + tensors_;
    file.resize(padded(file.size()));
    return file + data_;
  }

  [[nodiscard]] static std::string string(std::string_view text) {
    return bytes_of(static_cast<uint64_t>(text.size())) + std::string(text);
  }

  template <typename T>
  [[nodiscard]] static std::string bytes_of(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }

 private:
  void entry(std::string_view key, uint32_t type) {
    ++num_entries_;
    entries_ += string(key) + bytes_of(type);
  }

  template <typename T>
  void scalar(std::string_view key, uint32_t type, T value) {
    entry(key, type);
    entries_ += bytes_of(value);
  }

  void array(std::string_view key, uint32_t type, size_t count) {
    entry(key, 9);
    entries_ += bytes_of(type) + bytes_of(static_cast<uint64_t>(count));
  }

  [[nodiscard]] size_t padded(size_t size) const {
    return (size + alignment_ - 1) / alignment_ * alignment_;
  }

  uint32_t version_ = 3;
  uint32_t alignment_ = 32;
  uint64_t num_entries_ = 0;
  uint64_t num_tensors_ = 0;
  uint64_t extra_entries_ = 0;
  uint64_t extra_tensors_ = 0;
  std::string entries_;
  std::string tensors_;
  std::string data_;
};

}  // namespace heddle::checkpoint::testing
