// SPDX-License-Identifier: Apache-2.0
// StopPatternSearch finds a StopPattern anywhere in a text that arrives byte by byte.
//
// It follows a match from every place where one may have begun, at most one to each state of the
// automaton: of two in the same state the earlier is the longer match.
//
// Threading: thread-confined. Cost: at most kMaxStates steps a byte, as a rule one or two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <heddle/stop_pattern.h>

namespace heddle::request {

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

}  // namespace heddle::request
