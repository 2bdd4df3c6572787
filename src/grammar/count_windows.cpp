// SPDX-License-Identifier: Apache-2.0
#include "grammar/count_windows.h"

#include <algorithm>
#include <deque>
#include <utility>

#include <fmt/format.h>

namespace heddle::grammar {
namespace {

// Sorts the states so that each comes after the targets of its moves that do not count, if these
// moves have no cycles.
std::vector<uint32_t> targets_first(const CountedMoves& rule) {
  struct Frame {
    uint32_t state;
    size_t next_move;
  };

  std::vector<uint32_t> order;
  std::vector<bool> is_known(rule.states.size());
  std::vector<Frame> stack;
  for (uint32_t root = 0; root < rule.states.size(); ++root) {
    if (is_known[root]) continue;
    is_known[root] = true;
    stack.push_back({.state = root, .next_move = 0});
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const auto& moves = rule.states[frame.state].moves;
      if (frame.next_move == moves.size()) {
        order.push_back(frame.state);
        stack.pop_back();
        continue;
      }
      const CountedMoves::Move move = moves[frame.next_move++];
      if (move.counts || is_known[move.target]) continue;
      is_known[move.target] = true;
      stack.push_back({.state = move.target, .next_move = 0});
    }
  }
  return order;
}

}  // namespace

std::vector<uint32_t> least_counts(const CountedMoves& rule) {
  std::vector<std::vector<CountedMoves::Move>> sources(rule.states.size());
  std::vector<uint32_t> least(rule.states.size(), kUnreachable);
  std::deque<uint32_t> queue;  // states in ascending order of the counts they need
  for (uint32_t i = 0; i < rule.states.size(); ++i) {
    for (const CountedMoves::Move& move : rule.states[i].moves) {
      sources[move.target].push_back({.target = i, .counts = move.counts});
    }
    if (!rule.states[i].is_final) continue;
    least[i] = 0;
    queue.push_back(i);
  }
  while (!queue.empty()) {
    const uint32_t state = queue.front();
    queue.pop_front();
    for (const CountedMoves::Move& source : sources[state]) {
      const uint32_t needed = least[state] + (source.counts ? 1 : 0);
      if (needed >= least[source.target]) continue;
      least[source.target] = needed;
      source.counts ? queue.push_back(source.target) : queue.push_front(source.target);
    }
  }
  return least;
}

// For a number of lacking counts, a state's excess is the amount by which the smallest count at
// which it can end exceeds the lower bound. It may be at most the distance of the bounds. The
// excesses for one more lacking count follow from the previous ones. They are therefore periodic
// once they equal earlier ones, which Brent's algorithm finds.
Result<CountWindows> CountWindows::build(const CountedMoves& rule,
                                         const std::vector<uint32_t>& least, Nfa::Counter counter,
                                         size_t max_work, size_t& budget) {
  const uint32_t most = counter.max - counter.min;
  const size_t num_states = rule.states.size();
  size_t num_moves = num_states;
  for (const CountedMoves::State& state : rule.states) num_moves += state.moves.size();
  const std::vector<uint32_t> order = targets_first(rule);
  std::vector<uint32_t> excess(num_states);
  std::ranges::transform(least, excess.begin(),
                         [&](uint32_t count) { return std::min(count, most + 1); });
  std::vector<uint32_t> before = excess;
  std::vector<uint32_t> earlier = excess;
  uint32_t earlier_at = 0;
  uint32_t next_earlier = 1;
  bool is_needed = false;
  size_t work = 0;
  CountWindows windows;
  windows.num_states_ = num_states;
  for (uint32_t lacking = 0;; ++lacking) {
    if (lacking > 0) {
      std::swap(before, excess);
      std::ranges::fill(excess, most + 1);
      size_t num_passes = 0;
      for (bool has_changed = true; has_changed; ++num_passes) {
        has_changed = false;
        for (const uint32_t state : order) {
          uint32_t smallest = excess[state];
          for (const CountedMoves::Move& move : rule.states[state].moves) {
            smallest = std::min(smallest, (move.counts ? before : excess)[move.target]);
          }
          has_changed = has_changed || smallest < excess[state];
          excess[state] = smallest;
        }
      }
      // In this order one pass computes the values and a second one finds no change, except in
      // cycles.
      if (num_passes > 2) work += (num_passes - 2) * num_moves;
      if (excess == earlier) {
        windows.period_ = lacking - earlier_at;
        break;
      }
      if (lacking - earlier_at == next_earlier) {
        earlier = excess;
        earlier_at = lacking;
        next_earlier *= 2;
      }
    }
    const size_t first_bit = size_t{lacking} * num_states;
    windows.bits_.resize((first_bit + num_states + 63) / 64);
    windows.num_columns_ = lacking + 1;
    for (size_t state = 0; state < num_states; ++state) {
      const bool may_end = excess[state] <= most;
      const size_t bit = first_bit + state;
      if (may_end) windows.bits_[bit / 64] |= uint64_t{1} << (bit % 64);
      is_needed = is_needed || may_end != (least[state] <= uint64_t{most} + lacking);
    }
    if (lacking == counter.min) break;
    if (work += num_moves; work > budget) {
      budget = 0;
      return invalid_argument(fmt::format(
          "lengths of at least {} are too many with all the other patterns and their lengths; use "
          "smaller bounds or simpler patterns in some of them",
          counter.min));
    }
    if (work > max_work) {
      budget -= work;
      return invalid_argument(
          fmt::format("lengths of at least {} do not go together with this pattern, whose lengths "
                      "repeat too late; use a smaller bound or a simpler pattern",
                      counter.min));
    }
  }
  budget -= std::min(work, budget);
  return is_needed ? windows : CountWindows();
}

uint64_t CountWindows::hash_of(uint32_t state) const {
  uint64_t hash = (uint64_t{num_columns_} << 32) | period_;
  for (uint32_t lacking = 0; lacking < num_columns_; ++lacking) {
    hash = (hash ^ (may_end(state, lacking) ? 3 : 1)) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace heddle::grammar
