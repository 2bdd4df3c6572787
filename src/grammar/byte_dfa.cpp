// SPDX-License-Identifier: Apache-2.0
#include "grammar/byte_dfa.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "grammar/subset_construction.h"

namespace heddle::grammar {

Result<ByteDfa> ByteDfa::from_nfa(const Nfa& nfa, NfaState begin, NfaState end, size_t max_states) {
  size_t work = 0;
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<DeterministicState> states,
                          determinise(nfa, begin, end, {}, max_states, work));
  ByteDfa dfa;
  dfa.states_.resize(states.size());
  for (size_t i = 0; i < states.size(); ++i) {
    HEDDLE_CHECK(states[i].calls.empty());
    dfa.states_[i].is_final = states[i].is_final;
    for (const Nfa::ByteMove& move : states[i].byte_moves) {
      dfa.states_[i].edges.push_back(
          {.first = move.first, .last = move.last, .target = move.target});
    }
  }
  dfa.trim();
  return dfa;
}

Result<ByteDfa> ByteDfa::intersect(const ByteDfa& other) const { return product(other, false); }

Result<ByteDfa> ByteDfa::subtract(const ByteDfa& other) const { return product(other, true); }

Result<ByteDfa> ByteDfa::product(const ByteDfa& other, bool subtract) const {
  constexpr uint32_t kNowhere = UINT32_MAX;  // `other` has no matching edge
  ByteDfa result;
  std::unordered_map<uint64_t, uint32_t> ids;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  const auto id_of = [&](uint32_t mine, uint32_t its) {
    const auto [entry, is_new] =
        ids.try_emplace((uint64_t{mine} << 32) | its, static_cast<uint32_t>(pairs.size()));
    if (is_new) pairs.emplace_back(mine, its);
    return entry->second;
  };
  if (is_empty() || (other.is_empty() && !subtract)) return result;
  id_of(0, other.is_empty() ? kNowhere : 0);
  for (size_t next = 0; next < pairs.size(); ++next) {
    if (pairs.size() > kMaxDfaStates) {
      return invalid_argument(
          fmt::format("patterns and lengths together need more than {} states; use smaller repeat "
                      "counts or lengths",
                      kMaxDfaStates));
    }
    const auto [mine, its] = pairs[next];
    State state;
    const bool its_final = its != kNowhere && other.states_[its].is_final;
    state.is_final = states_[mine].is_final && its_final != subtract;
    for (const Edge& edge : states_[mine].edges) {
      int position = edge.first;
      const auto add = [&](int last, uint32_t target) {
        if (target != kNowhere || subtract) {
          state.edges.push_back({.first = static_cast<uint8_t>(position),
                                 .last = static_cast<uint8_t>(last),
                                 .target = id_of(edge.target, target)});
        }
        position = last + 1;
      };
      if (its != kNowhere) {
        for (const Edge& its_edge : other.states_[its].edges) {
          if (its_edge.last < position || its_edge.first > edge.last) continue;
          if (its_edge.first > position) add(its_edge.first - 1, kNowhere);
          add(std::min(its_edge.last, edge.last), its_edge.target);
        }
      }
      if (position <= edge.last) add(edge.last, kNowhere);
    }
    result.states_.push_back(std::move(state));
  }
  result.trim();
  return result;
}

bool ByteDfa::contains(std::string_view text) const {
  if (is_empty()) return false;
  uint32_t state = 0;
  for (const char letter : text) {
    const auto byte = static_cast<uint8_t>(letter);
    const auto edge = std::ranges::find_if(states_[state].edges, [&](const Edge& candidate) {
      return candidate.first <= byte && byte <= candidate.last;
    });
    if (edge == states_[state].edges.end()) return false;
    state = edge->target;
  }
  return states_[state].is_final;
}

void ByteDfa::trim() {
  std::vector<std::vector<uint32_t>> sources(states_.size());
  std::vector<uint32_t> queue;
  std::vector<bool> is_useful(states_.size());
  for (uint32_t i = 0; i < states_.size(); ++i) {
    for (const Edge& edge : states_[i].edges) sources[edge.target].push_back(i);
    if (!states_[i].is_final) continue;
    is_useful[i] = true;
    queue.push_back(i);
  }
  for (size_t next = 0; next < queue.size(); ++next) {
    for (const uint32_t source : sources[queue[next]]) {
      if (is_useful[source]) continue;
      is_useful[source] = true;
      queue.push_back(source);
    }
  }
  if (states_.empty() || !is_useful[0]) {
    states_.clear();
    return;
  }
  std::vector<uint32_t> new_ids(states_.size());
  uint32_t count = 0;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (is_useful[i]) new_ids[i] = count++;
  }
  std::vector<State> kept;
  kept.reserve(count);
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!is_useful[i]) continue;
    State& state = states_[i];
    std::erase_if(state.edges, [&](const Edge& edge) { return !is_useful[edge.target]; });
    for (Edge& edge : state.edges) edge.target = new_ids[edge.target];
    kept.push_back(std::move(state));
  }
  states_ = std::move(kept);
}

}  // namespace heddle::grammar
