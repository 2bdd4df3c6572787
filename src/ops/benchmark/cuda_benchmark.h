// SPDX-License-Identifier: Apache-2.0
// CudaBenchmark: one op at one shape on a GPU, timed with events around a captured graph, so that
// what the host takes to launch is left out.
//
// Threading: on the thread that made the device current, while nothing else uses the GPU.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "ops/benchmark/op_benchmark.h"
#include "ops/context.h"

namespace heddle::ops {

struct CudaBenchmark {
  std::string name;   // name of the op
  std::string shape;  // "8 sequences of 1024, ..."
  double bytes = 0;   // least bytes that must come from or go to memory
  double flops = 0;
  // Enqueues the op once, each time on other memory where it would find it in a cache. The first
  // call takes what memory it needs, destruction gives it back.
  std::function<Status()> run;
};

// The benchmarks whose name contains `filter`; all if it is empty.
std::vector<CudaBenchmark> cuda_benchmarks(CudaContext& context, std::string_view filter);

// Captures `runs` of it and launches them ten times, after two that warm up; the median counts.
Result<Measurement> measure_cuda(CudaContext& context, const CudaBenchmark& benchmark,
                                 int runs = 8);

// Read and written bytes of a large copy on the device, in GB/s. Cost: 2 GiB for some milliseconds.
Result<double> measure_cuda_copy(CudaContext& context);

}  // namespace heddle::ops
