// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "core/check.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_status.h"

namespace heddle::device {

Status cuda_status(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  return device_lost(std::string(call) + ": " + cudaGetErrorString(error));
}

namespace {

class DeviceMemory final : public Buffer::Owner {
 public:
  explicit DeviceMemory(void* data) : data_(data) {}

  ~DeviceMemory() override { cudaFree(data_); }

 private:
  void* data_;
};

class PinnedMemory final : public Buffer::Owner {
 public:
  explicit PinnedMemory(void* data) : data_(data) {}

  ~PinnedMemory() override { cudaFreeHost(data_); }

 private:
  void* data_;
};

class RuntimeEvent final : public Event {
 public:
  explicit RuntimeEvent(cudaEvent_t event) : event_(event) {}

  ~RuntimeEvent() override { cudaEventDestroy(event_); }

  [[nodiscard]] cudaEvent_t handle() const { return event_; }

  Result<bool> reached() const override {
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) return false;
    HEDDLE_RETURN_IF_ERROR(cuda_status(error, "cudaEventQuery"));
    return true;
  }

  Status wait() const override {
    return cuda_status(cudaEventSynchronize(event_), "cudaEventSynchronize");
  }

  Result<double> seconds_since(const Event& earlier) const override {
    const auto* start = dynamic_cast<const RuntimeEvent*>(&earlier);
    if (start == nullptr) return invalid_argument("the earlier event is another device's");
    float milliseconds = 0;
    HEDDLE_RETURN_IF_ERROR(cuda_status(cudaEventElapsedTime(&milliseconds, start->event_, event_),
                                       "cudaEventElapsedTime"));
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t event_;
};

class RuntimeGraph final : public CapturedWork {
 public:
  explicit RuntimeGraph(cudaGraphExec_t graph) : graph_(graph) {}

  ~RuntimeGraph() override { cudaGraphExecDestroy(graph_); }

  [[nodiscard]] cudaGraphExec_t handle() const { return graph_; }

 private:
  cudaGraphExec_t graph_;
};

// Most bytes that a kernel copies faster than a copy engine, between pinned host memory and the GPU
// and within either. A copy engine starts some 4 us after the previous kernel, and the next kernel
// as long after the copy.
constexpr int64_t kMostAcrossByKernel = 4 << 10;
constexpr int64_t kMostWithinByKernel = 64 << 10;
constexpr int kCopyThreads = 256;

// Is launched early if kernels can be (ops/cuda/launch.cuh), like all others, and copies when all
// work before it has ended.
__global__ void __launch_bounds__(kCopyThreads)
    copy_kernel(std::byte* to, const std::byte* from, int num_bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  const int thread = static_cast<int>(blockIdx.x * kCopyThreads + threadIdx.x);
  const int num_threads = static_cast<int>(gridDim.x) * kCopyThreads;
  int copied = 0;
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % sizeof(uint4) == 0) {
    const int words = num_bytes / static_cast<int>(sizeof(uint4));
    for (int i = thread; i < words; i += num_threads) {
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
    copied = words * static_cast<int>(sizeof(uint4));
  }
  for (int i = copied + thread; i < num_bytes; i += num_threads) to[i] = from[i];
}

cudaMemoryType memory_type(const void* at) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, at) != cudaSuccess) cudaGetLastError();
  return attributes.type;
}

// Most bytes that a kernel may copy between these addresses; 0 for pageable memory. The GPU must be
// the current one of the thread.
int64_t most_by_kernel(const void* to, const void* from) {
  const cudaMemoryType a = memory_type(to), b = memory_type(from);
  if (a == cudaMemoryTypeDevice && b == cudaMemoryTypeDevice) return kMostWithinByKernel;
  const bool crosses = (a == cudaMemoryTypeHost && b == cudaMemoryTypeDevice) ||
                       (a == cudaMemoryTypeDevice && b == cudaMemoryTypeHost);
  return crosses ? kMostAcrossByKernel : 0;
}

class RuntimeStream final : public CudaStream {
 public:
  RuntimeStream(cudaStream_t stream, bool kernels_start_early)
      : stream_(stream), kernels_start_early_(kernels_start_early) {}

  ~RuntimeStream() override { cudaStreamDestroy(stream_); }

  [[nodiscard]] CUstream_st* handle() const override { return stream_; }

