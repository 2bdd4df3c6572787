// SPDX-License-Identifier: Apache-2.0
// Searches for markers ("<tool_call>", "</think>") in text that arrives in pieces. The end of a
// text may be the beginning of a marker.
//
// Threading: free functions; each thread counts its searched bytes separately.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace heddle::parsers {

// Number of bytes that the parsers of this thread have examined, counted each time a byte is
// examined. Tests check that it is at most a small multiple of the text.
[[nodiscard]] uint64_t searched_bytes();
void count_searched(size_t bytes);

struct MarkerHit {
  size_t position = 0;      // position of the hit; the text's size if there is none
  std::string_view marker;  // the marker if it is complete; otherwise empty

  [[nodiscard]] size_t end() const { return position + marker.size(); }
};

// The first position of a marker, or of the beginning of a marker at the end of the text. If two
// markers begin there, the longer one. Cost: O(position * markers): later text is not examined.
[[nodiscard]] MarkerHit find_marker(std::string_view text,
                                    std::span<const std::string_view> markers);

// Whether an incomplete text matches a pattern; kMore if more text is needed to decide.
enum class Match { kMore, kNo, kYes };

// Whether `text` begins with one of `markers`; `*found` is then the longest one.
[[nodiscard]] Match begins_with(std::string_view text, std::span<const std::string_view> markers,
                                std::string_view* found);

// Number of white-space bytes (blank, tab, line feed, carriage return) at the beginning of the
// text.
[[nodiscard]] size_t space_size(std::string_view text);

// Decides when to examine held-back text again. Short text is examined each time; long text when it
// has grown by an eighth, so that all examinations together cost O(text), however it is split.
class Patience {
 public:
  // `decided_at`: a text of this many bytes is always decided.
  explicit Patience(size_t decided_at) : decided_at_(decided_at) {}

  [[nodiscard]] bool waits(size_t held) const { return held < next_look_; }

  // Records that `held` bytes were not enough to decide.
  void hold(size_t held) {
    next_look_ = held < kShort ? held + 1 : held + held / 8 + 1;
    if (held < decided_at_) next_look_ = std::min(next_look_, decided_at_);
  }

 private:
  static constexpr size_t kShort = 64;  // up to this many bytes are examined each time, so that
                                        // short text is never delayed

  size_t decided_at_;
  size_t next_look_ = 0;
};

}  // namespace heddle::parsers
