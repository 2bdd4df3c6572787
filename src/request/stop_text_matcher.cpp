// SPDX-License-Identifier: Apache-2.0
#include "request/stop_text_matcher.h"

#include <algorithm>

#include "core/check.h"

namespace heddle::request {

StopTextMatcher::StopTextMatcher(const std::vector<std::string>& texts, bool keep_match)
    : keep_match_(keep_match) {
  automata_.reserve(texts.size());
  for (const std::string& text : texts) {
    HEDDLE_CHECK(!text.empty());
    Automaton automaton{.text = text, .failure = std::vector<int32_t>(text.size() + 1, 0)};
    int32_t border = 0;
    for (size_t i = 1; i < text.size(); ++i) {
      while (border > 0 && text[i] != text[static_cast<size_t>(border)]) {
        border = automaton.failure[static_cast<size_t>(border)];
      }
      if (text[i] == text[static_cast<size_t>(border)]) ++border;
      automaton.failure[i + 1] = border;
    }
    automata_.push_back(std::move(automaton));
  }
}

void StopTextMatcher::advance(Automaton& automaton, char byte) {
  int32_t state = automaton.state;
  if (state == static_cast<int32_t>(automaton.text.size())) {  // a match that was passed over
    state = automaton.failure[static_cast<size_t>(state)];
  }
  while (state > 0 && automaton.text[static_cast<size_t>(state)] != byte) {
    state = automaton.failure[static_cast<size_t>(state)];
  }
  if (automaton.text[static_cast<size_t>(state)] == byte) ++state;
  automaton.state = state;
}

int StopTextMatcher::push(std::string_view piece, bool may_match, std::string& output) {
  if (matched_) return kNoMatch;
  if (automata_.empty()) {
    output.append(piece);
    return kNoMatch;
  }
  for (size_t i = 0; i < piece.size(); ++i) {
    int match = kNoMatch;
    for (size_t a = 0; a < automata_.size(); ++a) {
      advance(automata_[a], piece[i]);
      const bool complete = automata_[a].state == static_cast<int32_t>(automata_[a].text.size());
      if (complete && match == kNoMatch) match = static_cast<int>(a);
    }
    if (match == kNoMatch || !may_match) continue;
    held_.append(piece.substr(0, i + 1));
    const size_t stop_size = automata_[static_cast<size_t>(match)].text.size();
    HEDDLE_CHECK_GE(held_.size(), stop_size);
    output.append(held_, 0, keep_match_ ? held_.size() : held_.size() - stop_size);
    held_.clear();
    matched_ = true;
    return match;
  }

  // Everything but the longest tail that a stop text starts with. A complete text that was passed
  // over must not hold anything back by itself: its longest border is what may still grow.
  size_t held_size = 0;
  for (const Automaton& automaton : automata_) {
    const bool complete = automaton.state == static_cast<int32_t>(automaton.text.size());
    const int32_t state =
        complete ? automaton.failure[static_cast<size_t>(automaton.state)] : automaton.state;
    held_size = std::max(held_size, static_cast<size_t>(state));
  }
  held_.append(piece);
  output.append(held_, 0, held_.size() - held_size);
  held_.erase(0, held_.size() - held_size);
  return kNoMatch;
}

void StopTextMatcher::finish(std::string& output) {
  output.append(held_);
  held_.clear();
}

}  // namespace heddle::request
