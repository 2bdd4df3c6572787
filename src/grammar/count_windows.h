// SPDX-License-Identifier: Apache-2.0
// CountWindows: of a rule that counts (nfa.h), the states from which the rule can still end between
// its two bounds. `^(ab)*$` has even lengths only, so that after "a" no text of exactly 5
// characters is left, though shorter and longer ones are.
//
// Threading: immutable; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <heddle/status.h>

#include "grammar/nfa.h"

namespace heddle::grammar {

// The states and moves of one rule, state by state.
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

// By state, the counting moves on the way to a final state that has the fewest; kUnreachable where
// no way leads to one. Cost: linear.
[[nodiscard]] std::vector<uint32_t> least_counts(const CountedMoves& rule);

class CountWindows {
 public:
  // Moves looked at for one rule; a pattern of 30 states may so have 70,000 lengths until they
  // repeat.
  static constexpr size_t kMaxWork = size_t{1} << 23;
  // For all rules of an automaton, a fraction of a second. Their windows have at most a bit for
  // each move looked at, 4 MiB.
  static constexpr size_t kMaxTotalWork = size_t{1} << 25;

  // Always true.
  CountWindows() = default;

  // `least` is least_counts(rule). Cost: the rule's moves for each missing count until the same
  // states can end again, at most `counter.min` times; taken off `budget`. Error: kInvalidArgument
  // beyond `max_work` or the budget.
  static Result<CountWindows> build(const CountedMoves& rule, const std::vector<uint32_t>& least,
                                    Nfa::Counter counter, size_t max_work, size_t& budget);

  // Whether the least count of a state decides alone: then there are no windows.
  [[nodiscard]] bool is_empty() const { return num_columns_ == 0; }

  [[nodiscard]] size_t num_bytes() const { return bits_.size() * sizeof(uint64_t); }

  // Whether a run in `state` whose count is `lacking`, 0 to counter.min, below the lower bound can
  // end within both bounds. The windows are not empty.
  [[nodiscard]] bool may_end(uint32_t state, uint32_t lacking) const {
    const size_t bit = column_of(lacking) * num_states_ + state;
    return (bits_[bit / 64] >> (bit % 64) & 1) != 0;
  }

  // A number up to some small one above `depth` that says as much as `lacking` about may_end() with
  // it and with up to `depth` less.
  [[nodiscard]] uint32_t folded(uint32_t lacking, uint32_t depth) const {
    const uint64_t first = uint64_t{num_columns_ - period_} + depth + 1;
    return lacking <= first ? lacking : static_cast<uint32_t>(first + (lacking - first) % period_);
  }

  // Equal for states, of any rules, that may end after the same numbers of further counts.
  [[nodiscard]] uint64_t hash_of(uint32_t state) const;

 private:
  [[nodiscard]] size_t column_of(uint32_t lacking) const {
    if (lacking < num_columns_) return lacking;
    const uint32_t first = num_columns_ - period_;
    return first + (lacking - first) % period_;
  }

  size_t num_states_ = 0;
  uint32_t num_columns_ = 0;  // by lacking counts; later ones repeat the last `period_` columns
  uint32_t period_ = 1;
  std::vector<uint64_t> bits_;  // all states of the first column, then of the second ...
};

}  // namespace heddle::grammar
