// SPDX-License-Identifier: Apache-2.0
#include "grammar/automaton.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include <fmt/format.h>

#include "grammar/byte_dfa.h"
#include "grammar/count_windows.h"
#include "grammar/subset_construction.h"

namespace heddle::grammar {
namespace {

constexpr int32_t kNever = INT32_MAX;

// Finds the rules that match the empty text. Rules share no states, so an end state identifies its
// rule.
std::vector<bool> nullable_rules(const Nfa& nfa) {
  const size_t num_states = nfa.states().size();

  struct Waiting {
    NfaState caller;
    NfaState target;
  };

  std::vector<std::vector<NfaState>> sources(num_states);
  std::vector<std::vector<std::pair<NfaState, RuleId>>> callers(num_states);
  for (NfaState i = 0; i < num_states; ++i) {
    for (const NfaState target : nfa.states()[i].empty_moves) sources[target].push_back(i);
    for (const Nfa::Call& call : nfa.states()[i].calls) {
      callers[call.target].emplace_back(i, call.rule);
    }
  }
  std::vector<std::vector<RuleId>> rules_at(num_states);
  for (RuleId rule = 0; rule < nfa.rules().size(); ++rule) {
    rules_at[nfa.rules()[rule].begin].push_back(rule);
  }
  std::vector<bool> nullable(nfa.rules().size());
  // ends that are reached if the rule is nullable
  std::vector<std::vector<NfaState>> waiting(nfa.rules().size());
  std::vector<bool> can_end(num_states);
  std::vector<NfaState> queue;
  const auto mark = [&](NfaState state) {
    if (can_end[state]) return;
    can_end[state] = true;
    queue.push_back(state);
  };
  for (const Nfa::Rule& rule : nfa.rules()) mark(rule.end);
  for (size_t next = 0; next < queue.size(); ++next) {
    const NfaState state = queue[next];
    for (const NfaState source : sources[state]) mark(source);
    for (const auto& [caller, rule] : callers[state]) {
      if (nullable[rule]) {
        mark(caller);
      } else {
        waiting[rule].push_back(caller);
      }
    }
    for (const RuleId rule : rules_at[state]) {
      nullable[rule] = true;
      for (const NfaState caller : waiting[rule]) mark(caller);
    }
  }
  return nullable;
}

// Combines two hashes. The order matters, so that equal parts do not cancel each other.
uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash * 0x9E3779B97F4A7C15ull + value) * 0xBF58476D1CE4E5B9ull;
  hash ^= hash >> 29;
  hash *= 0x94D049BB133111EBull;
  return hash ^ (hash >> 32);
}

}  // namespace

// Builds an Automaton, a step after the other.
class AutomatonBuilder {
 public:
  explicit AutomatonBuilder(const Nfa& nfa) : nfa_(nfa) {}

  Result<Automaton> build(RuleId root) {
    HEDDLE_RETURN_IF_ERROR(nfa_.status());
    HEDDLE_RETURN_IF_ERROR(determinise_rules(root));
    HEDDLE_RETURN_IF_ERROR(order_rules());
    find_heights();
    HEDDLE_RETURN_IF_ERROR(find_least_counts());
    const StateId start = first_state_[0];
    if (heights_[start] == kNever) {
      return invalid_argument("the grammar matches no text at all; it contradicts itself");
    }
    if (heights_[start] > Automaton::kMaxDepth / 2) {
      return invalid_argument(
          fmt::format("the shortest text of the grammar nests {} rules; at most "
                      "{} can be served",
                      heights_[start], Automaton::kMaxDepth / 2));
    }
    write(start);
    return std::move(automaton_);
  }

 private:
  Status determinise_rules(RuleId root) {
    const std::vector<bool> nullable = nullable_rules(nfa_);
    std::vector<uint32_t> index_of(nfa_.rules().size(), UINT32_MAX);
    const auto index = [&](RuleId rule) {
      if (index_of[rule] == UINT32_MAX) {
        index_of[rule] = static_cast<uint32_t>(rules_.size());
        rules_.push_back(rule);
      }
      return index_of[rule];
    };
    index(root);
    size_t work = 0;
    for (size_t i = 0; i < rules_.size(); ++i) {
      const Nfa::Rule& rule = nfa_.rules()[rules_[i]];
      Result<std::vector<DeterministicState>> states =
          determinise(nfa_, rule.begin, rule.end, nullable, kMaxDfaStates - states_.size(), work);
      if (!states.ok()) return states.status().with_context(rule.name);
      const auto first = static_cast<StateId>(states_.size());
      first_state_.push_back(first);
      for (DeterministicState& state : *states) {
        for (Nfa::ByteMove& move : state.byte_moves) move.target += first;
        for (Nfa::Call& call : state.calls) {
          call.target += first;
          call.rule = index(call.rule);
        }
        states_.push_back(std::move(state));
      }
      counters_.resize(states_.size(), Automaton::kNone);
      if (rule.counter) {
        std::fill(counters_.begin() + first, counters_.end(),
                  static_cast<uint32_t>(automaton_.counters_.size()));
        automaton_.counters_.push_back({.min = rule.counter->min, .max = rule.counter->max});
      }
      if (states_.size() >= kMaxDfaStates) {
        return invalid_argument(fmt::format(
            "the grammar needs more than {} states; use smaller repeat counts, lengths or "
            "enumerations",
            kMaxDfaStates));
      }
    }
    return ok_status();
  }

