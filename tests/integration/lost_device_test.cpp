// SPDX-License-Identifier: Apache-2.0
// A GPU that fails while an engine runs on it: its requests end with an error, the engine says why,
// and can be taken down. The failure is a kernel that writes to an unmapped address, which
// takes the whole process's use of the GPU with it, so that it happens in a process of its own.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <unistd.h>

#include <heddle/engine.h>

#include "core/mutex.h"
#include "integration/on_device.h"
#include "ops/context.h"
#include "ops/elementwise/elementwise.h"
#include "support/test_data.h"

namespace heddle {
namespace {

void lose_the_gpu() {
  auto gpu = device::open_cuda_device(0).value();
  auto stream = gpu->create_stream().value();
  ops::CudaContext context(*gpu, device::as_cuda(*stream), nullptr);
  const MutableTensorView nowhere(reinterpret_cast<void*>(uintptr_t{64}), DType::kF32,
                                  Shape{1, 64});
  if (!ops::elementwise(context,
                        {.kind = ops::ElementwiseKind::kSigmoid, .a = nowhere, .y = nowhere})
           .ok()) {
    std::fputs("the kernel was not launched\n", stderr);
    std::exit(2);
  }
}

// The events of a request, as its callback recorded them for the test.
struct Progress {
  Mutex mutex;
  CondVar changed;
  bool has_begun HEDDLE_GUARDED_BY(mutex) = false;
  std::unique_ptr<Status> end HEDDLE_GUARDED_BY(mutex);
};

// Exits with 0 if all went as it should; a process that hangs is ended by a signal.
[[noreturn]] void run_an_engine_into_it() {
  alarm(120);
  auto engine = Engine::create({.model_dir = testing::repository_path("models/heddle-tiny"),
                                .device = "cuda",
                                .max_total_tokens = 16384});
  if (!engine.ok()) {
    std::fputs(engine.status().to_string().c_str(), stderr);
    std::exit(3);
  }
  Progress progress;
  Request request{.id = "one", .prompt = {1, 2, 3}};
  request.stop.max_new_tokens = 8000;
  request.stop.ignore_eos = true;
  const Status submitted = (*engine)->submit(std::move(request), [&](const RequestEvent& event) {
    const MutexLock lock(progress.mutex);
    progress.has_begun = true;
    if (event.finish) progress.end = std::make_unique<Status>(event.finish->error);
    progress.changed.notify_all();
  });
  if (!submitted.ok()) std::exit(4);
  {
    const MutexLock lock(progress.mutex);
    progress.changed.wait(progress.mutex,
                          [&]() HEDDLE_REQUIRES(progress.mutex) { return progress.has_begun; });
  }
  lose_the_gpu();
  {
    const MutexLock lock(progress.mutex);
    progress.changed.wait(
        progress.mutex, [&]() HEDDLE_REQUIRES(progress.mutex) { return progress.end != nullptr; });
    std::fprintf(stderr, "request: %s\n", progress.end->to_string().c_str());
    if (progress.end->ok()) std::exit(5);
  }
  const Status health = (*engine)->health();
  std::fprintf(stderr, "health: %s\n", health.to_string().c_str());
  if (health.code() != StatusCode::kDeviceLost) std::exit(6);
  engine->reset();  // does not wait for the GPU
  std::exit(0);
}

class LostDevice : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Cuda, LostDevice, ::testing::Values("cuda"));

TEST_P(LostDevice, EndsItsRequestsAndIsSeenInHealth) {
  HEDDLE_DEVICE_OR_SKIP(GetParam());
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_an_engine_into_it(), ::testing::ExitedWithCode(0), "request: .*health: .*");
}

}  // namespace
}  // namespace heddle
