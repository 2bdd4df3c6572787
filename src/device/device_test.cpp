// SPDX-License-Identifier: Apache-2.0
// The promises of device.h, kept by every device.
#include "device/device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "device/cuda/cuda_device.h"
#include "device/host_buffer.h"

namespace heddle::device {
namespace {

class DevicePromisesTest : public ::testing::TestWithParam<DeviceKind> {
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

  std::vector<char> read(const void* from, int64_t num_bytes) {
    std::vector<char> bytes(static_cast<size_t>(num_bytes));
    EXPECT_TRUE(stream_->copy(bytes.data(), from, num_bytes).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
    return bytes;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

INSTANTIATE_TEST_SUITE_P(Cpu, DevicePromisesTest, ::testing::Values(DeviceKind::kCpu));
INSTANTIATE_TEST_SUITE_P(Cuda, DevicePromisesTest, ::testing::Values(DeviceKind::kCuda));

TEST_P(DevicePromisesTest, SmallestAllocationsAreZeroedAndAligned) {
  for (const int64_t size : {1, 100, 4096, 1 << 20}) {
    const Buffer buffer = device_->allocate(size).value();
    EXPECT_EQ(buffer.size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
    EXPECT_EQ(read(buffer.data(), size), std::vector<char>(static_cast<size_t>(size)));
  }
  EXPECT_EQ(device_->allocate(0).value().size(), 0);
}

TEST_P(DevicePromisesTest, NamesWhatItCannotAllocate) {
  const int64_t size = int64_t{1} << 60;
  for (const Status& status :
       {device_->allocate(size).status(), device_->allocate_pinned(size).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find("1099511627776.0 MiB"), std::string::npos) << status.message();
  }
  EXPECT_EQ(device_->allocate(-1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->allocate_pinned(-1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(device_->allocate(256).ok()) << "the device is as it was";
}

TEST_P(DevicePromisesTest, SmallestCopiesAndFillsFollowTheStream) {
  const Buffer buffer = device_->allocate(64).value();
  const Buffer pinned = device_->allocate_pinned(16).value();
  EXPECT_TRUE(std::ranges::all_of(pinned.bytes(), [](std::byte b) { return b == std::byte{0}; }));
  std::memcpy(pinned.data(), "warp", 4);
  ASSERT_TRUE(stream_->copy(buffer.data() + 8, pinned.data(), 4).ok());
  ASSERT_TRUE(stream_->copy(buffer.data() + 32, buffer.data() + 8, 4).ok());
  ASSERT_TRUE(stream_->zero(buffer.data() + 8, 2).ok());
  ASSERT_TRUE(stream_->fill(buffer.data() + 11, std::byte{'m'}, 3).ok());
  ASSERT_TRUE(stream_->copy(pinned.data() + 8, buffer.data() + 32, 4).ok());
  ASSERT_TRUE(stream_->copy(buffer.data(), pinned.data(), 0).ok());
  ASSERT_TRUE(stream_->synchronize().ok());
  EXPECT_EQ(std::memcmp(pinned.data() + 8, "warp", 4), 0);
  EXPECT_EQ(read(buffer.data() + 8, 7), (std::vector<char>{0, 0, 'r', 'm', 'm', 'm', 0}));
}

// Small copies and large ones, of whole words and with a rest, from any address.
TEST_P(DevicePromisesTest, SmallestCopiesKeepEveryByte) {
  constexpr int64_t kSize = 18 * 4096;
  const Buffer buffer = device_->allocate(kSize).value();
  const Buffer other = device_->allocate(kSize).value();
  const Buffer sent = device_->allocate_pinned(kSize).value();
  const Buffer back = device_->allocate_pinned(kSize).value();
  for (int64_t i = 0; i < kSize; ++i) sent.data()[i] = static_cast<std::byte>(i * 31 + i / 256);
  for (const int64_t size : {1, 15, 16, 100, 4095, 4096, 4097, 8000, 65536, 65537}) {
    for (const int64_t offset : {0, 1, 16}) {
      ASSERT_TRUE(stream_->zero(buffer.data(), kSize).ok());
      ASSERT_TRUE(stream_->copy(buffer.data() + offset, sent.data() + offset, size).ok());
      ASSERT_TRUE(stream_->copy(back.data(), buffer.data(), kSize).ok());
      ASSERT_TRUE(stream_->synchronize().ok());
      std::vector<std::byte> want(kSize);
      std::copy_n(sent.data() + offset, size, want.data() + offset);
      EXPECT_TRUE(std::ranges::equal(want, back.bytes())) << size << " bytes at " << offset;
      ASSERT_TRUE(stream_->zero(other.data(), kSize).ok());
      ASSERT_TRUE(stream_->copy(other.data() + offset, buffer.data() + offset, size).ok());
      ASSERT_TRUE(stream_->copy(back.data(), other.data(), kSize).ok());
      ASSERT_TRUE(stream_->synchronize().ok());
      EXPECT_TRUE(std::ranges::equal(want, back.bytes())) << size << " bytes within, at " << offset;
      ASSERT_TRUE(stream_->copy(back.data() + offset, buffer.data() + offset, size).ok());
      ASSERT_TRUE(stream_->synchronize().ok());
      EXPECT_TRUE(std::ranges::equal(want, back.bytes())) << size << " bytes at " << offset;
    }
  }
}

TEST_P(DevicePromisesTest, DiscardsWholeGranulesOnly) {
  const int64_t page = host_page_bytes();
  const Buffer buffer = device_->allocate(4 * page).value();
  const std::vector<char> sevens(static_cast<size_t>(4 * page), 7);
  ASSERT_TRUE(stream_->copy(buffer.data(), sevens.data(), 4 * page).ok());
  ASSERT_TRUE(stream_->discard(buffer.data() + page - 1, 2 * page).ok());
  ASSERT_TRUE(stream_->discard(buffer.data() + 1, page).ok());
  ASSERT_TRUE(stream_->discard(buffer.data(), 0).ok());
  const std::vector<char> bytes = read(buffer.data(), 4 * page);
  const auto at = [&](int64_t i) { return bytes[static_cast<size_t>(i)]; };
  EXPECT_EQ(at(0), 7);
  EXPECT_EQ(at(page - 1), 7);
  EXPECT_EQ(at(2 * page), 7) << "not a whole page of the range";
  if (device_->release_granule_bytes() == 0) {
    EXPECT_EQ(bytes, sevens) << "nothing goes back";
  } else {
    EXPECT_EQ(device_->release_granule_bytes(), page);
    EXPECT_EQ(at(page), 0) << "taken back, and read anew";
    EXPECT_EQ(at(2 * page - 1), 0);
  }
}

TEST_P(DevicePromisesTest, EventsAreUsedAgainAndMeasureTime) {
  const std::unique_ptr<Event> start = device_->create_event().value();
  const std::unique_ptr<Event> end = device_->create_event().value();
  EXPECT_TRUE(start->reached().value()) << "never recorded";
  ASSERT_TRUE(start->wait().ok());
  const Buffer buffer = device_->allocate(1 << 20).value();
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(stream_->record(*start).ok());
    ASSERT_TRUE(stream_->zero(buffer.data(), 1 << 20).ok());
    ASSERT_TRUE(stream_->record(*end).ok());
    ASSERT_TRUE(end->wait().ok());
    EXPECT_TRUE(end->reached().value());
    EXPECT_GE(end->seconds_since(*start).value(), 0.0);
  }
}

TEST_P(DevicePromisesTest, AStreamWaitsForAnEventOfAnother) {
  const std::unique_ptr<Stream> other = device_->create_stream().value();
  const std::unique_ptr<Event> written = device_->create_event().value();
  const int64_t size = 32 << 20;
  const Buffer a = device_->allocate(size).value();
  const Buffer b = device_->allocate(size).value();
  const Buffer pinned = device_->allocate_pinned(size).value();
  for (int round = 1; round <= 4; ++round) {
    std::ranges::fill(pinned.bytes(), std::byte(round));
    ASSERT_TRUE(stream_->copy(a.data(), pinned.data(), size).ok());
    ASSERT_TRUE(stream_->record(*written).ok());
    ASSERT_TRUE(other->wait_for(*written).ok());
    ASSERT_TRUE(other->copy(b.data(), a.data(), size).ok());
    ASSERT_TRUE(other->synchronize().ok());
    EXPECT_EQ(read(b.data() + size - 1, 1)[0], round);
  }
}

TEST_P(DevicePromisesTest, CapturedWorkIsDoneAtEachLaunch) {
  const Buffer buffer = device_->allocate(512).value();
  if (!device_->can_capture()) {
    EXPECT_EQ(stream_->begin_capture().code(), StatusCode::kUnimplemented);
    EXPECT_EQ(stream_->end_capture().status().code(), StatusCode::kUnimplemented);
    return;
  }
  const std::vector<char> text(256, 'x');
  ASSERT_TRUE(stream_->copy(buffer.data(), text.data(), 256).ok());
  ASSERT_TRUE(stream_->synchronize().ok());
  ASSERT_TRUE(stream_->begin_capture().ok());
  ASSERT_TRUE(stream_->copy(buffer.data() + 256, buffer.data(), 256).ok());
  ASSERT_TRUE(stream_->zero(buffer.data(), 16).ok());
  const std::unique_ptr<CapturedWork> work = std::move(stream_->end_capture()).value();
  EXPECT_EQ(read(buffer.data() + 256, 1)[0], 0) << "recorded, not done";
  ASSERT_TRUE(stream_->launch(*work).ok());
  EXPECT_EQ(read(buffer.data() + 256, 1)[0], 'x');
  ASSERT_TRUE(stream_->launch(*work).ok());
  EXPECT_EQ(read(buffer.data() + 256, 1)[0], 0) << "done again, with what the first time left";
}

TEST_P(DevicePromisesTest, IsOfTheThreadThatMakesItCurrent) {
  std::thread thread([&] {
    ASSERT_TRUE(device_->make_current().ok());
    const std::unique_ptr<Stream> own = device_->create_stream().value();
    const Buffer buffer = device_->allocate(64).value();
    EXPECT_TRUE(own->zero(buffer.data(), 64).ok());
    EXPECT_TRUE(own->synchronize().ok());
  });
  thread.join();
  EXPECT_GT(device_->available_memory_bytes(), 0);
  EXPECT_FALSE(device_->name().empty());
}

TEST(DeviceTest, RefusesEventsOfAnotherDevice) {
  class ForeignEvent final : public Event {
   public:
    Result<bool> reached() const override { return true; }

    Status wait() const override { return {}; }

    Result<double> seconds_since(const Event&) const override { return 0.0; }
  };

  CpuDevice cpu(1);
  ForeignEvent foreign;
  const std::unique_ptr<Stream> stream = cpu.create_stream().value();
  const std::unique_ptr<Event> event = cpu.create_event().value();
  EXPECT_EQ(stream->record(foreign).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(event->seconds_since(foreign).status().code(), StatusCode::kInvalidArgument);
}

TEST(DeviceTest, NamesAGpuThatIsNotThere) {
  const Result<int> count = num_cuda_devices();
  const auto opened = open_cuda_device(count.ok() ? *count : 0);
  ASSERT_FALSE(opened.ok());
  EXPECT_FALSE(opened.status().message().empty());
  if (count.ok() && *count > 0) {
    EXPECT_EQ(opened.status().code(), StatusCode::kNotFound);
  }
}

}  // namespace
}  // namespace heddle::device
