// SPDX-License-Identifier: Apache-2.0
// DeviceTest: runs the body of a test of ops once on every kind of device. Tensors are made on the
// host, uploaded, computed with, downloaded and compared on the host:
//
//   class RmsNormTest : public DeviceTest {};
//   HEDDLE_ON_EVERY_DEVICE(RmsNormTest);
//
//   TEST_P(RmsNormTest, MatchesTheReference) {
//     const DeviceTensor x = upload(random_tensor({3, 7}, DType::kF32, 1));
//     DeviceTensor y = poisoned({3, 7}, DType::kF32);
//     ASSERT_TRUE(rms_norm(context(), {.x = x.view(), .y = y.view()}).ok());
//     EXPECT_LT(relative_error(download(y).view(), want), 1e-6);
//   }
//
// Suites are called Cpu/RmsNormTest and Cuda/RmsNormTest; the latter skip where there is no GPU.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "device/cuda/cuda_device.h"
#include "device/thread_pool.h"
#include "ops/context.h"
#include "ops/device_batch.h"
#include "ops/gemm/dense_products.h"
#include "ops/pool_lists.h"
#include "quant/packed_rows.h"
#include "support/tensors.h"

namespace heddle::ops {

// A tensor in memory of the test's device.
class DeviceTensor {
 public:
  DeviceTensor() = default;

  DeviceTensor(device::Buffer buffer, DType dtype, const Shape& shape)
      : buffer_(std::move(buffer)), dtype_(dtype), shape_(shape) {}

  [[nodiscard]] MutableTensorView view() { return {buffer_.data(), dtype_, shape_}; }

  [[nodiscard]] TensorView view() const { return {buffer_.data(), dtype_, shape_}; }

  [[nodiscard]] device::Buffer release() { return std::move(buffer_); }

  [[nodiscard]] const Shape& shape() const { return shape_; }

  [[nodiscard]] DType dtype() const { return dtype_; }

 private:
  device::Buffer buffer_;
  DType dtype_ = DType::kF32;
  Shape shape_;
};

// A quantised weight in memory of the test's device.
class DevicePacked {
 public:
  explicit DevicePacked(const quant::PackedWeight& host)
      : weight_(std::make_unique<quant::PackedWeight>(host)) {}

  [[nodiscard]] TensorView view(const Shape& shape) const {
    TensorView view(nullptr, DType::kPacked, shape);
    view.packed = weight_.get();
    return view;
  }

 private:
  friend class DeviceTest;

  std::unique_ptr<quant::PackedWeight> weight_;
  std::vector<device::Buffer> buffers_;
};

class DeviceTest : public ::testing::TestWithParam<device::DeviceKind> {
 protected:
  void SetUp() override {
    if (GetParam() == device::DeviceKind::kCuda) {
      auto opened = device::open_cuda_device(0);
      if (!opened.ok()) GTEST_SKIP() << opened.status().message();
      gpu_ = std::move(opened).value();
      stream_ = gpu_->create_stream().value();
      auto products = DenseProducts::create(*gpu_);
      ASSERT_TRUE(products.ok()) << products.status().message();
      products_ = std::move(products).value();
      for (const bool exact : {false, true}) {
        contexts_.push_back(std::make_unique<CudaContext>(*gpu_, device::as_cuda(*stream_),
                                                          products_.get(), exact));
      }
    } else {
      cpu_ = std::make_unique<device::CpuDevice>(2);
      stream_ = cpu_->create_stream().value();
      for (const bool exact : {false, true}) {
        contexts_.push_back(std::make_unique<CpuContext>(cpu_->pool(), exact));
      }
    }
  }

  [[nodiscard]] bool on_cuda() const { return gpu_ != nullptr; }

  [[nodiscard]] device::Device& device() {
    return gpu_ != nullptr ? static_cast<device::Device&>(*gpu_) : *cpu_;
  }

  [[nodiscard]] device::Stream& stream() { return *stream_; }

  // The context of the device, in exact mode or not.
  [[nodiscard]] Context& context(bool exact = false) { return *contexts_[exact ? 1 : 0]; }

  // A context with `num_threads` threads, if the device is the CPU. Valid until the next call.
  [[nodiscard]] Context& context_on(int num_threads, bool exact) {
    if (on_cuda()) return context(exact);
    pool_ = std::make_unique<device::ThreadPool>(num_threads);
    threaded_context_ = std::make_unique<CpuContext>(*pool_, exact);
    return *threaded_context_;
  }

  // The dtypes that activations have on this device.
  [[nodiscard]] std::vector<DType> activation_dtypes() const {
    if (!on_cuda()) return {DType::kF32};
    return {DType::kF32, DType::kBf16, DType::kF16};
  }

  // The error of one rounding of an activation, relative to it: the tolerance of ops that round
  // their results is this plus that of their sums.
  [[nodiscard]] static double rounding_of(DType dtype) {
    switch (dtype) {
      case DType::kBf16:
        return 0x1p-8;
      case DType::kF16:
        return 0x1p-11;
      default:
        return 0x1p-24;
    }
  }

  [[nodiscard]] DeviceTensor upload(const Tensor& tensor) { return upload(tensor.view()); }

