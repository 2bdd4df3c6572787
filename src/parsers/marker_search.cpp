// SPDX-License-Identifier: Apache-2.0
#include "parsers/marker_search.h"

#include <algorithm>

namespace heddle::parsers {

MarkerHit find_marker(std::string_view text, std::span<const std::string_view> markers) {
  MarkerHit hit{.position = text.size(), .marker = {}};
  for (const std::string_view marker : markers) {
    const size_t position = text.find(marker);
    if (position < hit.position ||
        (position == hit.position && marker.size() > hit.marker.size())) {
      hit = {.position = position, .marker = marker};
    }
  }
  size_t longest = 0;
  for (const std::string_view marker : markers) longest = std::max(longest, marker.size());
  const size_t tail = text.size() - std::min(text.size(), longest);
  for (size_t i = tail; i < std::min(hit.position, text.size()); ++i) {
    for (const std::string_view marker : markers) {
      if (marker.starts_with(text.substr(i))) return {.position = i, .marker = {}};
    }
  }
  return hit;
}

Match begins_with(std::string_view text, std::span<const std::string_view> markers,
                  std::string_view* found) {
  Match match = Match::kNo;
  for (const std::string_view marker : markers) {
    if (text.starts_with(marker)) {
      *found = marker;
      return Match::kYes;
    }
    if (marker.starts_with(text)) match = Match::kMore;
  }
  return match;
}

size_t space_size(std::string_view text) {
  return std::min(text.find_first_not_of(" \t\n\r"), text.size());
}

}  // namespace heddle::parsers