  Status copy(void* to, const void* from, int64_t num_bytes) override {
    if (num_bytes <= 0) return {};
    if (num_bytes <= kMostWithinByKernel && num_bytes <= most_by_kernel(to, from)) {
      const int64_t threads = (num_bytes + 15) / 16;
      const auto blocks = static_cast<unsigned>((threads + kCopyThreads - 1) / kCopyThreads);
      cudaLaunchAttribute early{};
      early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      early.val.programmaticStreamSerializationAllowed = 1;
      const cudaLaunchConfig_t config{.gridDim = dim3(blocks),
                                      .blockDim = dim3(kCopyThreads),
                                      .stream = stream_,
                                      .attrs = &early,
                                      .numAttrs = kernels_start_early_ ? 1u : 0u};
      return cuda_status(
          cudaLaunchKernelEx(&config, copy_kernel, static_cast<std::byte*>(to),
                             static_cast<const std::byte*>(from), static_cast<int>(num_bytes)),
          "copy");
    }
    return cuda_status(
        cudaMemcpyAsync(to, from, static_cast<size_t>(num_bytes), cudaMemcpyDefault, stream_),
        "cudaMemcpyAsync");
  }

  Status fill(void* to, std::byte value, int64_t num_bytes) override {
    if (num_bytes <= 0) return {};
    return cuda_status(
        cudaMemsetAsync(to, std::to_integer<int>(value), static_cast<size_t>(num_bytes), stream_),
        "cudaMemsetAsync");
  }

  Status discard(void*, int64_t) override { return {}; }  // no effect: release_granule_bytes() is 0

  Status record(Event& event) override {
    auto* recorded = dynamic_cast<RuntimeEvent*>(&event);
    if (recorded == nullptr) return invalid_argument("the event to record is another device's");
    return cuda_status(cudaEventRecord(recorded->handle(), stream_), "cudaEventRecord");
  }

  Status wait_for(const Event& event) override {
    const auto* recorded = dynamic_cast<const RuntimeEvent*>(&event);
    if (recorded == nullptr) return invalid_argument("the event to wait for is another device's");
    return cuda_status(cudaStreamWaitEvent(stream_, recorded->handle()), "cudaStreamWaitEvent");
  }

  Status synchronize() override {
    return cuda_status(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

  [[nodiscard]] Result<bool> is_idle() override {
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state == cudaErrorNotReady) return false;
    HEDDLE_RETURN_IF_ERROR(cuda_status(state, "cudaStreamQuery"));
    return true;
  }

  Status begin_capture() override {
    return cuda_status(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                       "cudaStreamBeginCapture");
  }

  Result<std::unique_ptr<CapturedWork>> end_capture() override {
    cudaGraph_t graph = nullptr;
    HEDDLE_RETURN_IF_ERROR(
        cuda_status(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture"));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    HEDDLE_RETURN_IF_ERROR(cuda_status(error, "cudaGraphInstantiate"));
    auto work = std::make_unique<RuntimeGraph>(executable);
    HEDDLE_RETURN_IF_ERROR(cuda_status(cudaGraphUpload(executable, stream_), "cudaGraphUpload"));
    return std::unique_ptr<CapturedWork>(std::move(work));
  }

  Status launch(const CapturedWork& work) override {
    const auto* graph = dynamic_cast<const RuntimeGraph*>(&work);
    if (graph == nullptr) return invalid_argument("the captured work is another device's");
    return cuda_status(cudaGraphLaunch(graph->handle(), stream_), "cudaGraphLaunch");
  }

 private:
  cudaStream_t stream_;
  bool kernels_start_early_;
};

class RuntimeDevice final : public CudaDevice {
 public:
  explicit RuntimeDevice(CudaProperties properties) : properties_(std::move(properties)) {}

  [[nodiscard]] const CudaProperties& properties() const override { return properties_; }

  [[nodiscard]] std::string name() const override {
    return "cuda:" + std::to_string(properties_.index) + ", " + properties_.name;
  }

  [[nodiscard]] bool can_capture() const override { return true; }

  [[nodiscard]] int64_t available_memory_bytes() const override {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) return 0;
    return static_cast<int64_t>(free_bytes);
  }

  [[nodiscard]] int64_t total_memory_bytes() const override {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) return 0;
    return static_cast<int64_t>(total_bytes);
  }

  [[nodiscard]] int64_t release_granule_bytes() const override { return 0; }

  Status make_current() override {
    return cuda_status(cudaSetDevice(properties_.index), "cudaSetDevice");
  }

  Result<Buffer> allocate(int64_t num_bytes) override {
    if (num_bytes == 0) return Buffer();
    if (num_bytes < 0) return negative_size(num_bytes);
    void* data = nullptr;
    HEDDLE_RETURN_IF_ERROR(allocated(cudaMalloc(&data, static_cast<size_t>(num_bytes)),
                                     "cudaMalloc", num_bytes, "of the GPU"));
    auto owner = std::make_unique<DeviceMemory>(data);
    HEDDLE_RETURN_IF_ERROR(
        cuda_status(cudaMemset(data, 0, static_cast<size_t>(num_bytes)), "cudaMemset"));
    // cudaMemset may return before the memory is written, and the streams here do not wait for it.
    HEDDLE_RETURN_IF_ERROR(cuda_status(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"));
    return Buffer(std::move(owner), static_cast<std::byte*>(data), num_bytes);
  }

  Result<Buffer> allocate_pinned(int64_t num_bytes) override {
    if (num_bytes == 0) return Buffer();
    if (num_bytes < 0) return negative_size(num_bytes);
    void* data = nullptr;
    HEDDLE_RETURN_IF_ERROR(allocated(cudaMallocHost(&data, static_cast<size_t>(num_bytes)),
                                     "cudaMallocHost", num_bytes, "pinned on the host"));
    auto owner = std::make_unique<PinnedMemory>(data);
    std::memset(data, 0, static_cast<size_t>(num_bytes));
    return Buffer(std::move(owner), static_cast<std::byte*>(data), num_bytes);
  }

  Result<std::unique_ptr<Stream>> create_stream() override {
    cudaStream_t stream = nullptr;
    HEDDLE_RETURN_IF_ERROR(cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                       "cudaStreamCreateWithFlags"));
    return std::unique_ptr<Stream>(
        std::make_unique<RuntimeStream>(stream, properties_.kernels_start_early));
  }

  Result<std::unique_ptr<Event>> create_event() override {
    cudaEvent_t event = nullptr;
    HEDDLE_RETURN_IF_ERROR(cuda_status(cudaEventCreateWithFlags(&event, cudaEventBlockingSync),
                                       "cudaEventCreateWithFlags"));
    return std::unique_ptr<Event>(std::make_unique<RuntimeEvent>(event));
  }

 private:
  static Status negative_size(int64_t num_bytes) {
    return invalid_argument("a buffer of " + std::to_string(num_bytes) + " bytes");
  }

  static Status allocated(cudaError_t error, const char* call, int64_t num_bytes,
                          const char* where) {
    if (error != cudaErrorMemoryAllocation && error != cudaErrorInvalidValue) {
      return cuda_status(error, call);
    }
    // Clears the error, so that later calls do not report it. The device did not fail.
    cudaGetLastError();
    char size[32];
    std::snprintf(size, sizeof size, "%.1f", static_cast<double>(num_bytes) / (1 << 20));
    return resource_exhausted(std::string("no memory for a buffer of ") + size + " MiB " + where);
  }

  CudaProperties properties_;
};

}  // namespace

Result<int> num_cuda_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice) return 0;
  if (error != cudaSuccess) {
    cudaGetLastError();
    return unavailable(std::string("the CUDA driver does not answer: ") +
                       cudaGetErrorString(error));
  }
  return count;
}

