// SPDX-License-Identifier: Apache-2.0
// UnreadText: the text that a parser has received and not consumed yet. The parser is a state
// machine; each of its steps consumes text from the front.
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

  // Calls step(text) until a step consumes nothing and leaves `state` unchanged. `text` is all
  // unread text; step() returns the number of bytes that it consumed at its front.
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

  // The unread text; empty if the last read() consumed everything.
  [[nodiscard]] std::string_view text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace heddle::parsers
