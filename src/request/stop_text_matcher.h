// SPDX-License-Identifier: Apache-2.0
// StopTextMatcher finds stop texts and stop patterns in a text that arrives in pieces, and holds
// back only those characters that may still become one.
//
// One Knuth-Morris-Pratt automaton per stop text: the work per byte of text is amortised constant
// for each of them, whatever their length; stop_pattern_search.h for patterns. A match ends at the
// earliest byte at which something is complete; if several end there, the first in the request's
// order is reported, texts before patterns, and the longest match of a pattern.
//
// Threading: thread-confined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/request.h>

#include "request/stop_pattern_search.h"

namespace heddle::request {

class StopTextMatcher {
 public:
  static constexpr int kNoMatch = -1;

  StopTextMatcher() = default;

  // Of `texts` and `patterns`; with `keep_stop_text` the match stays part of the output.
  explicit StopTextMatcher(const StopConditions& stop);

  // Takes the next piece and appends to `output` what is certain not to begin a match. Returns the
  // index of what was completed, a pattern's behind those of all texts, or kNoMatch. After a match
  // nothing more is taken. With `may_match` false matches are passed over (min_new_tokens).
  int push(std::string_view piece, bool may_match, std::string& output);

  // Appends what was held back; the text ends here.
  void finish(std::string& output);

  [[nodiscard]] size_t num_held_back() const { return held_.size(); }

 private:
  struct Automaton {
    std::string text;
    std::vector<int32_t> failure;  // failure[k]: longest proper border of the first k bytes
    int32_t state = 0;             // bytes of `text` that the input now ends with
  };

  struct Match {
    int index = kNoMatch;
    size_t size = 0;  // bytes
  };

  static void advance(Automaton& automaton, char byte);

  // Takes the next byte and returns the match that it completes, if any.
  Match take(char byte);

  // Bytes at the end of the input that a match may begin with.
  [[nodiscard]] size_t num_open() const;

  std::vector<Automaton> automata_;
  std::vector<StopPatternSearch> searches_;
  std::string held_;  // the tail of the input that may begin a match
  bool keep_match_ = false;
  bool matched_ = false;
};

}  // namespace heddle::request
