// SPDX-License-Identifier: Apache-2.0
// PicturePositions: the positions of a sequence's tokens on three axes (time, row, column), by
// which models with vision rotate queries and keys (Wang et al., arXiv:2409.12191). Text advances
// by one on all axes. If text in the place of a picture would begin at position p, the tokens of
// the picture have (p, p + row, p + column), and the text after it continues at p + max(rows,
// columns).
//
// A position depends only on the token's index and the spans before it, so it is computed on demand
// and never stored. Therefore chunks may end within a span, and a sequence that is retracted and
// restarted gets the same positions.
//
// Threading: immutable after construction. Cost: a position takes a binary search over the spans.
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

  // Error: kInvalidArgument, naming the span, if a span is empty, too large, overlaps the one
  // before it, or starts before it.
  static Result<PicturePositions> create(std::vector<MediaSpan> spans);

  // The position of the token at `index` of the sequence.
  [[nodiscard]] std::array<int32_t, kAxes> at(int64_t index) const;

  // The span that contains the token; null: the token is text.
  [[nodiscard]] const MediaSpan* span_at(int64_t index) const;

  [[nodiscard]] const std::vector<MediaSpan>& spans() const { return spans_; }

 private:
  // The number of spans that start at or before the token.
  [[nodiscard]] size_t num_started(int64_t index) const;

  std::vector<MediaSpan> spans_;
  std::vector<int64_t> shifts_{0};  // [i]: position minus index, for text after i spans
};

}  // namespace heddle::request
