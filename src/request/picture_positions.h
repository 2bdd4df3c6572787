// SPDX-License-Identifier: Apache-2.0
// PicturePositions: the positions of a sequence's tokens on three axes (time,
// row, column), as models that see pictures rotate by them (Wang et al.,
// arXiv:2409.12191). Text advances by one on all axes. A picture whose first
// token would be at p has (p, p + row, p + column), and the text behind it goes
// on at p + max(rows, columns).
//
// Positions follow from the spans before a token alone, so they are computed
// from its index and never stored: chunks may end anywhere, also in a span, and
// a sequence that starts again gets the same ones.
//
// Threading: immutable after construction. Cost: a position takes a binary
// search over the spans.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <heddle/status.h>

#include "request/media_span.h"

namespace heddle::request {

class PicturePositions {
 public:
  static constexpr size_t kAxes = 3;

  // A sequence without pictures.
  PicturePositions() = default;

  // Error: kInvalidArgument, naming the span, where spans do not ascend,
  // overlap or are empty.
  static Result<PicturePositions> create(std::vector<MediaSpan> spans);

  [[nodiscard]] std::array<int32_t, kAxes> at(int64_t index) const;

  // The span that the token belongs to; null: it is text.
  [[nodiscard]] const MediaSpan* span_at(int64_t index) const;

  [[nodiscard]] const std::vector<MediaSpan>& spans() const { return spans_; }

 private:
  // Spans that start at or before the token.
  [[nodiscard]] size_t num_started(int64_t index) const;

  std::vector<MediaSpan> spans_;
  std::vector<int64_t> shifts_{0};  // [i]: position less index of text behind i spans
};

}  // namespace heddle::request
