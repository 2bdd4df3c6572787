// SPDX-License-Identifier: Apache-2.0
// Counts what a process asks of the CUDA driver while it decodes: between two launches of graphs,
// all calls by name, and of these the ones that wait for the GPU, allocate or free. A library that
// the driver loads into the process, not a part of it:
//
//   g++ -std=c++20 -O2 -shared -fPIC -I/usr/local/cuda/include bench/driver_calls.cpp
//       -L/usr/local/cuda/lib64 -lcupti -o driver_calls.so
//   CUDA_INJECTION64_PATH=$PWD/driver_calls.so DRIVER_CALLS_AFTER=200 DRIVER_CALLS_STEPS=1000
//       heddle bench offline ... --device cuda
//
// After so many launches of graphs it counts over so many more, and writes JSON to standard error.
//
// Threading: callbacks come on every thread that calls the driver.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>

#include <cupti.h>

namespace {

constexpr size_t kMostCalls = 1024;  // by id

int64_t number_in(const char* variable, int64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

bool waits(std::string_view name) {
  return name == "cuMemcpy" ||
         starts_with_any(name, {"cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize",
                                "cuMemcpyHtoD_", "cuMemcpyDtoH_", "cuMemsetD8_v2"});
}

bool allocates_or_frees(std::string_view name) {
  return starts_with_any(name, {"cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost",
                                "cuMemHostRegister", "cuMemCreate", "cuMemMap"});
}

class Counts {
 public:
  void entered(CUpti_CallbackId id, const CUpti_CallbackData& data) {
    const std::string_view name = data.functionName;
    if (name.starts_with("cuGraphLaunch")) {
      const int64_t launch = num_launches_.fetch_add(1) + 1;
      if (launch == after_ + steps_) write();
    }
    const int64_t launches = num_launches_;
    if (launches <= after_ || launches >= after_ + steps_ || id >= kMostCalls) return;
    names_[id] = data.functionName;
    ++calls_[id];
  }

 private:
  void write() {
    int64_t waits_seen = 0;
    int64_t allocations = 0;
    std::string calls;
    for (size_t id = 0; id < kMostCalls; ++id) {
      const int64_t count = calls_[id];
      if (count == 0) continue;
      const std::string_view name = names_[id].load();
      if (waits(name)) waits_seen += count;
      if (allocates_or_frees(name)) allocations += count;
      calls += std::string(calls.empty() ? "" : ", ") + "\"" + std::string(name) +
               "\": " + std::to_string(count);
    }
    std::fprintf(stderr,
                 "{\"graph_launches\": %lld, \"waits\": %lld, \"allocations_and_frees\": %lld, "
                 "\"calls\": {%s}}\n",
                 static_cast<long long>(steps_), static_cast<long long>(waits_seen),
                 static_cast<long long>(allocations), calls.c_str());
  }

  const int64_t after_ = number_in("DRIVER_CALLS_AFTER", 200);
  const int64_t steps_ = number_in("DRIVER_CALLS_STEPS", 1000);
  std::atomic<int64_t> num_launches_{0};
  std::array<std::atomic<int64_t>, kMostCalls> calls_{};
  std::array<std::atomic<const char*>, kMostCalls> names_{};
};

void CUPTIAPI on_call(void* counts, CUpti_CallbackDomain, CUpti_CallbackId id, const void* data) {
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  if (call.callbackSite == CUPTI_API_ENTER) static_cast<Counts*>(counts)->entered(id, call);
}

}  // namespace

// The driver calls it when it is loaded.
extern "C" int InitializeInjection() {
  static Counts counts;
  CUpti_SubscriberHandle subscriber = nullptr;
  const bool counts_calls =
      cuptiSubscribe(&subscriber, on_call, &counts) == CUPTI_SUCCESS &&
      cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API) == CUPTI_SUCCESS;
  if (!counts_calls) std::fputs("driver_calls: CUPTI refused\n", stderr);
  return 1;
}
