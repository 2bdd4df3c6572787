// SPDX-License-Identifier: Apache-2.0
// CudaDevice: one NVIDIA GPU of compute capability 8.0 or later, used through the CUDA runtime.
//
// The header uses no CUDA type except CUstream_st, so that C++ sources compile the same with and
// without CUDA. A build without CUDA links without_cuda.cpp, whose open_cuda_device() returns an
// error.
//
// Errors: kDeviceLost for every failure of the device, with the call that noticed it. Launches are
// asynchronous, so an earlier call may be the cause. The device cannot be used afterwards.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

struct CUstream_st;

namespace heddle::device {

struct CudaProperties {
  std::string name;  // for example "NVIDIA H200"
  int index = 0;     // the driver's number of the device
  int major = 0;     // compute capability, major part
  int minor = 0;     // compute capability, minor part
  int num_multiprocessors = 0;
  int64_t shared_bytes = 0;  // most shared memory that a block can request, in bytes
  int64_t memory_bytes = 0;
  int driver_version = 0;  // for example 13000 for CUDA 13.0

  // The kernels of this program that run on this device were compiled for compute capability 9.0 or
  // later, and can wait for the kernel before them (ops/cuda/launch.cuh).
  bool kernels_start_early = false;
};

class CudaDevice : public Device {
 public:
  [[nodiscard]] DeviceKind kind() const final { return DeviceKind::kCuda; }

  [[nodiscard]] virtual const CudaProperties& properties() const = 0;
};

// A stream on which kernels are launched.
class CudaStream : public Stream {
 public:
  [[nodiscard]] virtual CUstream_st* handle() const = 0;
};

// Number of GPUs that the driver offers. Errors: kUnavailable if there is no driver or it returns
// an error, kUnimplemented in a build without CUDA.
Result<int> num_cuda_devices();

// Errors: those of num_cuda_devices(); kNotFound for an index that is too large; kUnavailable for a
// GPU older than compute capability 8.0. Cost: creates the context of the device, some 100 to 300
// ms.
Result<std::unique_ptr<CudaDevice>> open_cuda_device(int index);

// `stream` must come from create_stream() of a CudaDevice.
[[nodiscard]] inline CudaStream& as_cuda(Stream& stream) {
  return static_cast<CudaStream&>(stream);
}

}  // namespace heddle::device
