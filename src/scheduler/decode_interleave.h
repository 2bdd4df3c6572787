// SPDX-License-Identifier: Apache-2.0
// DecodeInterleave: without mixed batches a step is either a prefill or a decode step. Prefill
// first lets one long prompt, or a stream of short ones, hold up every running stream; so after at
// most `prefills_per_decode` prefill steps in a row a decode step has its turn. 0: prefill first,
// always.
//
// A running stream thus gets a token at least every prefills_per_decode prefill steps and one
// decode step, whatever the backlog.
//
// Threading: thread-confined. Cost: O(1).
#pragma once

#include <cstdint>

namespace heddle::scheduler {

enum class StepKind { kIdle, kPrefill, kDecode };

class DecodeInterleave {
 public:
  explicit DecodeInterleave(int32_t prefills_per_decode);  // at least 0 (checked)

  // What the next step is, given what could run. Changes nothing.
  [[nodiscard]] StepKind next(bool can_prefill, bool can_decode) const;

  // A step was planned.
  void ran(StepKind kind);

 private:
  int32_t prefills_per_decode_;
  int32_t consecutive_prefills_ = 0;  // since the last step in which running streams advanced
};

}  // namespace heddle::scheduler
