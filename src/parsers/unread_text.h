// SPDX-License-Identifier: Apache-2.0
// UnreadText: the text of an answer that a parser has got and not read yet. A parser is a state
// machine that reads it by steps, each off the front.
//
// Threading: thread-compatible.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace heddle::parsers {

class UnreadText {
 public:
  void append(std::string_view text) { text_ += text; }

  // Calls step(text) -> bytes it read off the front of `text`, which is all that is left, until a
  // step reads nothing and leaves `state` as it was.
  template <typename State, typename Step>
  void read(const State& state, const Step& step) {
    size_t begin = 0;
    while (true) {
      const State before = state;
      const size_t used = step(std::string_view(text_).substr(begin));
      begin += used;
      if (used == 0 && state == before) break;
    }
    text_.erase(0, begin);
  }

  // Empty after a read() whose steps took everything.
  [[nodiscard]] std::string_view text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace heddle::parsers
