// SPDX-License-Identifier: Apache-2.0
// Runs all steps from a picture's file to its patches: read the header, plan, wait for memory,
// decode, cut into patches. Call it on threads that may wait and compute for a long time, never on
// threads of connections or of the engine.
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
  ImageSize size;  // size of the upright picture before it is scaled
  std::vector<Patches> patches;
  MediaMemory::Share memory;  // the share that the patches use
};

struct PrepareContext {
  const ImageProcessor& processor;
  MediaMemory& memory;
  const Clock& clock;
  double max_seconds = 10;  // limit on the time for decoding
};

// Refuses a picture by its header if possible, before it waits for memory. Error: those of
// decode_image(), ImageProcessor::plan() and MediaMemory::acquire(); kTooExpensive if decoding
// takes longer than max_seconds.
MediaResult<PreparedPicture> prepare_picture(std::span<const uint8_t> file,
                                             const DecodeOptions& options,
                                             const PrepareContext& context,
                                             const StopCheck& stop = {});

}  // namespace heddle::media
