// SPDX-License-Identifier: Apache-2.0
// The whole way of a picture: header, plan, memory, pixels, patches. To be called on threads that
// may wait and compute for long, never on those of connections or of the engine.
//
// Threading: thread-safe; `memory` and `clock` are shared by all calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/clock.h"
#include "media/image_decoder.h"
#include "media/image_processor.h"
#include "media/media_memory.h"

namespace heddle::media {

struct PreparedPicture {
  ImageSize size;  // upright, before it was scaled
  std::vector<Patches> patches;
  MediaMemory::Share memory;  // of the patches
};

struct PrepareContext {
  const ImageProcessor& processor;
  MediaMemory& memory;
  const Clock& clock;
  double max_seconds = 10;  // of decoding
};

// Refuses what it can by the header, before it waits for memory. Error:
// those of decode_image(), ImageProcessor::plan() and MediaMemory::acquire(); kTooExpensive for a
// picture that decodes longer than max_seconds.
MediaResult<PreparedPicture> prepare_picture(std::span<const uint8_t> file,
                                             const DecodeOptions& options,
                                             const PrepareContext& context,
                                             const StopCheck& stop = {});

}  // namespace heddle::media
