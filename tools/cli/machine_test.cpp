// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

namespace heddle::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Keeps the calling thread on one of its CPUs while it lives.
class OneCpu {
 public:
  OneCpu() {
    sched_getaffinity(0, sizeof(before_), &before_);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before_)) ++cpu;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
  }

  ~OneCpu() { sched_setaffinity(0, sizeof(before_), &before_); }

  OneCpu(const OneCpu&) = delete;
  OneCpu& operator=(const OneCpu&) = delete;

 private:
  cpu_set_t before_;
};

TEST(MachineTest, ThreadsAreAtMostTheCpusOfTheProcess) {
  const OneCpu one;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(usable_threads(0), 0) << "the program chooses";
  EXPECT_EQ(usable_threads(1), 1);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(usable_threads(64), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("--threads 64"), HasSubstr("may run on 1 CPUs")));
}

TEST(MachineTest, TimesAreShownInUtc) { EXPECT_EQ(utc_time(1772357400), "2026-03-01T09:30:00Z"); }

TEST(MachineTest, TheProcessorHasAName) { EXPECT_NE(cpu_model(), ""); }

}  // namespace
}  // namespace heddle::tools
