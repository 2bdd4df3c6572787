// SPDX-License-Identifier: Apache-2.0
// CudaBenchmark: one op at one shape on a GPU, timed with events around a captured graph, so that
// the host's launch time is not counted.
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
  std::string shape;  // shape for the report, as in "8 sequences of 1024, ..."
  double bytes = 0;   // least bytes that must be read from or written to memory
  double flops = 0;
  // Enqueues the op once, with a different piece of memory each time if the op would otherwise find
  // its data in a cache. The first call allocates memory; the destructor frees it.
  std::function<Status()> run;
};

// The benchmarks whose name contains `filter`; all if it is empty.
std::vector<CudaBenchmark> cuda_benchmarks(CudaContext& context, std::string_view filter);

// Captures `runs` runs as one graph and launches it ten times after two warm-up launches; returns
// the median.
Result<Measurement> measure_cuda(CudaContext& context, const CudaBenchmark& benchmark,
                                 int runs = 8);

// Bandwidth of a large copy on the device in GB/s; bytes read and bytes written are both counted.
// Cost: 2 GiB for some milliseconds.
Result<double> measure_cuda_copy(CudaContext& context);

}  // namespace heddle::ops