  [[nodiscard]] DeviceTensor upload(const TensorView& dense) {
    device::Buffer buffer = device().allocate(dense.num_bytes()).value();
    EXPECT_TRUE(stream_->copy(buffer.data(), dense.data, dense.num_bytes()).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
    return {std::move(buffer), dense.dtype, dense.shape};
  }

  [[nodiscard]] DevicePacked upload(const quant::PackedWeight& weight) {
    DevicePacked here(weight);
    here.weight_->on_gpu = on_cuda();
    const auto put = [&](const void* data, int64_t num_bytes) {
      const TensorView bytes(data, DType::kU8, Shape{num_bytes});
      here.buffers_.push_back(upload(bytes).release());
      return here.buffers_.back().data();
    };
    for (quant::PackedWeight::Part& part : here.weight_->parts) {
      if (part.plain.data != nullptr) {
        part.plain.data = put(part.plain.data, part.plain.num_bytes());
        continue;
      }
      quant::PackedRows& rows = part.packed;
      const quant::RowFormat& format = rows.format;
      rows.codes = put(rows.codes, rows.num_rows * format.code_bytes());
      rows.scales = put(rows.scales, rows.num_scale_rows() * format.scale_bytes());
      if (rows.zeros != nullptr) {
        rows.zeros =
            reinterpret_cast<uint8_t*>(put(rows.zeros, rows.num_rows * format.num_groups()));
      }
      if (format.group_index != nullptr) {
        rows.gpu_group_index = reinterpret_cast<const int32_t*>(
            put(format.group_index->data(), bytes_of(DType::kI32, format.K)));
      }
    }
    return here;
  }

  // Fills with 0xff, so that an element that an op does not write is NaN.
  [[nodiscard]] DeviceTensor poisoned(const Shape& shape, DType dtype) {
    Tensor tensor(shape, dtype);
    testing::poison(tensor);
    return upload(tensor);
  }

  // Waits for the stream: an error of a kernel fails the test here.
  [[nodiscard]] Tensor download(const DeviceTensor& tensor) {
    Tensor host(tensor.shape(), tensor.dtype());
    EXPECT_TRUE(stream_->copy(host.view().data, tensor.view().data, host.num_bytes()).ok());
    const Status status = stream_->synchronize();
    EXPECT_TRUE(status.ok()) << status.message();
    return host;
  }

  // A list or a table of layers, with its copy on the device. The copy lives as long as the test,
  // `host` must live as long as the span is used.
  template <typename Element>
  [[nodiscard]] MirroredSpan<Element> mirrored(const std::vector<Element>& host) {
    if (!on_cuda() || host.empty()) return {.host = host};
    const auto num_bytes = static_cast<int64_t>(host.size() * sizeof(Element));
    arrays_.push_back(device().allocate(num_bytes).value());
    EXPECT_TRUE(stream_->copy(arrays_.back().data(), host.data(), num_bytes).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
    return {.host = host, .device = reinterpret_cast<const Element*>(arrays_.back().data())};
  }

  // Scratch of the device.
  [[nodiscard]] device::Buffer workspace(int64_t num_bytes) {
    return device().allocate(num_bytes).value();
  }

  // Lets launchers of the device find the arrays of `forward`; the spans stay the host's. Valid
  // until the next call.
  void upload_batch(ForwardContext& forward) {
    if (!on_cuda()) return;
    const int64_t rows = forward.query_start.back();
    ASSERT_TRUE(stream_->synchronize().ok()) << "launches that read the batch before are done";
    batch_ = std::make_unique<DeviceBatchUpload>(
        DeviceBatchUpload::create(
            device(), {.max_rows = rows,
                       .max_sequences = forward.num_sequences(),
                       .max_pages_per_sequence = DeviceBatchUpload::width_of(forward),
                       .num_page_tables = std::max<size_t>(forward.num_page_tables(), 1),
                       .max_snapshots = static_cast<int64_t>(forward.snapshots.size()),
                       .max_logit_rows = static_cast<int64_t>(forward.logit_rows.size())})
            .value());
    const std::vector<int32_t> zeros(static_cast<size_t>(rows));
    const Status status = batch_->upload(context(), *stream_, zeros, zeros, forward);
    ASSERT_TRUE(status.ok()) << status.message();
  }

 private:
  std::unique_ptr<device::CpuDevice> cpu_;
  std::unique_ptr<device::ThreadPool> pool_;
  std::unique_ptr<CpuContext> threaded_context_;
  std::unique_ptr<device::CudaDevice> gpu_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<DenseProducts> products_;
  std::vector<std::unique_ptr<Context>> contexts_;
  std::unique_ptr<DeviceBatchUpload> batch_;
  std::vector<device::Buffer> arrays_;
};

#define HEDDLE_ON_EVERY_DEVICE(Suite)                                                          \
  INSTANTIATE_TEST_SUITE_P(Cpu, Suite, ::testing::Values(::heddle::device::DeviceKind::kCpu)); \
  INSTANTIATE_TEST_SUITE_P(Cuda, Suite, ::testing::Values(::heddle::device::DeviceKind::kCuda))

}  // namespace heddle::ops
