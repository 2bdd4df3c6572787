// SPDX-License-Identifier: Apache-2.0
#include "runner/load/choose_device.h"

#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "cache/pool_sizing.h"
#include "core/log.h"
#include "ops/kernel_check.h"

namespace heddle::runner {

Result<DeviceRequest> parse_device(std::string_view name) {
  using Kind = DeviceRequest::Kind;
  if (name == "auto") return DeviceRequest{.kind = Kind::kAuto};
  if (name == "cpu") return DeviceRequest{.kind = Kind::kCpu};
  if (name == "cuda") return DeviceRequest{.kind = Kind::kCuda};
  constexpr std::string_view kPrefix = "cuda:";
  if (name.starts_with(kPrefix)) {
    const std::string_view digits = name.substr(kPrefix.size());
    DeviceRequest request{.kind = Kind::kCuda};
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), request.cuda_index);
    if (error == std::errc() && end == digits.data() + digits.size() && request.cuda_index >= 0) {
      return request;
    }
  }
  return invalid_argument(
      fmt::format("device \"{}\" is not known; use auto, cpu, cuda or cuda:N", name));
}

namespace {

Result<std::unique_ptr<ComputeDevice>> open_tested_gpu(int index, bool exact) {
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<ComputeDevice> gpu,
                          ComputeDevice::open_cuda(index, exact));
  const Result<ops::KernelCheck> check =
      ops::check_kernels(gpu->device(), gpu->stream(), gpu->context());
  if (!check.ok()) return check.status().with_context("the self-test");
  log_info(fmt::format("self-test: {} cases on {} agree with the CPU, in {:.0f} ms",
                       check->num_cases, gpu->device().name(), check->seconds * 1e3));
  return gpu;
}

}  // namespace

Result<ChosenDevice> choose_device(const DeviceRequest& request, int num_threads, bool exact) {
  using Kind = DeviceRequest::Kind;
  if (request.kind == Kind::kCpu) {
    HEDDLE_ASSIGN_OR_RETURN(auto cpu, ComputeDevice::open_cpu(num_threads, exact));
    return ChosenDevice{.compute = std::move(cpu), .reason = "asked for"};
  }
  Result<std::unique_ptr<ComputeDevice>> gpu = open_tested_gpu(request.cuda_index, exact);
  if (gpu.ok()) {
    return ChosenDevice{
        .compute = std::move(gpu).value(),
        .reason = request.kind == Kind::kCuda ? "asked for" : "it answers and passed its test"};
  }
  if (request.kind == Kind::kCuda) {
    return Status(gpu.status().code(), fmt::format("device cuda:{}: {}; cpu computes without a GPU",
                                                   request.cuda_index, gpu.status().message()));
  }
  return fall_back_to_cpu(gpu.status(), num_threads, exact);
}

Result<ChosenDevice> fall_back_to_cpu(const Status& why, int num_threads, bool exact) {
  HEDDLE_ASSIGN_OR_RETURN(auto cpu, ComputeDevice::open_cpu(num_threads, exact));
  return ChosenDevice{.compute = std::move(cpu),
                      .reason = fmt::format("CUDA is not used: {}", why.message())};
}

DeviceDefaults defaults_for(device::DeviceKind kind) {
  if (kind == device::DeviceKind::kCpu) {
    return {.chunked_prefill_tokens = 512,
            .max_running_requests = cache::kDefaultMaxRunning,
            .memory_fraction = 0.5,
            .pool_bytes_per_weight_byte = 8,
            .max_scored_rows = 64};
  }
  return {.chunked_prefill_tokens = 8192,
          .max_running_requests = 256,
          .memory_fraction = 0.9,
          .max_scored_rows = 256};
}

}  // namespace heddle::runner
