// SPDX-License-Identifier: Apache-2.0
#include "runner/program/compute_device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "device/cpu_topology.h"
#include "device/cuda/cuda_device.h"

namespace heddle::runner {

int threads_of_rank(int num_threads, int64_t num_ranks) {
  if (num_ranks == 1) return num_threads;
  const int all = num_threads > 0 ? num_threads : device::num_physical_cores();
  return std::max(1, all / static_cast<int>(num_ranks));
}

Result<std::unique_ptr<ComputeDevice>> ComputeDevice::open_cpu(int num_threads, bool exact,
                                                               int first_thread) {
  std::vector<int> cpus;
  if (first_thread > 0) {
    cpus = device::cpu_group(device::spread_over_cores(device::allowed_cpus()), first_thread,
                             num_threads);
  }
  const device::CpuScope scope(cpus);  // the pool's threads are created on the rank's CPUs
  std::unique_ptr<ComputeDevice> compute(new ComputeDevice());
  auto cpu = std::make_unique<device::CpuDevice>(num_threads);
  compute->pool_ = &cpu->pool();
  HEDDLE_ASSIGN_OR_RETURN(compute->stream_, cpu->create_stream());
  compute->context_ = std::make_unique<ops::CpuContext>(cpu->pool(), exact);
  compute->device_ = std::move(cpu);
  return compute;
}

Result<std::unique_ptr<ComputeDevice>> ComputeDevice::open_cuda(int index, bool exact) {
  std::unique_ptr<ComputeDevice> compute(new ComputeDevice());
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<device::CudaDevice> gpu, device::open_cuda_device(index));
  HEDDLE_RETURN_IF_ERROR(gpu->make_current());
  HEDDLE_ASSIGN_OR_RETURN(compute->stream_, gpu->create_stream());
  if (!exact) {
    HEDDLE_ASSIGN_OR_RETURN(compute->products_, ops::DenseProducts::create(*gpu));
  }
  compute->context_ = std::make_unique<ops::CudaContext>(*gpu, device::as_cuda(*compute->stream_),
                                                         compute->products_.get(), exact);
  compute->device_ = std::move(gpu);
  return compute;
}

}  // namespace heddle::runner
