// SPDX-License-Identifier: Apache-2.0
#include "device/host_buffer.h"

#include <cstdint>
#include <utility>

#include <gtest/gtest.h>

namespace heddle::device {
namespace {

TEST(HostBuffer, IsZeroedAlignedAndMovable) {
  Result<HostBuffer> buffer = HostBuffer::allocate(5 << 20);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % (2 << 20), 0u);
  for (int64_t i = 0; i < buffer->size(); i += 4096) EXPECT_EQ(buffer->data()[i], std::byte{0});
  buffer->data()[7] = std::byte{9};
  HostBuffer moved = std::move(*buffer);
  EXPECT_EQ(moved.data()[7], std::byte{9});
  EXPECT_EQ(buffer->data(), nullptr);
}

TEST(HostBuffer, RefusesWhatTheSystemCannotGive) {
  EXPECT_EQ(HostBuffer::allocate(-1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(HostBuffer::allocate(int64_t{1} << 60).status().code(), StatusCode::kResourceExhausted);
  Result<HostBuffer> empty = HostBuffer::allocate(0);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->size(), 0);
}

}  // namespace
}  // namespace heddle::device
