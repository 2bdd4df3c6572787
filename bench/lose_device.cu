// SPDX-License-Identifier: Apache-2.0
// Takes the GPU away from a process that works on it: when the file named by LOSE_DEVICE_WHEN
// appears, a kernel that traps runs in the process's context on device 0. From then on every call
// fails there, as after a fault in a kernel of its own. A library that the driver loads into the
// process, not a part of it; lost_device.py does this to a server:
//
//   CUDA_INJECTION64_PATH=$PWD/build/cuda/lose_device.so LOSE_DEVICE_WHEN=/tmp/now
//       heddle serve ... --device cuda
//   touch /tmp/now
//
// It has a CUDA runtime of its own, which shares the device's primary context with the process.
//
// Threading: a thread of its own, which calls CUDA only once the file is there. The stream waits
//            for no other, so graphs may be captured meanwhile.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <cuda_runtime_api.h>
#include <unistd.h>

namespace {

constexpr std::chrono::milliseconds kBetweenLooks{1};

__global__ void __launch_bounds__(1) trap() { __trap(); }

cudaError_t launch_trap() {
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaSetDevice(0);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return error;
  trap<<<1, 1, 0, stream>>>();
  return cudaGetLastError();
}

void wait_and_trap(const char* file) {
  while (access(file, F_OK) != 0) std::this_thread::sleep_for(kBetweenLooks);
  const cudaError_t error = launch_trap();
  std::fprintf(stderr, "lose_device: launched a kernel that traps: %s\n",
               cudaGetErrorString(error));
}

}  // namespace

// The driver calls it when it is loaded.
extern "C" int InitializeInjection() {
  const char* const file = std::getenv("LOSE_DEVICE_WHEN");
  if (file == nullptr) {
    std::fputs("lose_device: LOSE_DEVICE_WHEN names no file\n", stderr);
  } else {
    std::thread(wait_and_trap, file).detach();
  }
  return 1;
}
