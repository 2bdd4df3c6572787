// SPDX-License-Identifier: Apache-2.0
#include "verify/golden_pictures.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace heddle::verify {

namespace {

// The tokens of each picture in the prompt.
Result<std::vector<request::MediaSpan>> find_spans(const GoldenCase& golden,
                                                   const models::VisionConfig& config) {
  const auto placeholder = static_cast<TokenId>(config.image_token);
  std::vector<request::MediaSpan> spans;
  auto after = golden.ids.begin();  // the end of the previous picture
  for (const RecordedPictures::Grid& grid : golden.recorded_pictures->grids) {
    const int64_t first_row = spans.empty() ? 0 : spans.back().first_row + spans.back().count();
    const auto start = std::find(after, golden.ids.end(), placeholder);
    const request::MediaSpan span{.start = start - golden.ids.begin(),
                                  .rows = grid.height / config.merge,
                                  .columns = grid.width / config.merge,
                                  .image = std::ssize(spans),
                                  .first_row = first_row};
    const bool is_there = span.count() <= golden.ids.end() - start &&
                          std::count(start, start + span.count(), placeholder) == span.count();
    if (!is_there) {
      return invalid_argument(fmt::format(
          "{}: picture {} has {} tokens, but there are not as many placeholders from token {} on",
          golden.name, span.image, span.count(), span.start));
    }
    after = start + span.count();
    spans.push_back(span);
  }
  const int64_t more = std::count(after, golden.ids.end(), placeholder);
  if (more > 0) {
    return invalid_argument(fmt::format("{}: {} placeholders remain after those of {} pictures",
                                        golden.name, more, spans.size()));
  }
  return spans;
}

Status compare_positions(const GoldenCase& golden, const request::PicturePositions& positions) {
  const std::vector<int32_t>& recorded = golden.recorded_pictures->positions;
  const size_t T = golden.ids.size();
  for (size_t i = 0; i < recorded.size(); ++i) {
    const int32_t position = positions.at(static_cast<int64_t>(i % T))[i / T];
    if (position == recorded[i]) continue;
    return data_loss(fmt::format("{}: token {} has position {} on axis {}, the recorded one is {}",
                                 golden.name, i % T, position, i / T, recorded[i]));
  }
  return {};
}

}  // namespace

Status encode_pictures(runner::VisionEncoder& encoder, GoldenCase& golden) {
  if (!golden.recorded_pictures) return {};
  const models::VisionConfig& config = encoder.config();
  const RecordedPictures& recorded = *golden.recorded_pictures;
  HEDDLE_ASSIGN_OR_RETURN(std::vector<request::MediaSpan> spans, find_spans(golden, config));
  int64_t num_rows = 0;
  for (const request::MediaSpan& span : spans) num_rows += span.count();
  GoldenPictures pictures;
  HEDDLE_ASSIGN_OR_RETURN(pictures.positions, request::PicturePositions::create(std::move(spans)));
  HEDDLE_RETURN_IF_ERROR(compare_positions(golden, pictures.positions));
  pictures.features = Tensor({num_rows, config.feature_width()}, DType::kF32);
  auto* to = pictures.features.span<float>().data();
  int64_t first_patch = 0;
  for (const RecordedPictures::Grid& grid : recorded.grids) {
    const models::PatchGrid patches{.height = grid.height, .width = grid.width};
    const std::span<const float> values(
        recorded.patches.view().row<float>(first_patch),
        static_cast<size_t>(patches.patches() * recorded.patches.shape()[1]));
    HEDDLE_ASSIGN_OR_RETURN(const Tensor features, encoder.encode(patches, values));
    to = std::ranges::copy(features.span<float>(), to).out;
    first_patch += patches.patches();
  }
  golden.pictures = std::move(pictures);
  return {};
}

}  // namespace heddle::verify
