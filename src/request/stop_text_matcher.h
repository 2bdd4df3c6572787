// SPDX-License-Identifier: Apache-2.0
// StopTextMatcher finds stop texts and stop patterns in a text that arrives in pieces, and holds
// back only those characters that may still become one.
//
// One Knuth-Morris-Pratt automaton per stop text: the work per byte of text is amortised constant
// for each of them, whatever their length; a StopPatternSearch per pattern. A match ends at the
// earliest byte at which something is complete; if several end there, the first in the request's
// order is reported, texts before patterns, and the longest match of a pattern.
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
// place where one may have begun, at most one to each state of the automaton: of two in the same
// state the earlier is the longer match. Cost: at most kMaxStates steps a byte, as a rule one or
// two.
class StopPatternSearch {
 public:
  explicit StopPatternSearch(std::shared_ptr<const StopPattern> pattern)
      : pattern_(std::move(pattern)), taken_(pattern_->num_states(), -1) {}

  // Takes the next byte. Returns the length of the longest match that ends with it; 0: none does.
  size_t push(uint8_t byte);

  // How many bytes at the end of the text a match may begin with that more of it would complete.
  [[nodiscard]] size_t num_open() const { return num_open_; }

 private:
  struct Way {
    StopPattern::State state = StopPattern::kStart;
    int64_t begin = 0;
  };

  std::shared_ptr<const StopPattern> pattern_;
  std::vector<Way> ways_;       // by rising begin
  std::vector<int64_t> taken_;  // by state: the last place at which a way came to it
  int64_t place_ = 0;           // bytes before the next one
  size_t num_open_ = 0;
};

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
