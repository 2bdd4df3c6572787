// SPDX-License-Identifier: Apache-2.0
// Looks for markers ("<tool_call>", "</think>") in text that arrives in pieces, and for what a text
// that goes on may still turn out to be.
//
// Threading: free functions without state.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace heddle::parsers {

struct MarkerHit {
  size_t position = 0;      // the text's size if there is nothing
  std::string_view marker;  // empty unless a whole one is there

  [[nodiscard]] size_t end() const { return position + marker.size(); }
};

// The first place where a marker stands, or where the text ends with the beginning of one. Of two
// markers that begin there, the longer one. Cost: O(text * markers).
[[nodiscard]] MarkerHit find_marker(std::string_view text,
                                    std::span<const std::string_view> markers);

// How far a text that goes on fits a pattern.
enum class Match { kMore, kNo, kYes };

// Whether `text` begins with one of `markers`, which is `*found` then.
[[nodiscard]] Match begins_with(std::string_view text, std::span<const std::string_view> markers,
                                std::string_view* found);

// Bytes of white space (blank, tab, line feed, carriage return) at the front.
[[nodiscard]] size_t space_size(std::string_view text);

}  // namespace heddle::parsers