  // Sorts rules by the calls they make before reading a byte: callees before callers.
  Status order_rules() {
    enum class Mark : uint8_t { kNew, kOpen, kDone };
    std::vector<Mark> marks(rules_.size(), Mark::kNew);
    chain_.assign(rules_.size(), 1);

    struct Frame {
      uint32_t rule;
      size_t next_call;
    };

    std::vector<Frame> stack;
    for (uint32_t root = 0; root < rules_.size(); ++root) {
      if (marks[root] != Mark::kNew) continue;
      marks[root] = Mark::kOpen;
      stack.push_back({.rule = root, .next_call = 0});
      while (!stack.empty()) {
        Frame& frame = stack.back();
        const auto& calls = states_[first_state_[frame.rule]].calls;
        if (frame.next_call == calls.size()) {
          for (const Nfa::Call& call : calls) {
            chain_[frame.rule] = std::max(chain_[frame.rule], chain_[call.rule] + 1);
          }
          if (chain_[frame.rule] > Automaton::kMaxCallChain) {
            return invalid_argument(fmt::format(
                "{}: its first element nests more than {} rules; write some of them out",
                name_of(frame.rule), Automaton::kMaxCallChain));
          }
          marks[frame.rule] = Mark::kDone;
          order_.push_back(frame.rule);
          stack.pop_back();
          continue;
        }
        const uint32_t callee = calls[frame.next_call++].rule;
        if (marks[callee] == Mark::kOpen) {
          return invalid_argument(fmt::format(
              "{}: refers to itself before anything was read; write the repetition with * or put "
              "an element before the reference",
              name_of(callee)));
        }
        if (marks[callee] != Mark::kNew) continue;
        marks[callee] = Mark::kOpen;
        stack.push_back({.rule = callee, .next_call = 0});
      }
    }
    return ok_status();
  }

  // Computes the fewest frames from each state to its rule's end, in ascending order (Knuth's
  // generalisation of Dijkstra's algorithm to grammars).
  void find_heights() {
    const size_t count = states_.size();
    heights_.assign(count, kNever);
    std::vector<std::vector<StateId>> sources(count);

    struct CallSite {
      StateId caller;
      StateId begin;
      StateId target;
    };

    std::vector<std::vector<CallSite>> sites(count);  // by callee's begin state and by target state
    using Entry = std::pair<int32_t, StateId>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    for (StateId i = 0; i < count; ++i) {
      for (const Nfa::ByteMove& move : states_[i].byte_moves) sources[move.target].push_back(i);
      for (const Nfa::Call& call : states_[i].calls) {
        const StateId begin = first_state_[call.rule];
        const CallSite site{.caller = i, .begin = begin, .target = call.target};
        sites[begin].push_back(site);
        sites[call.target].push_back(site);
      }
      if (states_[i].is_final) queue.emplace(0, i);
    }
    while (!queue.empty()) {
      const auto [height, state] = queue.top();
      queue.pop();
      if (heights_[state] != kNever) continue;
      heights_[state] = height;
      for (const StateId source : sources[state]) {
        if (heights_[source] == kNever) queue.emplace(height, source);
      }
      for (const CallSite& site : sites[state]) {
        if (heights_[site.begin] == kNever || heights_[site.target] == kNever) continue;
        if (heights_[site.caller] != kNever) continue;
        queue.emplace(std::max(heights_[site.begin] + 1, heights_[site.target]), site.caller);
      }
    }
  }

