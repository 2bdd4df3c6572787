// SPDX-License-Identifier: Apache-2.0
// A step of decoding allocates nothing after warm-up: counted at operator new.
#include <cstdint>

#include <gtest/gtest.h>

#include "engine/engine_loop.h"
#include "engine/engine_test_bench.h"

namespace heddle::engine {

int64_t num_allocations_of_this_thread();  // count_allocations_test.cpp

namespace {

TEST(EngineAllocationTest, AStepOfDecodingAllocatesNothingAfterWarmUp) {
  EngineBench bench;
  bench.runner->checks_plans = false;
  int64_t events = 0;
  for (int i = 0; i < 4; ++i) {
    Request request = EngineBench::request(fmt::format("{}", i), 20, 200);
    request.stop.texts = {"a stop text that never comes", "another"};
    request.sampling.repetition_penalty = 1.2f;
    ASSERT_TRUE(
        bench.engine->submit(std::move(request), [&](const RequestEvent&) { ++events; }).ok());
  }
  for (int step = 0; step < 20; ++step) ASSERT_TRUE(bench.engine->step());
  const int64_t before = num_allocations_of_this_thread();
  const int64_t events_before = events;
  for (int step = 0; step < 100; ++step) ASSERT_TRUE(bench.engine->step());
  EXPECT_EQ(events - events_before, 400);
  EXPECT_EQ(num_allocations_of_this_thread() - before, 0);
}

}  // namespace
}  // namespace heddle::engine
