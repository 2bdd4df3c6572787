// SPDX-License-Identifier: Apache-2.0
#include "media/image_processor.h"

#include <algorithm>
#include <array>

namespace heddle::media {

namespace {

Image cropped(const Image& image, const Crop& crop) {
  Image part(crop.size);
  for (int64_t y = 0; y < crop.size.height; ++y) {
    std::copy_n(image.row(crop.y + y) + crop.x * 3, crop.size.width * 3, part.row(y));
  }
  return part;
}

}  // namespace

MediaResult<PlannedPiece> ImageProcessor::plan_piece(const Crop& source) const {
  const auto fitted = fit(config_.size, source.size);
  if (!fitted.ok()) return fitted.error();
  const int64_t rows = fitted->canvas.height / config_.patch;
  const int64_t columns = fitted->canvas.width / config_.patch;
  return PlannedPiece{.source = source,
                      .fitted = *fitted,
                      .grid_height = rows,
                      .grid_width = columns,
                      .tokens = (rows / config_.merge) * (columns / config_.merge)};
}

MediaResult<ImagePlan> ImageProcessor::plan(ImageSize picture) const {
  std::vector<Crop> sources = {{.size = picture}};
  if (config_.pan_and_scan) {
    const auto crops = crops_of(*config_.pan_and_scan, picture);
    sources.insert(sources.end(), crops.begin(), crops.end());
  }
  ImagePlan plan;
  int64_t scratch = 0;
  for (const Crop& source : sources) {
    auto piece = plan_piece(source);
    if (!piece.ok()) return piece.error();
    const auto& [content, canvas] = piece->fitted;
    plan.tokens += piece->tokens;
    plan.bytes += canvas.pixels() * 3 * config_.frames * static_cast<int64_t>(sizeof(float));
    // The scratch memory: the crop, the rows scaled horizontally, and the scaled result. The float
    // path stores floats in place of bytes.
    const int64_t per_value = config_.arithmetic == ResampleArithmetic::kFloat ? 4 : 1;
    scratch = std::max(scratch,
                       3 * (source.size.pixels() + per_value * source.size.height * content.width +
                            (per_value + 1) * content.pixels()));
    plan.pieces.push_back(std::move(*piece));
  }
  plan.bytes += scratch;
  return plan;
}

MediaResult<std::vector<Patches>> ImageProcessor::process(const Image& image) const {
  const auto planned = plan(image.size);
  if (!planned.ok()) return planned.error();
  std::vector<Patches> pieces;
  for (const PlannedPiece& piece : planned->pieces) {
    const ImageSize size = piece.fitted.content;
    const auto scaled = [&](const Image& source) {
      return cut(resample(source, size, config_.filter, config_.arithmetic), piece);
    };
    const bool is_whole = piece.source.size == image.size;
    pieces.push_back(is_whole ? scaled(image) : scaled(cropped(image, piece.source)));
  }
  return pieces;
}

Patches ImageProcessor::cut(const Image& content, const PlannedPiece& piece) const {
  const int64_t patch = config_.patch;
  const int64_t cell = config_.patch_order == PatchOrder::kMergedCells ? config_.merge : 1;
  const bool channel_last = config_.value_order == ValueOrder::kChannelLast;
  Patches patches{.grid_height = piece.grid_height,
                  .grid_width = piece.grid_width,
                  .features = 3 * config_.frames * patch * patch,
                  .values = {}};
  patches.values.resize(
      static_cast<size_t>(patches.grid_height * patches.grid_width * patches.features));
  float* out = patches.values.data();

  // Appends the patch whose top left pixel is (top, left) of the canvas. Pixels outside the picture
  // are 0.
  const auto cut_patch = [&](int64_t top, int64_t left) {
    const int64_t pixel_step = channel_last ? 3 : 1;
    const int64_t channel_step = channel_last ? 1 : config_.frames * patch * patch;
    for (int64_t y = 0; y < patch; ++y) {
      const bool row_exists = top + y < content.size.height;
      const uint8_t* const row = row_exists ? content.row(top + y) : nullptr;
      const int64_t known =
          row_exists ? std::clamp(content.size.width - left, int64_t{0}, patch) : 0;
      for (int64_t c = 0; c < 3; ++c) {
        const std::array<float, 256>& table = values_.channel(c);
        float* const to = out + c * channel_step + y * patch * pixel_step;
        for (int64_t x = 0; x < patch; ++x) {
          to[x * pixel_step] = table[x < known ? row[(left + x) * 3 + c] : 0];
        }
      }
    }
    if (!channel_last) {
      const int64_t frame = patch * patch;
      for (int64_t c = 0; c < 3; ++c) {
        float* const first = out + c * channel_step;
        for (int64_t f = 1; f < config_.frames; ++f) std::copy_n(first, frame, first + f * frame);
      }
    }
    out += patches.features;
  };
  for (int64_t block_y = 0; block_y < piece.grid_height; block_y += cell) {
    for (int64_t block_x = 0; block_x < piece.grid_width; block_x += cell) {
      for (int64_t y = block_y; y < block_y + cell; ++y) {
        for (int64_t x = block_x; x < block_x + cell; ++x) cut_patch(y * patch, x * patch);
      }
    }
  }
  return patches;
}

}  // namespace heddle::media