  // Computes for each state the least count that its rule still needs to end, and which states can
  // end between both bounds.
  Status find_least_counts() {
    least_counts_.assign(states_.size(), 0);
    for (uint32_t rule = 0; rule < rules_.size(); ++rule) {
      const StateId first = first_state_[rule];
      if (counters_[first] == Automaton::kNone || heights_[first] == kNever) continue;
      Automaton::Counter& counter = automaton_.counters_[counters_[first]];
      const CountedMoves moves = counted_moves(rule);
      const std::vector<uint32_t> least = least_counts(moves);
      StateId state = first;
      for (const uint32_t count : least) {
        while (heights_[state] == kNever) ++state;
        least_counts_[state++] = count;
        if (count != kUnreachable) {
          counter.most_least_count = std::max(counter.most_least_count, count);
        }
      }
      Result<CountWindows> windows =
          CountWindows::build(moves, least, {.min = counter.min, .max = counter.max},
                              CountWindows::kMaxWork, window_budget_);
      if (!windows.ok()) return windows.status().with_context(name_of(rule));
      // Code that adds a counting rule omits it if no path has a count within the bounds.
      const bool may_end =
          windows->is_empty() ? least[0] <= counter.max : windows->may_end(0, counter.min);
      if (!may_end) {
        return internal_error(fmt::format("the rule {} counts to no end", name_of(rule)));
      }
      if (windows->is_empty()) continue;
      counter.windows = static_cast<uint32_t>(automaton_.windows_.size());
      automaton_.windows_.push_back(std::move(windows).value());
    }
    return ok_status();
  }

  // The states of a rule from which its end can be reached, numbered as in write(). The first state
  // must be among them.
  [[nodiscard]] CountedMoves counted_moves(uint32_t rule) const {
    const StateId first = first_state_[rule];
    const StateId end = rule + 1 < first_state_.size() ? first_state_[rule + 1]
                                                       : static_cast<StateId>(states_.size());
    std::vector<uint32_t> index(end - first, kUnreachable);
    uint32_t count = 0;
    for (StateId i = first; i < end; ++i) {
      if (heights_[i] != kNever) index[i - first] = count++;
    }
    CountedMoves moves;
    moves.states.reserve(count);
    for (StateId i = first; i < end; ++i) {
      if (heights_[i] == kNever) continue;
      CountedMoves::State& state = moves.states.emplace_back();
      state.is_final = states_[i].is_final;
      for (const Nfa::ByteMove& move : states_[i].byte_moves) {
        const uint32_t target = index[move.target - first];
        if (target != kUnreachable) {
          state.moves.push_back({.target = target, .counts = move.counts});
        }
      }
      for (const Nfa::Call& call : states_[i].calls) {
        const uint32_t target = index[call.target - first];
        if (target == kUnreachable || heights_[first_state_[call.rule]] == kNever) continue;
        state.moves.push_back({.target = target, .counts = false});
      }
    }
    return moves;
  }

  void write(StateId start) {
    std::vector<StateId> new_ids(states_.size(), UINT32_MAX);
    StateId count = 0;
    const size_t end_of_root = first_state_.size() > 1 ? first_state_[1] : states_.size();
    for (StateId i = 0; i < states_.size(); ++i) {
      if (heights_[i] != kNever) new_ids[i] = count++;
      if (size_t{i} + 1 == end_of_root) automaton_.num_outermost_ = count;
    }
    automaton_.start_ = new_ids[start];
    for (StateId i = 0; i < states_.size(); ++i) {
      if (heights_[i] == kNever) continue;
      Automaton::State state;
      state.is_final = states_[i].is_final;
      state.height = heights_[i];
      state.counter = counters_[i];
      state.least_count = least_counts_[i];
      state.first_byte_edge = static_cast<uint32_t>(automaton_.byte_edges_.size());
      state.first_call_edge = static_cast<uint32_t>(automaton_.call_edges_.size());
      for (const Nfa::ByteMove& move : states_[i].byte_moves) {
        if (new_ids[move.target] == UINT32_MAX) continue;
        automaton_.byte_edges_.push_back({.first = move.first,
                                          .last = move.last,
                                          .counts = move.counts,
                                          .target = new_ids[move.target]});
        ++state.num_byte_edges;
      }
      for (const Nfa::Call& call : states_[i].calls) {
        const StateId begin = new_ids[first_state_[call.rule]];
        if (begin == UINT32_MAX || new_ids[call.target] == UINT32_MAX) continue;
        automaton_.call_edges_.push_back({.begin = begin, .target = new_ids[call.target]});
        ++state.num_call_edges;
        if (begin == automaton_.start_) automaton_.num_outermost_ = 0;
      }
      automaton_.states_.push_back(state);
    }
    for (const uint32_t rule : order_) {
      const StateId first = first_state_[rule];
      const StateId begin = new_ids[first];
      if (begin == UINT32_MAX) continue;
      automaton_.callees_.push_back(begin);
      if (counters_[first] != Automaton::kNone) {
        automaton_.counters_[counters_[first]].first_state = begin;
      }
      automaton_.call_chain_ = std::max(automaton_.call_chain_, chain_[rule]);
    }
  }

