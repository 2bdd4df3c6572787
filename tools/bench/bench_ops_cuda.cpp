// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench_ops_cuda.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "device/cuda/cuda_device.h"
#include "ops/benchmark/cuda_benchmark.h"
#include "ops/gemm/dense_products.h"
#include "tools/cli/machine.h"
#include "tools/cli/table.h"
#include "tools/cli/value_range.h"

namespace heddle::tools {

namespace {

using nlohmann::ordered_json;

// Rate of large bf16 matrix products that Hopper sustains under its power limit, measured on an
// H200.
constexpr double kHopperBf16Gflops = 790e3;

Result<int> index_of(const std::string& device) {
  if (device == "cuda") return 0;
  constexpr std::string_view kPrefix = "cuda:";
  if (device.starts_with(kPrefix)) {
    const auto index = parse_number<int>(device.substr(kPrefix.size()), {.low = 0, .high = 1023});
    if (index.ok()) return *index;
  }
  return invalid_argument(fmt::format("--device {}: use cpu, cuda or cuda:N", device));
}

}  // namespace

Status run_ops_on_cuda(const std::string& device, const std::string& filter, bool exact,
                       const BenchOutput& output) {
  HEDDLE_RETURN_IF_ERROR(check_bench_output(output));
  HEDDLE_ASSIGN_OR_RETURN(const int index, index_of(device));
  HEDDLE_ASSIGN_OR_RETURN(const auto gpu, device::open_cuda_device(index));
  HEDDLE_ASSIGN_OR_RETURN(const auto stream, gpu->create_stream());
  HEDDLE_ASSIGN_OR_RETURN(const auto products, ops::DenseProducts::create(*gpu));
  ops::CudaContext context(*gpu, device::as_cuda(*stream), products.get(), exact);
  std::vector<ops::CudaBenchmark> benchmarks = ops::cuda_benchmarks(context, filter);
  if (benchmarks.empty()) {
    return not_found(fmt::format(
        "no op that is measured on CUDA has \"{}\" in its name; they are gated_delta_rule, "
        "linear, paged_attention, routed_moe, sample_rows",
        filter));
  }
  HEDDLE_ASSIGN_OR_RETURN(const double copy, ops::measure_cuda_copy(context));
  const device::CudaProperties& properties = gpu->properties();
  ordered_json json = {{"benchmark", "ops"},
                       {"exact", exact},
                       {"machine",
                        {{"gpu", properties.name},
                         {"driver", properties.driver_version},
                         {"copy_gb_per_s", copy},
                         {"bf16_gflops", kHopperBf16Gflops},
                         {"commit", built_commit()}}},
                       {"rows", ordered_json::array()}};
  Table table({"op", "shape", "us", "GB/s", "TFLOP/s", "of roofline"});
  for (ops::CudaBenchmark& next : benchmarks) {
    // Moved into this variable, so that its memory is freed after this iteration.
    const ops::CudaBenchmark benchmark = std::exchange(next, {});
    const auto measured = ops::measure_cuda(context, benchmark);
    if (!measured.ok()) {
      return measured.status().with_context(fmt::format("{}, {}", benchmark.name, benchmark.shape));
    }
    const double floor =
        std::max(benchmark.bytes / (copy * 1e9), benchmark.flops / (kHopperBf16Gflops * 1e9));
    const double share = floor / measured->median_seconds;
    table.add(
        {benchmark.name, benchmark.shape, fmt::format("{:.1f}", measured->median_seconds * 1e6),
         fmt::format("{:.0f}", measured->gb_per_s), fmt::format("{:.1f}", measured->gflops * 1e-3),
         fmt::format("{:.0f} %", share * 100)});
    json["rows"].push_back({{"op", benchmark.name},
                            {"shape", benchmark.shape},
                            {"median_seconds", measured->median_seconds},
                            {"best_seconds", measured->best_seconds},
                            {"gb_per_s", measured->gb_per_s},
                            {"gflops", measured->gflops},
                            {"roofline_share", share}});
  }
  return emit(output, json,
              fmt::format("{}: copies {:.0f} GB/s, counting bytes read and written\n\n{}",
                          gpu->name(), copy, table.to_string()));
}

}  // namespace heddle::tools
