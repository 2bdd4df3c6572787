// SPDX-License-Identifier: Apache-2.0
#include "grammar/subset_construction.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "grammar/byte_dfa.h"

namespace heddle::grammar {
namespace {

using Subset = std::vector<NfaState>;  // a set of states, sorted

struct SubsetHash {
  size_t operator()(const Subset& subset) const {
    uint64_t hash = 0x9E3779B97F4A7C15ull + subset.size();
    for (const NfaState state : subset) {
      hash = (hash ^ state) * 0xFF51AFD7ED558CCDull;
      hash ^= hash >> 32;
    }
    return static_cast<size_t>(hash);
  }
};

class Determiniser {
 public:
  Determiniser(const Nfa& nfa, NfaState end, const std::vector<bool>& nullable, size_t max_states,
               size_t& work)
      : nfa_(nfa),
        end_(end),
        nullable_(nullable),
        max_states_(max_states),
        work_(work),
        mark_of_(nfa.states().size(), 0) {}

  Result<std::vector<DeterministicState>> run(NfaState begin) {
    id_of({begin});
    for (size_t next = 0; next < subsets_.size() && !over_limit_; ++next) expand(next);
    if (over_limit_) {
      return invalid_argument(fmt::format(
          "the grammar or pattern needs more than {} states once it is deterministic; use fewer or "
          "smaller repeat counts",
          max_states_));
    }
    return std::move(states_);
  }

 private:
  // Adds all states that are reachable by empty moves, and sorts the subset.
  void close(Subset& subset) {
    ++mark_;
    for (const NfaState state : subset) mark_of_[state] = mark_;
    const auto add = [&](NfaState state) {
      if (mark_of_[state] == mark_) return;
      mark_of_[state] = mark_;
      subset.push_back(state);
    };
    for (size_t i = 0; i < subset.size(); ++i) {
      const Nfa::State& state = nfa_.states()[subset[i]];
      work_ += 1 + state.empty_moves.size();
      for (const NfaState target : state.empty_moves) add(target);
      for (const Nfa::Call& call : state.calls) {
        if (call.rule < nullable_.size() && nullable_[call.rule]) add(call.target);
      }
    }
    // Removes states that have only empty moves: they do not affect what follows.
    std::erase_if(subset, [&](NfaState id) {
      const Nfa::State& state = nfa_.states()[id];
      return state.byte_moves.empty() && state.calls.empty() && id != end_;
    });
    std::ranges::sort(subset);
    if (work_ > kMaxSubsetWork) over_limit_ = true;
  }

  uint32_t id_of(Subset subset) {
    close(subset);
    const auto [entry, is_new] =
        ids_.try_emplace(std::move(subset), static_cast<uint32_t>(states_.size()));
    if (is_new) {
      states_.emplace_back();
      subsets_.push_back(&entry->first);
      if (states_.size() > max_states_) over_limit_ = true;
    }
    return entry->second;
  }

  void expand(size_t id) {
    const Subset& subset = *subsets_[id];
    DeterministicState state;
    std::array<bool, 257> starts{};  // bytes at which a range may begin
    std::map<RuleId, Subset> calls;
    size_t num_moves = 0;
    for (const NfaState member : subset) {
      state.is_final = state.is_final || member == end_;
      for (const Nfa::ByteMove& move : nfa_.states()[member].byte_moves) {
        starts[move.first] = true;
        starts[size_t{move.last} + 1] = true;
        ++num_moves;
      }
      for (const Nfa::Call& call : nfa_.states()[member].calls) {
        calls[call.rule].push_back(call.target);
      }
    }
    for (size_t first = 0; first < 256 && num_moves > 0 && !over_limit_;) {
      size_t end = first + 1;
      while (end < 256 && !starts[end]) ++end;
      Subset targets;
      bool counts = false;
      for (const NfaState member : subset) {
        for (const Nfa::ByteMove& move : nfa_.states()[member].byte_moves) {
          if (move.first > first || first > move.last) continue;
          HEDDLE_CHECK(targets.empty() || counts == move.counts);
          counts = move.counts;
          targets.push_back(move.target);
        }
      }
      work_ += num_moves;
      if (!targets.empty()) {
        unique(targets);
        add_move(state, first, end - 1, counts, id_of(std::move(targets)));
      }
      first = end;
    }
    for (auto& [rule, targets] : calls) {
      unique(targets);
      state.calls.push_back({.rule = rule, .target = id_of(std::move(targets))});
    }
    states_[id] = std::move(state);
  }

  static void unique(Subset& subset) {
    std::ranges::sort(subset);
    const auto repeated = std::ranges::unique(subset);
    subset.erase(repeated.begin(), repeated.end());
  }

  static void add_move(DeterministicState& state, size_t first, size_t last, bool counts,
                       uint32_t target) {
    if (!state.byte_moves.empty()) {
      Nfa::ByteMove& before = state.byte_moves.back();
      if (before.target == target && before.counts == counts && size_t{before.last} + 1 == first) {
        before.last = static_cast<uint8_t>(last);
        return;
      }
    }
    state.byte_moves.push_back({.first = static_cast<uint8_t>(first),
                                .last = static_cast<uint8_t>(last),
                                .counts = counts,
                                .target = target});
  }

  const Nfa& nfa_;
  const NfaState end_;
  const std::vector<bool>& nullable_;
  const size_t max_states_;
  size_t& work_;
  bool over_limit_ = false;
  uint32_t mark_ = 0;
  std::vector<uint32_t> mark_of_;
  std::unordered_map<Subset, uint32_t, SubsetHash> ids_;
  std::vector<const Subset*> subsets_;  // keys of ids_, whose addresses are stable
  std::vector<DeterministicState> states_;
};

}  // namespace

Result<std::vector<DeterministicState>> determinise(const Nfa& nfa, NfaState begin, NfaState end,
                                                    const std::vector<bool>& nullable,
                                                    size_t max_states, size_t& work) {
  HEDDLE_RETURN_IF_ERROR(nfa.status());
  return Determiniser(nfa, end, nullable, max_states, work).run(begin);
}

}  // namespace heddle::grammar
