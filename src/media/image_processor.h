// SPDX-License-Identifier: Apache-2.0
// Converts a decoded picture to the patches that a model's vision tower reads.
//
// plan() needs only a picture's size, so prompts are expanded and unsuitable pictures refused
// before anything is decoded. process() returns patches of the planned shapes.
//
// Threading: immutable after construction.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "media/image.h"
#include "media/image_processor_config.h"
#include "media/media_error.h"

namespace heddle::media {

// One input of the vision tower: the whole picture or a crop of it.
struct PlannedPiece {
  Crop source;
  FittedSize fitted;
  int64_t grid_height = 0;  // number of patches from top to bottom
  int64_t grid_width = 0;
  int64_t tokens = 0;  // grid_height * grid_width / merge^2
};

struct ImagePlan {
  std::vector<PlannedPiece> pieces;
  int64_t tokens = 0;  // tokens of all pieces together
  int64_t bytes = 0;   // peak memory of process(), the result included
};

// The patches of one piece: values [grid_height * grid_width, features] with features = 3 * frames
// * patch^2.
struct Patches {
  int64_t grid_height = 0;
  int64_t grid_width = 0;
  int64_t features = 0;
  std::vector<float> values;
};

class ImageProcessor {
 public:
  explicit ImageProcessor(ImageProcessorConfig config)
      : config_(std::move(config)), values_(config_.normalisation) {}

  // Plans an upright picture of this size. Error: as fit().
  [[nodiscard]] MediaResult<ImagePlan> plan(ImageSize picture) const;

  // Returns the patches of the plan's pieces, in order. Error: as plan().
  [[nodiscard]] MediaResult<std::vector<Patches>> process(const Image& image) const;

  [[nodiscard]] const ImageProcessorConfig& config() const { return config_; }

 private:
  MediaResult<PlannedPiece> plan_piece(const Crop& source) const;
  Patches cut(const Image& content, const PlannedPiece& piece) const;

  ImageProcessorConfig config_;
  PixelValues values_;
};

}  // namespace heddle::media