  [[nodiscard]] const std::string& name_of(uint32_t rule) const {
    return nfa_.rules()[rules_[rule]].name;
  }

  const Nfa& nfa_;
  std::vector<RuleId> rules_;               // rules that can be reached from the root, the root
                                            // first
  std::vector<StateId> first_state_;        // first state of each rule
  std::vector<DeterministicState> states_;  // their calls contain indices into rules_
  std::vector<uint32_t> order_;
  std::vector<int32_t> chain_;
  std::vector<int32_t> heights_;
  std::vector<uint32_t> counters_;      // for each state of automaton_, its counter
  std::vector<uint32_t> least_counts_;  // least counts of all states, indexed by state
  size_t window_budget_ = CountWindows::kMaxTotalWork;
  Automaton automaton_;
};

Result<Automaton> Automaton::build(const Nfa& nfa, RuleId root) {
  return AutomatonBuilder(nfa).build(root);
}

size_t Automaton::num_window_bytes() const {
  size_t sum = 0;
  for (const CountWindows& windows : windows_) sum += windows.num_bytes();
  return sum;
}

uint64_t Automaton::count_signature(StateId state, uint32_t count, int depth) const {
  if (!is_counted(state)) return 0;
  const Counter& counter = counters_[states_[state].counter];
  const auto most = static_cast<uint32_t>(depth);  // the most counting moves in `depth` bytes
  if (counter.windows != kNone && count < counter.min && counter.min - count > most) {
    return mix(13, windows_[counter.windows].folded(counter.min - count, most));
  }
  const uint32_t lacking = count < counter.min ? std::min(counter.min - count, most + 1) : 0;
  const uint32_t left = std::min(counter.max - count, most + counter.most_least_count);
  const bool is_far = left == most + counter.most_least_count;
  if (lacking == 0 && is_far) return 0;
  return mix(mix(11, lacking), is_far ? UINT32_MAX : left);
}

Automaton::Signatures Automaton::signatures(int depth) const {
  std::vector<uint64_t> before(states_.size(), 1);
  std::vector<uint64_t> now(states_.size(), 1);
  std::vector<uint64_t> counts(states_.size());  // by state, how far the state is from its rule's
                                                 // end
  for (StateId state = 0; state < states_.size(); ++state) {
    counts[state] = states_[state].least_count;
    if (!is_counted(state)) continue;
    const Counter& counter = counters_[states_[state].counter];
    if (counter.windows == kNone) continue;
    counts[state] =
        mix(counts[state], windows_[counter.windows].hash_of(state - counter.first_state));
  }
  const auto hash_bytes = [&](StateId state, uint64_t hash) {
    for (const ByteEdge& edge : byte_edges(state)) {
      hash = mix(hash, (uint64_t{edge.counts} << 16) | (uint64_t{edge.first} << 8) | edge.last);
      hash = mix(hash, before[edge.target]);
    }
    return hash;
  };
  const auto hash_state = [&](StateId state) {
    // If nothing can follow the rule's end, the end is not distinguished.
    uint64_t hash = hash_bytes(state, is_final(state) && !is_outermost(state) ? 3 : 2);
    if (counts[state] > 0) hash = mix(hash, counts[state]);
    // The hash of calls ignores their order, because ids differ from grammar to grammar.
    uint64_t calls = 0;
    for (const CallEdge& call : call_edges(state)) {
      calls +=
          mix(mix(5, now[call.begin]) ^ count_signature(call.begin, 0, depth), before[call.target]);
    }
    return mix(hash, calls);
  };
  std::vector<bool> is_callee(states_.size());
  for (const StateId state : callees_) is_callee[state] = true;
  for (int round = 1; round < depth; ++round) {
    for (const StateId state : callees_) now[state] = hash_state(state);
    for (StateId state = 0; state < states_.size(); ++state) {
      if (!is_callee[state]) now[state] = hash_state(state);
    }
    std::swap(before, now);
  }
  for (StateId state = 0; state < states_.size(); ++state) now[state] = hash_bytes(state, 7);
  return {.of_edges = std::move(now), .of_entry = std::move(before)};
}

}  // namespace heddle::grammar
