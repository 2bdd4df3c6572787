// SPDX-License-Identifier: Apache-2.0
#include "request/stop_text_matcher.h"

#include <algorithm>

#include "core/check.h"

namespace heddle::request {

size_t StopPatternSearch::push(uint8_t byte) {
  ways_.push_back({.state = StopPattern::kStart, .begin = place_});
  const int64_t end = place_ + 1;
  size_t match = 0;
  num_open_ = 0;
  size_t num_kept = 0;
  for (const Way& way : ways_) {
    const StopPattern::State state = pattern_->next(way.state, byte);
    if (state == StopPattern::kNone || taken_[state] == place_) continue;
    taken_[state] = place_;
    const auto length = static_cast<size_t>(end - way.begin);
    if (match == 0 && pattern_->is_final(state)) match = length;
    if (!pattern_->goes_on(state)) continue;
    if (num_open_ == 0) num_open_ = length;
    ways_[num_kept++] = {.state = state, .begin = way.begin};
  }
  ways_.resize(num_kept);
  place_ = end;
  return match;
}

StopTextMatcher::StopTextMatcher(const StopConditions& stop)
    : searches_(stop.patterns.begin(), stop.patterns.end()), keep_match_(stop.keep_stop_text) {
  automata_.reserve(stop.texts.size());
  for (const std::string& text : stop.texts) {
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
  // The text was matched completely, and the match was ignored.
  if (state == static_cast<int32_t>(automaton.text.size())) {
    state = automaton.failure[static_cast<size_t>(state)];
  }
  while (state > 0 && automaton.text[static_cast<size_t>(state)] != byte) {
    state = automaton.failure[static_cast<size_t>(state)];
  }
  if (automaton.text[static_cast<size_t>(state)] == byte) ++state;
  automaton.state = state;
}

StopTextMatcher::Match StopTextMatcher::take(char byte) {
  Match match;
  for (size_t a = 0; a < automata_.size(); ++a) {
    advance(automata_[a], byte);
    const bool complete = automata_[a].state == static_cast<int32_t>(automata_[a].text.size());
    if (complete && match.index == kNoMatch) {
      match = {.index = static_cast<int>(a), .size = automata_[a].text.size()};
    }
  }
  for (size_t i = 0; i < searches_.size(); ++i) {
    const size_t size = searches_[i].push(static_cast<uint8_t>(byte));
    if (size > 0 && match.index == kNoMatch) {
      match = {.index = static_cast<int>(automata_.size() + i), .size = size};
    }
  }
  return match;
}

// A complete text whose match was ignored must not hold anything back: only its longest border can
// still grow into a match.
size_t StopTextMatcher::num_open() const {
  size_t open = 0;
  for (const Automaton& automaton : automata_) {
    const bool complete = automaton.state == static_cast<int32_t>(automaton.text.size());
    const int32_t state =
        complete ? automaton.failure[static_cast<size_t>(automaton.state)] : automaton.state;
    open = std::max(open, static_cast<size_t>(state));
  }
  for (const StopPatternSearch& search : searches_) open = std::max(open, search.num_open());
  return open;
}

int StopTextMatcher::push(std::string_view piece, bool may_match, std::string& output) {
  if (matched_) return kNoMatch;
  if (automata_.empty() && searches_.empty()) {
    output.append(piece);
    return kNoMatch;
  }
  for (size_t i = 0; i < piece.size(); ++i) {
    const Match match = take(piece[i]);
    if (match.index == kNoMatch || !may_match) continue;
    held_.append(piece.substr(0, i + 1));
    HEDDLE_CHECK_GE(held_.size(), match.size);
    output.append(held_, 0, keep_match_ ? held_.size() : held_.size() - match.size);
    held_.clear();
    matched_ = true;
    return match.index;
  }
  held_.append(piece);
  const size_t certain = held_.size() - num_open();
  output.append(held_, 0, certain);
  held_.erase(0, certain);
  return kNoMatch;
}

void StopTextMatcher::finish(std::string& output) {
  output.append(held_);
  held_.clear();
}

}  // namespace heddle::request
