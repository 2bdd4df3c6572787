// SPDX-License-Identifier: Apache-2.0
// Scratch: allocates typed, 64-byte aligned pieces of a workspace. To find out how many bytes a
// workspace needs, make the same sequence of take() calls on a Scratch without memory:
//
//   Scratch measure;              Scratch scratch(args.workspace);
//   lay_out(measure, sizes);      Layout layout = lay_out(scratch, sizes);
//   measure.bytes();
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/check.h"

namespace heddle::ops {

class Scratch {
 public:
  Scratch() = default;  // only measures; take() returns null

  explicit Scratch(std::span<std::byte> memory)
      : base_(memory.data()), size_(static_cast<int64_t>(memory.size())) {}

  // Returns null while measuring. The caller must have checked the workspace against bytes().
  template <typename T>
  T* take(int64_t count) {
    const int64_t start = used_;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    if (base_ == nullptr) return nullptr;
    HEDDLE_CHECK_LE(bytes(), size_);
    return reinterpret_cast<T*>(aligned_base() + start);
  }

  // Bytes taken so far, plus room to align memory that starts at any address.
  [[nodiscard]] int64_t bytes() const { return used_ + kAlignment; }

 private:
  static constexpr int64_t kAlignment = 64;

  [[nodiscard]] std::byte* aligned_base() const {
    const auto address = reinterpret_cast<uintptr_t>(base_);
    const uintptr_t over = address % static_cast<uintptr_t>(kAlignment);
    return base_ + (over == 0 ? 0 : static_cast<uintptr_t>(kAlignment) - over);
  }

  std::byte* base_ = nullptr;
  int64_t size_ = 0;
  int64_t used_ = 0;
};

}  // namespace heddle::ops