Result<std::unique_ptr<CudaDevice>> open_cuda_device(int index) {
  HEDDLE_ASSIGN_OR_RETURN(const int count, num_cuda_devices());
  if (count == 0) return unavailable("the CUDA driver finds no GPU");
  if (index < 0 || index >= count) {
    return not_found("cuda:" + std::to_string(index) + " is not there; the driver finds " +
                     std::to_string(count) + " GPUs, from cuda:0 on");
  }
  cudaDeviceProp device;
  HEDDLE_RETURN_IF_ERROR(
      cuda_status(cudaGetDeviceProperties(&device, index), "cudaGetDeviceProperties"));
  if (device.major < 8) {
    return unavailable("cuda:" + std::to_string(index) + ", " + device.name +
                       ", has compute capability " + std::to_string(device.major) + "." +
                       std::to_string(device.minor) + "; 8.0 is needed");
  }
  CudaProperties properties{.name = device.name,
                            .index = index,
                            .major = device.major,
                            .minor = device.minor,
                            .num_multiprocessors = device.multiProcessorCount,
                            .shared_bytes = static_cast<int64_t>(device.sharedMemPerBlockOptin),
                            .memory_bytes = static_cast<int64_t>(device.totalGlobalMem)};
  HEDDLE_RETURN_IF_ERROR(
      cuda_status(cudaDriverGetVersion(&properties.driver_version), "cudaDriverGetVersion"));
  HEDDLE_RETURN_IF_ERROR(cuda_status(cudaSetDevice(index), "cudaSetDevice"));
  // Any kernel serves: all have the same ptxVersion.
  cudaFuncAttributes code;
  HEDDLE_RETURN_IF_ERROR(
      cuda_status(cudaFuncGetAttributes(&code, copy_kernel), "cudaFuncGetAttributes"));
  properties.kernels_start_early = code.ptxVersion >= 90;
  auto opened = std::make_unique<RuntimeDevice>(std::move(properties));
  HEDDLE_RETURN_IF_ERROR(opened->make_current());
  return std::unique_ptr<CudaDevice>(std::move(opened));
}

}  // namespace heddle::device
