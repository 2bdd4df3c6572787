// SPDX-License-Identifier: Apache-2.0
// GreedyTokens: the most likely token of each row of logits, found on the device that has them, for
// drafting in several steps. Each step reads the tokens of the step before, and all steps can be
// enqueued before the host knows any of these tokens.
//
//   begin()    drops the earlier steps
//   choose()   after each step
//   fetch()    after all steps: the host has the tokens once the stream has executed it
//
// Threading: confined to one thread. Cost: one or three launches a step and one copy for all steps
// together; if the host reads the logits, no copy and O(rows x vocabulary) on the host.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <heddle/request.h>

#include "core/tensor.h"
#include "device/device.h"
#include "device/staging.h"
#include "ops/context.h"
#include "runner/drafting/greedy_rows.h"

namespace heddle::runner {

class GreedyTokens {
 public:
  // For at most `max_steps` steps of at most `max_rows` rows of logits. Waits for the stream.
  // Error: kResourceExhausted.
  static Result<GreedyTokens> create(device::Device& device, device::Stream& stream,
                                     int64_t max_steps, int64_t max_rows, int64_t vocab_size);

  void begin() { num_steps_ = 0; }

  // Picks the token with the largest logit for the first `num_rows` rows of `logits` [R, V] f32 in
  // device memory; of equal logits the first wins.
  Status choose(ops::Context& context, device::Stream& stream, const MutableTensorView& logits,
                int64_t num_rows);

  // Whether the host knows the tokens of a step without fetch().
  [[nodiscard]] bool known_at_once() const { return !on_device_; }

  // All tokens in device memory, indexed by place(); kNoToken for rows whose logits are not
  // numbers. Only if not known_at_once().
  [[nodiscard]] const int32_t* drawn() const;

  // Tokens of the last choose(), by row.
  [[nodiscard]] const int32_t* last_drawn() const {
    return drawn() + place(num_steps_ - 1, /*row=*/0);
  }

  // Index of the token of a row of a step. Steps count from 0.
  [[nodiscard]] int32_t place(int64_t step, int32_t row) const {
    return static_cast<int32_t>(step * max_rows_) + row;
  }

  Status fetch(device::Stream& stream);

  // Number of the table in which the host finds the tokens of the last fetch(); valid until the
  // fetch() after the next.
  [[nodiscard]] int32_t table() const {
    return on_device_ ? static_cast<int32_t>(on_device_->drawn_host.current()) : 0;
  }

  // Number of steps since begin().
  [[nodiscard]] int64_t num_steps() const { return num_steps_; }

  // The token at an index of a table; sampling::kNoToken if the logits were not numbers. Valid when
  // fetch() has been executed, or with known_at_once().
  [[nodiscard]] TokenId token(int32_t place, int32_t table) const;

  [[nodiscard]] TokenId token(int32_t place) const { return token(place, table()); }

 private:
  static constexpr int64_t kNumTables = 2;

  struct OnDevice {
    GreedyRows rows;
    device::Buffer drawn;             // chosen tokens in device memory: i32 [max_steps, max_rows]
    device::ReadbackRing drawn_host;  // chosen tokens in host memory, one block for each table
  };

  GreedyTokens() = default;

  int64_t max_steps_ = 0;
  int64_t max_rows_ = 0;
  int64_t vocab_size_ = 0;
  std::optional<OnDevice> on_device_;  // set if the host does not read the logits
  std::vector<TokenId> tokens_;        // [max_steps, max_rows], used if the host reads the logits
  int64_t num_steps_ = 0;
};

}  // namespace heddle::runner
