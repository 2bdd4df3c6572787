// SPDX-License-Identifier: Apache-2.0
// StopTextMatcher finds stop texts in a text that arrives in pieces, and holds back only those
// characters that may still become one.
//
// One Knuth-Morris-Pratt automaton per stop text: the work per byte of text is amortised constant
// for each of them, whatever their length. A match ends at the earliest byte at which some stop
// text is complete; if several end there, the first in the request's order is reported.
//
// Threading: thread-confined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::request {

class StopTextMatcher {
 public:
  static constexpr int kNoMatch = -1;

  StopTextMatcher() = default;

  // `keep_match`: the matched stop text stays part of the output.
  StopTextMatcher(const std::vector<std::string>& texts, bool keep_match);

  // Takes the next piece and appends to `output` what is certain not to begin a stop text. Returns
  // the index of the stop text that was completed, or kNoMatch. After a match nothing more is
  // taken. With `may_match` false complete stop texts are passed over (min_new_tokens).
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

  static void advance(Automaton& automaton, char byte);

  std::vector<Automaton> automata_;
  std::string held_;  // the tail of the input that may begin a stop text
  bool keep_match_ = false;
  bool matched_ = false;
};

}  // namespace heddle::request
