// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <utility>

#include <fmt/format.h>

#include <heddle/stop_pattern.h>

#include "grammar/byte_dfa.h"
#include "grammar/nfa.h"
#include "grammar/pattern.h"

namespace heddle {

namespace {

// The most states before determinisation, where nested repeats multiply. Larger automata take long,
// and usually have too many states afterwards.
constexpr size_t kMaxNfaStates = 8 * StopPattern::kMaxStates;

}  // namespace

Result<std::shared_ptr<const StopPattern>> StopPattern::compile(std::string_view regex) {
  if (regex.size() > kMaxBytes) {
    return invalid_argument(
        fmt::format("the pattern has {} bytes; at most {} end a text", regex.size(), kMaxBytes));
  }
  HEDDLE_ASSIGN_OR_RETURN(const grammar::Pattern pattern, grammar::Pattern::parse(regex));
  if (pattern.has_begin()) {
    return invalid_argument("the pattern has a ^; what ends a text may begin anywhere in it");
  }
  grammar::Nfa nfa;
  const grammar::NfaState begin = nfa.add_state(), end = nfa.add_state();
  pattern.add_whole(nfa, begin, grammar::TextForm::kPlain, end);
  HEDDLE_RETURN_IF_ERROR(nfa.status());
  if (nfa.states().size() > kMaxNfaStates) {
    return invalid_argument(fmt::format(
        "the pattern needs more than {} states; use smaller repeat counts", kMaxNfaStates));
  }
  HEDDLE_ASSIGN_OR_RETURN(const grammar::ByteDfa dfa,
                          grammar::ByteDfa::from_nfa(nfa, begin, end, kMaxStates));
  if (dfa.is_empty()) return invalid_argument("the pattern matches nothing");
  if (dfa.states().front().is_final) {
    return invalid_argument("the pattern matches the empty text, which would end every answer");
  }

  auto result = std::shared_ptr<StopPattern>(new StopPattern());
  result->text_ = regex;
  // Groups bytes by the targets that they lead every state to.
  std::array<std::vector<State>, 256> columns;
  for (std::vector<State>& column : columns) column.assign(dfa.states().size(), kNone);
  for (size_t s = 0; s < dfa.states().size(); ++s) {
    const grammar::ByteDfa::State& state = dfa.states()[s];
    for (const grammar::ByteDfa::Edge& edge : state.edges) {
      for (size_t byte = edge.first; byte <= edge.last; ++byte) {
        columns[byte][s] = static_cast<State>(edge.target);
      }
    }
    result->kinds_.push_back(
        static_cast<uint8_t>((state.is_final ? kFinal : 0) | (state.edges.empty() ? 0 : kGoesOn)));
  }
  std::map<std::vector<State>, uint8_t> classes;
  for (size_t byte = 0; byte < columns.size(); ++byte) {
    const auto own = classes.try_emplace(columns[byte], static_cast<uint8_t>(classes.size()));
    result->classes_[byte] = own.first->second;
  }
  result->num_classes_ = classes.size();
  result->targets_.resize(dfa.states().size() * classes.size());
  for (const auto& [column, number] : classes) {
    for (size_t s = 0; s < column.size(); ++s) {
      result->targets_[s * classes.size() + number] = column[s];
    }
  }
  return std::shared_ptr<const StopPattern>(std::move(result));
}

}  // namespace heddle
