// SPDX-License-Identifier: Apache-2.0
#include "runner/batch_padding.h"

#include <algorithm>

#include "core/size_classes.h"

namespace heddle::runner {

namespace {

// `values` and as many of `filler` as make it `size`, kept in `memory`.
std::span<const int32_t> extended(std::vector<int32_t>& memory, std::span<const int32_t> values,
                                  int64_t size, int32_t filler) {
  memory.assign(values.begin(), values.end());
  memory.resize(static_cast<size_t>(size), filler);
  return memory;
}

}  // namespace

BatchPadding::Step BatchPadding::pad(const Step& step, const ops::Extents& largest) {
  const int64_t each = step.forward.few_rows_each();
  if (each == 0) return step;
  const int64_t real = step.forward.num_sequences();
  const int64_t sequences =
      std::min({rounded_to_size_class(real), largest.sequences, largest.tokens / each});
  if (sequences <= real) return step;

  Step padded = step;
  ops::ForwardContext& forward = padded.forward;
  const int64_t rows = sequences * each;
  padded.ids = extended(ids_, step.ids, rows, 0);
  padded.positions = extended(positions_, step.positions, rows, 0);
  forward.num_padding = sequences - real;
  query_start_.assign(forward.query_start.begin(), forward.query_start.end());
  while (std::ssize(query_start_) <= sequences) {
    query_start_.push_back(query_start_.back() + static_cast<int32_t>(each));
  }
  forward.query_start = query_start_;
  forward.context_lens = extended(context_lens_, forward.context_lens, sequences, 0);
  if (!forward.kv_lens.empty()) {
    forward.kv_lens = extended(kv_lens_, forward.kv_lens, sequences, 0);
  }
  if (!forward.state_slots.empty()) {
    forward.state_slots = extended(state_slots_, forward.state_slots, sequences, -1);
  }
  const int64_t logits = std::ssize(forward.logit_rows);
  const bool all = logits == real * each;
  const bool one_each = logits == real;
  if (logits > 0) {
    const int64_t wanted = all ? rows : one_each ? sequences : rounded_to_size_class(logits);
    forward.logit_rows =
        extended(logit_rows_, forward.logit_rows, std::clamp(wanted, logits, largest.logits), 0);
  }
  return padded;
}

}  // namespace heddle::runner
