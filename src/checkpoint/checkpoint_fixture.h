// SPDX-License-Identifier: Apache-2.0
// Fixtures of this folder's tests: a temporary folder, and files made by hand.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "core/check.h"
#include "core/tensor.h"

namespace heddle::checkpoint::testing {

// Made empty, removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("heddle_checkpoint_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    std::filesystem::remove_all(path_);
    HEDDLE_CHECK(std::filesystem::create_directories(path_));
  }

  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Writes a file and returns its path.
  // NOLINTNEXTLINE(modernize-use-nodiscard): most callers know the path
  std::filesystem::path write(std::string_view name, std::string_view text) const {
    std::ofstream file(path_ / name, std::ios::binary);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    HEDDLE_CHECK(file.good());
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// A safetensors file: the header's length (as claimed), the header, `data_bytes` zeros.
inline std::string safetensors_text(std::string_view header, size_t data_bytes,
                                    uint64_t claimed_length) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>((claimed_length >> (8 * i)) & 0xff);
  text += header;
  text.append(data_bytes, '\0');
  return text;
}

inline std::string safetensors_text(std::string_view header, size_t data_bytes) {
  return safetensors_text(header, data_bytes, header.size());
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// 0, 1, 2, ... in `dtype`: every value up to 256 is exact in all of them.
inline Tensor counting(const Shape& shape, DType dtype, int64_t first = 0) {
  Tensor tensor(shape, dtype);
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const auto index = static_cast<size_t>(i);
    const auto value = static_cast<float>(first + i);
    if (dtype == DType::kF32) tensor.span<float>()[index] = value;
    if (dtype == DType::kBf16) tensor.span<Bf16>()[index] = to_bf16(value);
    if (dtype == DType::kF16) tensor.span<F16>()[index] = to_f16(value);
  }
  return tensor;
}

// The elements as floats.
inline std::vector<float> floats(const TensorView& view) {
  std::vector<float> values;
  for (int64_t i = 0; i < view.num_elements(); ++i) {
    if (view.dtype == DType::kF32) values.push_back(view.as<float>()[i]);
    if (view.dtype == DType::kBf16) values.push_back(to_float(view.as<Bf16>()[i]));
    if (view.dtype == DType::kF16) values.push_back(to_float(view.as<F16>()[i]));
  }
  return values;
}

}  // namespace heddle::checkpoint::testing
