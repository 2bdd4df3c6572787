// SPDX-License-Identifier: Apache-2.0
#include "scheduler/decode_interleave.h"

#include <algorithm>

#include "core/check.h"

namespace heddle::scheduler {

DecodeInterleave::DecodeInterleave(int32_t prefills_per_decode)
    : prefills_per_decode_(prefills_per_decode) {
  HEDDLE_CHECK_GE(prefills_per_decode, 0);
}

StepKind DecodeInterleave::next(bool can_prefill, bool can_decode) const {
  if (!can_prefill) return can_decode ? StepKind::kDecode : StepKind::kIdle;
  if (!can_decode || prefills_per_decode_ == 0) return StepKind::kPrefill;
  return consecutive_prefills_ < prefills_per_decode_ ? StepKind::kPrefill : StepKind::kDecode;
}

void DecodeInterleave::ran(StepKind kind) {
  if (kind == StepKind::kDecode) consecutive_prefills_ = 0;
  if (kind == StepKind::kPrefill) {
    consecutive_prefills_ = std::min(consecutive_prefills_ + 1, prefills_per_decode_);
  }
}

}  // namespace heddle::scheduler
