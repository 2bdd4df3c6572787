// SPDX-License-Identifier: Apache-2.0
// DeviceIntsTest: a suite on each kind of device (ops/device_fixture.h) whose tests put numbers
// into its memory and look at what launches made of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "ops/device_fixture.h"

namespace heddle::runner {

using Ints = std::vector<int32_t>;

class DeviceIntsTest : public ops::DeviceTest {
 protected:
  device::Buffer uploaded(const Ints& values) {
    const int64_t num_bytes = bytes_of(DType::kI32, std::ssize(values));
    device::Buffer buffer = device().allocate(num_bytes).value();
    EXPECT_TRUE(stream().copy(buffer.data(), values.data(), num_bytes).ok());
    EXPECT_TRUE(stream().synchronize().ok());
    return buffer;
  }

  template <typename Element>
  std::vector<Element> downloaded(const Element* at, size_t count) {
    std::vector<Element> values(count);
    const auto num_bytes = static_cast<int64_t>(count * sizeof(Element));
    EXPECT_TRUE(stream().copy(values.data(), at, num_bytes).ok());
    EXPECT_TRUE(stream().synchronize().ok());
    return values;
  }

  static int32_t* on_device(const device::Buffer& buffer) {
    return reinterpret_cast<int32_t*>(const_cast<std::byte*>(buffer.data()));
  }
};

}  // namespace heddle::runner
