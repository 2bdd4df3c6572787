// SPDX-License-Identifier: Apache-2.0
#include "device/staging.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "device/cuda/cuda_device.h"

namespace heddle::device {
namespace {

using Bytes = std::vector<std::byte>;

class StagingTest : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceKind::kCpu) {
      device_ = std::make_unique<CpuDevice>(1);
    } else {
      auto opened = open_cuda_device(0);
      if (!opened.ok()) GTEST_SKIP() << opened.status().message();
      device_ = std::move(opened).value();
    }
    stream_ = device_->create_stream().value();
  }

  Bytes random_bytes() {
    const auto size = static_cast<size_t>(1 + random_() % (random_() % 8 == 0 ? 40000 : 300));
    Bytes bytes(size);
    std::ranges::generate(bytes, [this] { return static_cast<std::byte>(random_()); });
    return bytes;
  }

  std::mt19937 random_{7};
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

INSTANTIATE_TEST_SUITE_P(Cpu, StagingTest, ::testing::Values(DeviceKind::kCpu));
INSTANTIATE_TEST_SUITE_P(Cuda, StagingTest, ::testing::Values(DeviceKind::kCuda));

// Behind each upload a copy on the stream reads what it brought; the host looks at all of them at
// the end, or where the ring asks for it.
TEST_P(StagingTest, WorkBehindAnUploadReadsThatUpload) {
  constexpr int64_t kBlocks = 2;
  for (const auto waits : {UploadRing::Waits::kForCopies, UploadRing::Waits::kNever}) {
    UploadRing ring(*device_, kBlocks, waits);
    std::deque<Bytes> sent;
    std::deque<Buffer> read;
    for (int i = 0; i < 60; ++i) {
      if (waits == UploadRing::Waits::kNever && i % kBlocks == 0) {
        ASSERT_TRUE(stream_->synchronize().ok());
      }
      const Bytes& bytes = sent.emplace_back(random_bytes());
      const auto size = std::ssize(bytes);
      ASSERT_TRUE(ring.begin(*stream_, size).ok());
      std::ranges::copy(bytes, ring.host());
      ASSERT_TRUE(ring.upload(*stream_, size).ok());
      read.push_back(device_->allocate_pinned(size).value());
      ASSERT_TRUE(stream_->copy(read.back().data(), ring.device(), size).ok());
    }
    ASSERT_TRUE(stream_->synchronize().ok());
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(sent[i], std::span(read[i].data(), sent[i].size()))) << i;
    }
  }
}

TEST_P(StagingTest, BlocksOfReadbacksStayUntilAsManyHaveFollowed) {
  constexpr size_t kBlocks = 3;
  ReadbackRing ring(*device_, kBlocks);
  std::array<Bytes, kBlocks> sent;  // by block
  const Buffer memory = device_->allocate(40000).value();
  for (int i = 0; i < 60; ++i) {
    const Bytes bytes = random_bytes();
    const auto size = std::ssize(bytes);
    const size_t before = ring.current();
    std::byte* const block = ring.begin(size).value();
    EXPECT_EQ(ring.previous(), before);
    EXPECT_EQ(ring.block(ring.current()), block);
    sent[ring.current()] = bytes;
    ASSERT_TRUE(stream_->copy(memory.data(), bytes.data(), size).ok());
    ASSERT_TRUE(stream_->copy(block, memory.data(), size).ok());
    ASSERT_TRUE(stream_->synchronize().ok());
    for (size_t index = 0; index < kBlocks; ++index) {
      const Bytes& expected = sent[index];
      EXPECT_TRUE(std::ranges::equal(expected, std::span(ring.block(index), expected.size()))) << i;
    }
  }
}

}  // namespace
}  // namespace heddle::device
