// SPDX-License-Identifier: Apache-2.0
#include "request/picture_positions.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace heddle::request {

Result<PicturePositions> PicturePositions::create(std::vector<MediaSpan> spans) {
  constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
  PicturePositions positions;
  int64_t end = 0;
  for (const MediaSpan& span : spans) {
    const bool has_size = span.rows > 0 && span.columns > 0 && span.rows <= kMostTokens &&
                          span.columns <= kMostTokens / span.rows;
    if (!has_size || span.start < end || span.start > kMostTokens - span.count()) {
      return invalid_argument(
          fmt::format("the picture of {} x {} tokens at {} does not follow the "
                      "one before it, which ends at {}",
                      span.rows, span.columns, span.start, end));
    }
    end = span.end();
    positions.shifts_.push_back(positions.shifts_.back() + std::max(span.rows, span.columns) -
                                span.count());
  }
  positions.spans_ = std::move(spans);
  return positions;
}

size_t PicturePositions::num_started(int64_t index) const {
  const auto after = std::ranges::upper_bound(spans_, index, {}, &MediaSpan::start);
  return static_cast<size_t>(after - spans_.begin());
}

const MediaSpan* PicturePositions::span_at(int64_t index) const {
  const size_t started = num_started(index);
  if (started == 0 || index >= spans_[started - 1].end()) return nullptr;
  return &spans_[started - 1];
}

std::array<int32_t, PicturePositions::kAxes> PicturePositions::at(int64_t index) const {
  const size_t started = num_started(index);
  if (started == 0 || index >= spans_[started - 1].end()) {
    const auto position = static_cast<int32_t>(index + shifts_[started]);
    return {position, position, position};
  }
  const MediaSpan& span = spans_[started - 1];
  const int64_t first = span.start + shifts_[started - 1], cell = index - span.start;
  return {static_cast<int32_t>(first), static_cast<int32_t>(first + cell / span.columns),
          static_cast<int32_t>(first + cell % span.columns)};
}

}  // namespace heddle::request
