// SPDX-License-Identifier: Apache-2.0
// Session: a fixed number of sequences with memory of their own, fed in any pieces and any company.
// What `heddle verify` and the whole-model tests and benchmarks drive a ForwardPass with; serving
// goes through the scheduler instead.
//
// Threading: confined.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runner/forward_batch.h"
#include "runner/forward_pass.h"
#include "runner/pools.h"

namespace heddle::runner {

class Session {
 public:
  struct Options {
    int64_t num_sequences = 1;
    int64_t max_tokens = 0;  // per sequence
    int32_t page_size = 16;
  };

  static Result<Session> create(ForwardPass& pass, const Options& options);

  struct Feed {
    int64_t sequence = 0;
    std::span<const TokenId> tokens;
  };

  // Runs one step. Logits: one row per fed token, in order, or only each sequence's last.
  Status step(std::span<const Feed> feeds, LogitRows logit_rows);

  // Forgets the sequence's tokens.
  Status reset(int64_t sequence);

  [[nodiscard]] int64_t num_tokens(int64_t sequence) const {
    return lengths_[static_cast<size_t>(sequence)];
  }

  [[nodiscard]] MutableTensorView logits() const { return pass_->logits(); }

 private:
  Session(ForwardPass& pass, const Options& options, Pools pools, int64_t pages_per_sequence);

  ForwardPass* pass_;
  Pools pools_;
  std::unique_ptr<ForwardBatch> batch_;
  std::vector<std::vector<int32_t>> pages_;
  std::vector<int64_t> lengths_;
  request::BatchPlan plan_;
};

}  // namespace heddle::runner
