// SPDX-License-Identifier: Apache-2.0
// Lists of slots or pages that one launch works on, in all layers of a pool.
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

// An array on the host and, on CUDA, the same array in memory of the device: lists of ids, which
// change with every step, and tables of layers, which never do. The device's is a copy of the
// host's bytes; the host's elements are checked and counted, the device's are what kernels read.
template <typename Element>
struct MirroredSpan {
  static_assert(std::is_trivially_copyable_v<Element>);

  std::span<const Element> host;
  const Element* device = nullptr;  // null on the CPU

  [[nodiscard]] int64_t size() const { return std::ssize(host); }

  [[nodiscard]] MirroredSpan part(size_t begin, size_t count) const {
    return {host.subspan(begin, count), device == nullptr ? nullptr : device + begin};
  }
};

// Error: kInvalidArgument when launchers of the context's device could not read the array.
template <typename Element>
Status check_mirrored(const char* op, const char* name, const Context& context,
                      const MirroredSpan<Element>& array) {
  if (context.device == DeviceKind::kCpu || array.device != nullptr || array.host.empty()) {
    return {};
  }
  return invalid_argument(std::string(op) + ": " + name + " have no copy in memory of the device");
}

// Pages or rows to copy, by page table.
using CopiesByTable = std::array<std::vector<IdCopy>, kMaxPageTables>;

}  // namespace heddle::ops
