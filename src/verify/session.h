// SPDX-License-Identifier: Apache-2.0
// Session: drives a ForwardPass, or those of all its ranks, without a scheduler: a fixed number of
// sequences with memory of their own, any number of which get any number of tokens in a step.
// `heddle verify` and the whole-model tests use it; the server schedules instead.
//
// Threading: confined.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "request/batch_slots.h"
#include "runner/program/forward_pass.h"
#include "runner/step/forward_batch.h"
#include "runner/step/pools.h"
#include "verify/golden_cases.h"

namespace heddle::verify {

class Session {
 public:
  struct Options {
    int64_t num_sequences = 1;
    int64_t max_tokens = 0;  // the most tokens that one sequence can have
    int32_t page_size = 16;
  };

  static Result<Session> create(runner::ForwardPass& pass, const Options& options);

  struct Feed {
    int64_t sequence = 0;
    std::span<const TokenId> tokens;
  };

  // Runs one step. Logits have one row per fed token, in order, or one for each sequence's last
  // token.
  Status step(std::span<const Feed> feeds, runner::LogitRows logit_rows);

  // Makes the sequence empty again. It then uses the first table of rotary frequencies.
  Status reset(int64_t sequence);

  // Gives all later rows of the sequence the adapter in this slot of the pass; -1: none.
  void set_adapter(int64_t sequence, int32_t slot) {
    adapters_[static_cast<size_t>(sequence)] = slot;
  }

  // Makes all rows of the sequence use the second table of rotary frequencies
  // (request::PlannedSequence::takes_long_rope). The sequence must have no tokens (checked).
  void take_long_rope(int64_t sequence);

  // The pictures of the sequence; null: it is text. They must outlive the session's steps. Only if
  // the pass accepts pictures.
  void show_pictures(int64_t sequence, const GoldenPictures* pictures) {
    pictures_[static_cast<size_t>(sequence)] = pictures;
  }

  [[nodiscard]] int64_t num_tokens(int64_t sequence) const {
    return lengths_[static_cast<size_t>(sequence)];
  }

  [[nodiscard]] MutableTensorView logits() const { return pass_->logits(); }

 private:
  // The memory of a rank, and its arrays for a step.
  struct Own {
    runner::Pools pools;
    request::BatchSlots slots;
    runner::ForwardBatch batch;
  };

  // The pictures of a step with these feeds.
  runner::StepPictures lay_out_pictures(std::span<const Feed> feeds);

  Session(runner::ForwardPass& pass, const Options& options, std::vector<Own> ranks,
          int64_t pages_per_sequence);

  runner::ForwardPass* pass_;
  std::vector<Own> ranks_;
  std::vector<std::vector<int32_t>> pages_;
  std::vector<int64_t> lengths_;
  std::vector<bool> takes_long_rope_;
  std::vector<int32_t> adapters_;                // slot of each sequence's adapter, -1: none
  std::vector<const GoldenPictures*> pictures_;  // by sequence
  request::PicturePositions text_;               // of sequences without pictures
  std::vector<int32_t> axis_positions_;          // of a step; see runner::StepPictures
  std::vector<const float*> features_;
  request::BatchPlan plan_;
};

}  // namespace heddle::verify
