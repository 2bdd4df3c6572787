// SPDX-License-Identifier: Apache-2.0
// StopTextMatcher finds stop texts and stop patterns in a text that arrives in pieces. It holds
// back only the characters that may begin a match.
//
// Each stop text has a Knuth-Morris-Pratt automaton, with amortised constant work per byte of text
// whatever its length; each pattern has a StopPatternSearch. A match ends at the earliest byte at
// which a text or pattern is complete. If several end there, the first in the request's order is
// reported, texts before patterns, and of a pattern its longest match.
//
// Threading: thread-confined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <heddle/request.h>
#include <heddle/stop_pattern.h>

namespace heddle::request {

// Finds a StopPattern anywhere in a text that arrives byte by byte. It follows a match from every
// possible start, at most one per state of the automaton: of two starts that reach the same state
// the earlier gives the longer match. Cost: at most kMaxStates steps a byte, usually one or two.
class StopPatternSearch {
 public:
  explicit StopPatternSearch(std::shared_ptr<const StopPattern> pattern)
      : pattern_(std::move(pattern)), taken_(pattern_->num_states(), -1) {}

  // Consumes a byte. Returns the length of the longest match that ends with it; 0: none.
  size_t push(uint8_t byte);

  // Length of the longest tail of the text that may be the beginning of a match.
  [[nodiscard]] size_t num_open() const { return num_open_; }

 private:
  struct Way {
    StopPattern::State state = StopPattern::kStart;
    int64_t begin = 0;
  };

  std::shared_ptr<const StopPattern> pattern_;
  std::vector<Way> ways_;       // matches in progress, ascending by `begin`
  std::vector<int64_t> taken_;  // by state of the automaton: the last position at which a match
                                // reached it
  int64_t place_ = 0;           // position of the next byte in the text
  size_t num_open_ = 0;
};

class StopTextMatcher {
 public:
  static constexpr int kNoMatch = -1;

  StopTextMatcher() = default;

  // With `keep_stop_text` in `stop` the matched text stays in the output.
  explicit StopTextMatcher(const StopConditions& stop);

  // Consumes a piece and appends to `output` the text that cannot begin a match. Returns the index
  // of the matched stop text, or the number of texts plus the index of the matched pattern, or
  // kNoMatch. After a match no more input is consumed. If `may_match` is false, matches are ignored
  // (min_new_tokens).
  int push(std::string_view piece, bool may_match, std::string& output);

  // Ends the text: appends the text held back to `output`.
  void finish(std::string& output);

  [[nodiscard]] size_t num_held_back() const { return held_.size(); }

 private:
  struct Automaton {
    std::string text;
    std::vector<int32_t> failure;  // failure[k]: longest proper border of the first k bytes
    int32_t state = 0;             // length of the longest prefix of `text` with which the input
                                   // ends
  };

  struct Match {
    int index = kNoMatch;
    size_t size = 0;  // length of the match in bytes
  };

  static void advance(Automaton& automaton, char byte);

  // Consumes a byte and returns the match that it completes, if any.
  Match take(char byte);

  // Length of the longest tail of the input that may begin a match.
  [[nodiscard]] size_t num_open() const;

  std::vector<Automaton> automata_;
  std::vector<StopPatternSearch> searches_;
  std::string held_;  // the tail of the input that may begin a match
  bool keep_match_ = false;
  bool matched_ = false;
};

}  // namespace heddle::request
