// SPDX-License-Identifier: Apache-2.0
#include "scheduler/decode_interleave.h"

#include <string>

#include <gtest/gtest.h>

namespace heddle::scheduler {
namespace {

// Steps with endless backlog and running streams: P and D.
std::string steps(DecodeInterleave& interleave, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) {
    const StepKind kind = interleave.next(true, true);
    result += kind == StepKind::kPrefill ? 'P' : 'D';
    interleave.ran(kind);
  }
  return result;
}

TEST(DecodeInterleaveTest, SchedulerSpec6AStreamAdvancesAtLeastEverySecondStep) {
  DecodeInterleave interleave(1);
  EXPECT_EQ(steps(interleave, 8), "PDPDPDPD");
}

TEST(DecodeInterleaveTest, SeveralPrefillsForADecode) {
  DecodeInterleave interleave(3);
  EXPECT_EQ(steps(interleave, 9), "PPPDPPPDP");
}

TEST(DecodeInterleaveTest, SchedulerSpec6ReferenceIsPrefillFirst) {
  DecodeInterleave interleave(0);
  EXPECT_EQ(steps(interleave, 6), "PPPPPP");
}

TEST(DecodeInterleaveTest, RunsWhatCanRun) {
  DecodeInterleave interleave(1);
  EXPECT_EQ(interleave.next(false, false), StepKind::kIdle);
  EXPECT_EQ(interleave.next(false, true), StepKind::kDecode);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(interleave.next(true, false), StepKind::kPrefill);
    interleave.ran(StepKind::kPrefill);
  }
  EXPECT_EQ(steps(interleave, 3), "DPD") << "who began to decode meanwhile is next";
  interleave.ran(StepKind::kPrefill);
  interleave.ran(StepKind::kIdle);
  EXPECT_EQ(steps(interleave, 1), "D") << "idling advances no stream";
}

}  // namespace
}  // namespace heddle::scheduler
