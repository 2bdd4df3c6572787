// SPDX-License-Identifier: Apache-2.0
#include "runner/program/batch_padding.h"

#include <algorithm>
#include <bit>

namespace heddle::runner {

namespace {

// Classes of row counts for steps padded by pad_rows(): eight per octave from 32 rows on.
int64_t rounded_rows(int64_t rows) {
  const auto octave = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  const int64_t unit = std::max<int64_t>(octave / 16, 4);
  return (rows + unit - 1) / unit * unit;
}

// `values`, extended with `filler` to `size` elements. The result is stored in `memory`.
std::span<const int32_t> filled(std::vector<int32_t>& memory, std::span<const int32_t> values,
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

  const int64_t rows = sequences * each;
  Step padded = extended(step, rows, sequences, each);
  ops::ForwardContext& forward = padded.forward;
  const int64_t logits = std::ssize(forward.logit_rows);
  const bool all = logits == real * each;
  const bool one_each = logits == real;
  if (logits > 0) {
    const int64_t wanted = all ? rows : one_each ? sequences : rounded_to_size_class(logits);
    forward.logit_rows =
        filled(logit_rows_, forward.logit_rows, std::clamp(wanted, logits, largest.logits), 0);
    if (step.forward.wants_all_rows(real * each)) {
      for (int64_t row = logits; row < std::ssize(logit_rows_); ++row) {
        logit_rows_[static_cast<size_t>(row)] = static_cast<int32_t>(row);
      }
    }
  }
  return padded;
}

BatchPadding::Step BatchPadding::pad_rows(const Step& step, const ops::Extents& largest) {
  const int64_t real = std::ssize(step.ids);
  const int64_t rows = std::min(rounded_rows(real), largest.tokens);
  const int64_t sequences = step.forward.num_sequences() + 1;
  if (rows <= real || sequences > largest.sequences) return step;
  return extended(step, rows, sequences, rows - real);
}

BatchPadding::Step BatchPadding::extended(const Step& step, int64_t rows, int64_t sequences,
                                          int64_t rows_each) {
  Step padded = step;
  ops::ForwardContext& forward = padded.forward;
  padded.ids = filled(ids_, step.ids, rows, 0);
  padded.positions = filled(positions_, step.positions, rows, 0);
  forward.num_padding = sequences - step.forward.num_sequences();
  query_start_.assign(forward.query_start.begin(), forward.query_start.end());
  while (std::ssize(query_start_) <= sequences) {
    query_start_.push_back(query_start_.back() + static_cast<int32_t>(rows_each));
  }
  forward.query_start = query_start_;
  forward.context_lens = filled(context_lens_, forward.context_lens, sequences, 0);
  if (!forward.kv_lens.empty()) {
    forward.kv_lens = filled(kv_lens_, forward.kv_lens, sequences, 0);
  }
  if (!forward.state_slots.empty()) {
    forward.state_slots = filled(state_slots_, forward.state_slots, sequences, -1);
  }
  if (!forward.tree_starts.empty()) {
    forward.tree_starts = filled(tree_starts_, forward.tree_starts, sequences, ops::kNoTree);
    tree_masks_.assign(forward.tree_masks.begin(), forward.tree_masks.end());
    tree_masks_.resize(static_cast<size_t>(rows));
    forward.tree_masks = tree_masks_;
  }
  return padded;
}

}  // namespace heddle::runner
