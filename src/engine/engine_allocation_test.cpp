// SPDX-License-Identifier: Apache-2.0
// A step of decoding allocates nothing after warm-up: counted at operator new.
#include <cstdint>

#include <gtest/gtest.h>

#include "engine/engine_fixture.h"
#include "engine/engine_loop.h"
#include "support/allocation_count.h"

namespace heddle::engine {
namespace {

using testing::AllocationCount;

TEST(EngineAllocationTest, AStepOfDecodingAllocatesNothingAfterWarmUp) {
  if (!AllocationCount::supported()) GTEST_SKIP() << "a sanitizer owns operator new";
  int64_t events = 0;  // outlives the engine, whose end still sends some
  EngineFixture fixture;
  fixture.runner->checks_plans = false;
  for (int i = 0; i < 4; ++i) {
    Request request = EngineFixture::request(fmt::format("{}", i), 20, 200);
    request.stop.texts = {"a stop text that never comes", "another"};
    request.sampling.repetition_penalty = 1.2f;
    ASSERT_TRUE(
        fixture.engine->submit(std::move(request), [&](const RequestEvent&) { ++events; }).ok());
  }
  for (int step = 0; step < 20; ++step) ASSERT_TRUE(fixture.engine->step());
  const AllocationCount allocations;
  const int64_t events_before = events;
  for (int step = 0; step < 100; ++step) ASSERT_TRUE(fixture.engine->step());
  EXPECT_EQ(events - events_before, 400);
  EXPECT_EQ(allocations.count(), 0);
}

}  // namespace
}  // namespace heddle::engine
