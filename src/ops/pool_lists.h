// SPDX-License-Identifier: Apache-2.0
// Lists of slots or pages that one launch processes in all layers of a pool.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <heddle/status.h>

#include "ops/context.h"
#include "ops/pool_ids.h"

namespace heddle::ops {

// An array in host memory and, on CUDA, a copy of its bytes in device memory. It is used for lists
// of ids, which change with every step, and for tables of layers, which never change. The host's
// elements are checked and counted; kernels read the device's.
template <typename Element>
struct MirroredSpan {
  static_assert(std::is_trivially_copyable_v<Element>);

  std::span<const Element> host;
  const Element* device = nullptr;  // the copy in device memory; null on the CPU

  [[nodiscard]] int64_t size() const { return std::ssize(host); }

  [[nodiscard]] MirroredSpan part(size_t begin, size_t count) const {
    return {host.subspan(begin, count), device == nullptr ? nullptr : device + begin};
  }
};

// Error: kInvalidArgument if the context's device is a GPU and the array has no copy in device
// memory.
template <typename Element>
Status check_mirrored(const char* op, const char* name, const Context& context,
                      const MirroredSpan<Element>& array) {
  if (context.device == DeviceKind::kCpu || array.device != nullptr || array.host.empty()) {
    return {};
  }
  return invalid_argument(std::string(op) + ": " + name + " have no copy in memory of the device");
}

// Pages or rows to copy, indexed by page table.
using CopiesByTable = std::array<std::vector<IdCopy>, kMaxPageTables>;

}  // namespace heddle::ops
