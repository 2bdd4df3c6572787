// SPDX-License-Identifier: Apache-2.0
#include "request/stop_pattern_search.h"

namespace heddle::request {

size_t StopPatternSearch::push(uint8_t byte) {
  ways_.push_back({.state = StopPattern::kStart, .begin = place_});
  const int64_t end = place_ + 1;
  size_t match = 0;
  num_open_ = 0;
  size_t num_kept = 0;
  for (const Way& way : ways_) {
    const StopPattern::State state = pattern_->next(way.state, byte);
    if (state == StopPattern::kNone || taken_[state] == place_) continue;
    taken_[state] = place_;
    const auto length = static_cast<size_t>(end - way.begin);
    if (match == 0 && pattern_->is_final(state)) match = length;
    if (!pattern_->goes_on(state)) continue;
    if (num_open_ == 0) num_open_ = length;
    ways_[num_kept++] = {.state = state, .begin = way.begin};
  }
  ways_.resize(num_kept);
  place_ = end;
  return match;
}

}  // namespace heddle::request
