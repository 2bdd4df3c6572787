// SPDX-License-Identifier: Apache-2.0
// A decoded picture to the patches that a model's vision tower reads.
//
// plan() needs a picture's size only: prompts are expanded, and pictures refused, before anything
// is decoded. process() makes what the plan announced.
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

// One picture for the tower: the whole, or a crop of it.
struct PlannedPiece {
  Crop source;
  FittedSize fitted;
  int64_t grid_height = 0;  // patches
  int64_t grid_width = 0;
  int64_t tokens = 0;  // grid_height * grid_width / merge^2
};

struct ImagePlan {
  std::vector<PlannedPiece> pieces;
  int64_t tokens = 0;  // of all pieces
  int64_t bytes = 0;   // of memory that process() takes at one time, its result included
};

// Values are [grid_height * grid_width, features], features = 3 * frames * patch^2.
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

  // Of an upright picture. Error: as fit().
  [[nodiscard]] MediaResult<ImagePlan> plan(ImageSize picture) const;

  // The pieces of the plan, in order. Error: as plan().
  [[nodiscard]] MediaResult<std::vector<Patches>> process(const Image& image) const;

  [[nodiscard]] const ImageProcessorConfig& config() const { return config_; }

 private:
  MediaResult<PlannedPiece> plan_piece(const Crop& source) const;
  Patches cut(const Image& content, const PlannedPiece& piece) const;

  ImageProcessorConfig config_;
  PixelValues values_;
};

}  // namespace heddle::media
