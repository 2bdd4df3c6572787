// SPDX-License-Identifier: Apache-2.0
// CudaDevice: one NVIDIA GPU through the CUDA runtime, from compute capability 8.0 on.
//
// The header knows no CUDA type but CUstream_st, so that C++ sources compile the same with CUDA and
// without; a build without CUDA links without_cuda.cpp, whose open_cuda_device() says so.
//
// Errors: kDeviceLost for every failure of the device, with the call that noticed it: launches are
// asynchronous, so that the cause may lie in an earlier one. The device is not usable afterwards.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

struct CUstream_st;

namespace heddle::device {

struct CudaProperties {
  std::string name;  // "NVIDIA H200"
  int index = 0;     // the driver's number of the device
  int major = 0;     // compute capability
  int minor = 0;
  int num_multiprocessors = 0;
  int64_t shared_bytes = 0;  // shared memory that a block may have if it asks for it
  int64_t memory_bytes = 0;
  int driver_version = 0;  // 13000: CUDA 13.0

  // The kernels of this program that run here are made for compute capability 9.0 or later, and
  // know how to wait for the kernel before them (ops/cuda/launch.cuh).
  bool kernels_start_early = false;
};

class CudaDevice : public Device {
 public:
  [[nodiscard]] DeviceKind kind() const final { return DeviceKind::kCuda; }

  [[nodiscard]] virtual const CudaProperties& properties() const = 0;
};

// A stream that kernels are launched on.
class CudaStream : public Stream {
 public:
  [[nodiscard]] virtual CUstream_st* handle() const = 0;
};

// How many GPUs the driver offers. Errors: kUnavailable when there is no driver or it answers with
// an error, kUnimplemented in a build without CUDA.
Result<int> num_cuda_devices();

// Errors: as above; kNotFound for an index beyond num_cuda_devices(); kUnavailable for a GPU older
// than compute capability 8.0. Cost: creates the context of the device, some 100 to 300 ms.
Result<std::unique_ptr<CudaDevice>> open_cuda_device(int index);

// The stream that create_stream() of a CudaDevice made.
[[nodiscard]] inline CudaStream& as_cuda(Stream& stream) {
  return static_cast<CudaStream&>(stream);
}

}  // namespace heddle::device
