// SPDX-License-Identifier: Apache-2.0
// CountWindows: for a rule that counts (nfa.h), from which states it can still end with a count
// within its bounds. An example where the least count is not enough: `^(ab)*$` has only even
// lengths, so after "a" no text of exactly 5 characters exists, although shorter and longer ones
// do.
//
// Threading: immutable; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <heddle/status.h>

#include "grammar/nfa.h"

namespace heddle::grammar {

// The states and moves of one rule.
struct CountedMoves {
  struct Move {
    uint32_t target;
    bool counts;
  };

  struct State {
    std::vector<Move> moves;
    bool is_final = false;
  };

  std::vector<State> states;
};

inline constexpr uint32_t kUnreachable = UINT32_MAX;

// For each state, the fewest counting moves on a path to a final state; kUnreachable if no path
// leads to one. Cost: linear.
[[nodiscard]] std::vector<uint32_t> least_counts(const CountedMoves& rule);

class CountWindows {
 public:
  // The most moves that are examined for one rule. A pattern of 30 states may thus have up to
  // 70,000 different lengths before they repeat.
  static constexpr size_t kMaxWork = size_t{1} << 23;
  // The same limit for all rules of an automaton, a fraction of a second. Their windows have at
  // most one bit per examined move, 4 MiB.
  static constexpr size_t kMaxTotalWork = size_t{1} << 25;

  // No windows: the least count of a state alone decides.
  CountWindows() = default;

  // `least` must be least_counts(rule). Cost: the rule's moves for each missing count, until the
  // same states can end again, at most `counter.min` times; subtracted from `budget`. Error:
  // kInvalidArgument beyond `max_work` or the budget.
  static Result<CountWindows> build(const CountedMoves& rule, const std::vector<uint32_t>& least,
                                    Nfa::Counter counter, size_t max_work, size_t& budget);

  // Whether the least count of a state alone decides, so that there are no windows.
  [[nodiscard]] bool is_empty() const { return num_columns_ == 0; }

  [[nodiscard]] size_t num_bytes() const { return bits_.size() * sizeof(uint64_t); }

  // Whether a run in `state` whose count is `lacking` (0 to counter.min) below the lower bound can
  // end within both bounds. The windows must not be empty.
  [[nodiscard]] bool may_end(uint32_t state, uint32_t lacking) const {
    const size_t bit = column_of(lacking) * num_states_ + state;
    return (bits_[bit / 64] >> (bit % 64) & 1) != 0;
  }

  // A number of bounded size that is equivalent to `lacking` for may_end(), also if both are
  // reduced by up to `depth`.
  [[nodiscard]] uint32_t folded(uint32_t lacking, uint32_t depth) const {
    const uint64_t first = uint64_t{num_columns_ - period_} + depth + 1;
    return lacking <= first ? lacking : static_cast<uint32_t>(first + (lacking - first) % period_);
  }

  // A hash that is equal for states, of any rules, that may end after the same numbers of further
  // counts.
  [[nodiscard]] uint64_t hash_of(uint32_t state) const;

 private:
  [[nodiscard]] size_t column_of(uint32_t lacking) const {
    if (lacking < num_columns_) return lacking;
    const uint32_t first = num_columns_ - period_;
    return first + (lacking - first) % period_;
  }

  size_t num_states_ = 0;
  uint32_t num_columns_ = 0;  // number of columns, one per lacking count; after the last column the
                              // last `period_` columns repeat
  uint32_t period_ = 1;
  std::vector<uint64_t> bits_;  // column by column, one bit per state
};

}  // namespace heddle::grammar
