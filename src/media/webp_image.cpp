// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <webp/decode.h>

#include "media/byte_order.h"
#include "media/exif.h"
#include "media/picture_formats.h"

namespace heddle::media {

namespace {

// Number of encoded bytes that are decoded between two calls of `stop`.
constexpr size_t kWebpPortionBytes = size_t{16} << 10;

MediaError broken_webp(std::string_view complaint) {
  return {MediaFault::kDecodeFailed,
          fmt::format("the WebP file is broken: {}; save the picture again", complaint)};
}

struct RiffChunk {
  size_t begin = 0;  // offset of the chunk's data, which follows type and length
  size_t length = 0;
};

// Finds the first chunk of type `type` at or after `at` whose header ends before `end`. A chunk has
// a type of four letters, a length, and data padded to an even length. A chunk that the file cuts
// off is found with the data that is there.
std::optional<RiffChunk> find_chunk(std::span<const uint8_t> file, size_t at, size_t end,
                                    std::string_view type) {
  while (at <= end && end - at >= 8) {
    const size_t length = little32(file, at + 4);
    const size_t room = end - at - 8;
    if (has_bytes(file, at, type))
      return RiffChunk{.begin = at + 8, .length = std::min(length, room)};
    if (length >= room) break;
    at += 8 + length + length % 2;
  }
  return std::nullopt;
}

constexpr size_t kRiffHeaderBytes = 12;
// The header of an ANMF chunk: position, size, duration, flags.
constexpr size_t kFrameHeaderBytes = 16;

// The bytes of an animation's first frame, and its position on the canvas.
struct FirstFrame {
  std::span<const uint8_t> bytes;  // chunks ALPH and VP8, or VP8L
  ImageSize size;
  int64_t x = 0;
  int64_t y = 0;
};

uint32_t little24(std::span<const uint8_t> bytes, size_t at) {
  return little16(bytes, at) | (uint32_t{bytes[at + 2]} << 16);
}

std::optional<FirstFrame> first_frame(std::span<const uint8_t> file) {
  const auto chunk = find_chunk(file, kRiffHeaderBytes, file.size(), "ANMF");
  if (!chunk || chunk->length < kFrameHeaderBytes) return std::nullopt;
  const auto frame = file.subspan(chunk->begin, chunk->length);
  return FirstFrame{
      .bytes = frame.subspan(kFrameHeaderBytes),
      .size = {.height = int64_t{little24(frame, 9)} + 1, .width = int64_t{little24(frame, 6)} + 1},
      .x = int64_t{little24(frame, 0)} * 2,
      .y = int64_t{little24(frame, 3)} * 2};
}

// Decodes one picture of a known size to RGB, or to RGBA if it has alpha.
MediaResult<std::vector<uint8_t>> decode_pixels(std::span<const uint8_t> bytes, ImageSize size,
                                                bool alpha, const StopCheck& stop) {
  const int channels = alpha ? 4 : 3;
  std::vector<uint8_t> pixels(static_cast<size_t>(size.pixels() * channels));
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) return broken_webp("its library has another version");
  config.output.colorspace = alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {.rgba = pixels.data(),
                          .stride = static_cast<int>(size.width) * channels,
                          .size = pixels.size()};
  const std::unique_ptr<WebPIDecoder, void (*)(WebPIDecoder*)> decoder(
      WebPINewDecoder(&config.output), WebPIDelete);
  if (decoder == nullptr) {
    return MediaError{MediaFault::kTooExpensive, "no memory to begin to decode a WebP file"};
  }
  VP8StatusCode status = VP8_STATUS_SUSPENDED;
  for (size_t end = 0; end < bytes.size() && status == VP8_STATUS_SUSPENDED;) {
    if (stop && stop()) return MediaError{MediaFault::kCancelled, "decoding was stopped"};
    end += std::min(kWebpPortionBytes, bytes.size() - end);
    status = WebPIUpdate(decoder.get(), bytes.data(), end);
  }
  if (status == VP8_STATUS_SUSPENDED) return broken_webp("the file ends before its picture");
  if (status == VP8_STATUS_OUT_OF_MEMORY) {
    return MediaError{MediaFault::kTooExpensive, "no memory to decode the WebP file"};
  }
  if (status != VP8_STATUS_OK) return broken_webp("its pixels cannot be decoded");
  return pixels;
}

}  // namespace

MediaResult<ImageHeader> read_webp_header(std::span<const uint8_t> file) {
  if (file.size() < kRiffHeaderBytes || little32(file, 4) > file.size() - 8) {
    return broken_webp("the file ends before its picture");
  }
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(file.data(), file.size(), &features);
  if (status == VP8_STATUS_NOT_ENOUGH_DATA) return broken_webp("it ends inside its header");
  if (status != VP8_STATUS_OK) return broken_webp("its header is damaged");
  ImageHeader header;
  header.stored = {.height = features.height, .width = features.width};
  header.animated = features.has_animation != 0;
  if (const auto exif = find_chunk(file, kRiffHeaderBytes, file.size(), "EXIF")) {
    header.orientation = exif_orientation(file.subspan(exif->begin, exif->length));
  }
  // The result and as many bytes again for the decoder's own buffers. An animation needs both a
  // canvas and a frame.
  header.bytes_per_pixel = header.animated ? 12 : 8;
  return header;
}

MediaResult<Image> decode_webp(std::span<const uint8_t> file, const ImageHeader& header,
                               const DecodeOptions& options, const StopCheck& stop) {
  WebPBitstreamFeatures features;
  if (!header.animated) {
    if (WebPGetFeatures(file.data(), file.size(), &features) != VP8_STATUS_OK) {
      return broken_webp("its header is damaged");
    }
    auto pixels = decode_pixels(file, header.stored, features.has_alpha != 0, stop);
    if (!pixels.ok()) return pixels.error();
    if (features.has_alpha != 0) remove_alpha(*pixels, options.alpha);
    Image image;
    image.size = header.stored;
    image.rgb = std::move(*pixels);
    return image;
  }

  const auto frame = first_frame(file);
  if (!frame) return broken_webp("it is an animation without a frame");
  const auto [height, width] = header.stored;
  if (frame->x + frame->size.width > width || frame->y + frame->size.height > height) {
    return broken_webp("its first frame does not lie on the canvas");
  }
  if (WebPGetFeatures(frame->bytes.data(), frame->bytes.size(), &features) != VP8_STATUS_OK ||
      features.width != frame->size.width || features.height != frame->size.height) {
    return broken_webp("its first frame has no valid header");
  }
  auto pixels = decode_pixels(frame->bytes, frame->size, features.has_alpha != 0, stop);
  if (!pixels.ok()) return pixels.error();
  if (features.has_alpha != 0) remove_alpha(*pixels, options.alpha);
  Image canvas(header.stored);
  if (options.alpha == AlphaMode::kWhite) std::ranges::fill(canvas.rgb, uint8_t{255});
  for (int64_t y = 0; y < frame->size.height; ++y) {
    std::copy_n(pixels->data() + y * frame->size.width * 3, frame->size.width * 3,
                canvas.row(frame->y + y) + frame->x * 3);
  }
  return canvas;
}

}  // namespace heddle::media
