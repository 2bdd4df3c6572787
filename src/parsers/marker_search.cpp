// SPDX-License-Identifier: Apache-2.0
#include "parsers/marker_search.h"

#include <string>

namespace heddle::parsers {
namespace {

thread_local uint64_t searched = 0;

}  // namespace

uint64_t searched_bytes() { return searched; }

void count_searched(size_t bytes) { searched += bytes; }

MarkerHit find_marker(std::string_view text, std::span<const std::string_view> markers) {
  std::string firsts;
  for (const std::string_view marker : markers) {
    if (firsts.find(marker.front()) == std::string::npos) firsts += marker.front();
  }
  size_t place = 0;
  for (;; ++place) {
    const size_t from = place;
    place = std::min(text.find_first_of(firsts, place), text.size());
    count_searched(place - from);
    if (place == text.size()) break;
    std::string_view found;
    const Match match = begins_with(text.substr(place), markers, &found);
    if (match == Match::kYes) return {.position = place, .marker = found};
    if (match == Match::kMore) break;
  }
  return {.position = place, .marker = {}};
}

Match begins_with(std::string_view text, std::span<const std::string_view> markers,
                  std::string_view* found) {
  Match match = Match::kNo;
  *found = {};
  for (const std::string_view marker : markers) {
    if (text.starts_with(marker)) {
      match = Match::kYes;
      if (marker.size() > found->size()) *found = marker;
    } else if (match == Match::kNo && marker.starts_with(text)) {
      match = Match::kMore;
    }
    count_searched(1);
  }
  return match;
}

size_t space_size(std::string_view text) {
  const size_t size = std::min(text.find_first_not_of(" \t\n\r"), text.size());
  count_searched(size);
  return size;
}

}  // namespace heddle::parsers
