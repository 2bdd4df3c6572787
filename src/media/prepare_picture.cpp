// SPDX-License-Identifier: Apache-2.0
#include "media/prepare_picture.h"

#include <utility>

#include <fmt/format.h>

namespace heddle::media {

MediaResult<PreparedPicture> prepare_picture(std::span<const uint8_t> file,
                                             const DecodeOptions& options,
                                             const PrepareContext& context, const StopCheck& stop) {
  const auto header = read_image_header(file, options.limits);
  if (!header.ok()) return header.error();
  const auto plan =
      context.processor.plan(options.turn_upright ? header->upright() : header->stored);
  if (!plan.ok()) return plan.error();
  auto share = context.memory.acquire(header->decode_bytes() + plan->bytes, stop);
  if (!share.ok()) return share.error();

  const double deadline = context.clock.now_seconds() + context.max_seconds;
  bool late = false;
  auto image = decode_image(file, options, [&] {
    late = context.clock.now_seconds() > deadline;
    return late || (stop && stop());
  });
  if (!image.ok() && late) {
    return MediaError{
        MediaFault::kTooExpensive,
        fmt::format("decoding the picture takes longer than {:g} s; send a smaller one",
                    context.max_seconds)};
  }
  if (!image.ok()) return image.error();
  if (stop && stop()) return MediaError{MediaFault::kCancelled, "the picture was stopped"};
  auto patches = context.processor.process(*image);
  if (!patches.ok()) return patches.error();
  const ImageSize size = image->size;
  *image = Image();
  int64_t bytes = 0;
  for (const Patches& piece : *patches) {
    bytes += static_cast<int64_t>(piece.values.size() * sizeof(float));
  }
  share->shrink(bytes);
  return PreparedPicture{.size = size, .patches = std::move(*patches), .memory = std::move(*share)};
}

}  // namespace heddle::media
