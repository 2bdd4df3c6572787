// SPDX-License-Identifier: Apache-2.0
// Looks for markers ("<tool_call>", "</think>") in text that arrives in pieces, and for what a text
// that goes on may still turn out to be.
//
// Threading: free functions; the count of searched bytes is each thread's own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace heddle::parsers {

// Bytes that the parsers of this thread have looked at so far, each as often as they did. Tests
// hold it to a multiple of the text.
[[nodiscard]] uint64_t searched_bytes();
void count_searched(size_t bytes);

struct MarkerHit {
  size_t position = 0;      // the text's size if there is nothing
  std::string_view marker;  // empty unless a whole one is there

  [[nodiscard]] size_t end() const { return position + marker.size(); }
};

// The first position of a marker, or of a marker's beginning at the end of the text; the longer one
// of two markers. Cost: O(position * markers): later text is not examined.
[[nodiscard]] MarkerHit find_marker(std::string_view text,
                                    std::span<const std::string_view> markers);

// How an incomplete text matches a pattern.
enum class Match { kMore, kNo, kYes };

// Whether `text` begins with one of `markers`, the longest of which is `*found` then.
[[nodiscard]] Match begins_with(std::string_view text, std::span<const std::string_view> markers,
                                std::string_view* found);

// Bytes of white space (blank, tab, line feed, carriage return) at the front.
[[nodiscard]] size_t space_size(std::string_view text);

// When to look again at held text that may still become something: once it has grown by an eighth,
// where it is long, so that all looks at it together cost O(text) however it arrives.
class Patience {
 public:
  // `decided_at`: a text of that many bytes is always decided.
  explicit Patience(size_t decided_at) : decided_at_(decided_at) {}

  [[nodiscard]] bool waits(size_t held) const { return held < next_look_; }

  // So many bytes were not enough to tell.
  void hold(size_t held) {
    next_look_ = held < kShort ? held + 1 : held + held / 8 + 1;
    if (held < decided_at_) next_look_ = std::min(next_look_, decided_at_);
  }

 private:
  static constexpr size_t kShort = 64;  // so little is looked at each time: nothing comes late

  size_t decided_at_;
  size_t next_look_ = 0;
};

}  // namespace heddle::parsers
