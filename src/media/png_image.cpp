// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <png.h>

#include "media/byte_order.h"
#include "media/error_jump.h"
#include "media/exif.h"
#include "media/picture_formats.h"

namespace heddle::media {

namespace {

constexpr size_t kPngSignatureBytes = 8;
// The most memory that libpng may allocate for one chunk.
constexpr png_alloc_size_t kMostChunkBytes = 8'000'000;
constexpr png_uint_32 kMostKeptChunks = 128;

// The colour types of IHDR that are used here.
constexpr int kPalette = 3, kGreyAlpha = 4, kRgbAlpha = 6;

MediaError broken_png(std::string_view complaint) {
  return {MediaFault::kDecodeFailed,
          fmt::format("the PNG file is broken: {}; save the picture again", complaint)};
}

// Feeds libpng from memory; reading past the end of the file is an error.
struct PngSource {
  std::span<const uint8_t> rest;
  ErrorJump jump;
};

void png_fail(png_structp png, png_const_charp message) {
  static_cast<PngSource*>(png_get_error_ptr(png))->jump.fail(message);
}

void png_ignore(png_structp /*png*/, png_const_charp /*message*/) {}

void png_read_bytes(png_structp png, png_bytep out, size_t count) {
  auto* const source = static_cast<PngSource*>(png_get_io_ptr(png));
  if (source->rest.size() < count) png_error(png, "the file ends before its picture");
  std::memcpy(out, source->rest.data(), count);
  source->rest = source->rest.subspan(count);
}

// libpng's decoder; the destructor frees it on every path.
class PngReader {
 public:
  explicit PngReader(std::span<const uint8_t> file) : source_{.rest = file, .jump = {}} {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source_, png_fail, png_ignore);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }

  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  [[nodiscard]] bool exists() const { return info_ != nullptr; }

  // Reads the file up to its first pixels. Returns the number of channels of a decoded pixel, 3 or
  // 4, or 0 on an error.
  int begin(int64_t max_side) {
    int channels = 0;
    const bool done = source_.jump.run([&] {
      const auto side = static_cast<png_uint_32>(max_side);
      png_set_user_limits(png_, side, side);
      png_set_chunk_malloc_max(png_, kMostChunkBytes);
      png_set_chunk_cache_max(png_, kMostKeptChunks);
      // Skips all chunks that libpng does not need, also those that it knows.
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      png_set_read_fn(png_, &source_, png_read_bytes);
      png_read_info(png_, info_);
      png_set_expand(png_);  // expands palettes, depths below 8 bits, and tRNS
      png_set_strip_16(png_);
      png_set_gray_to_rgb(png_);
      num_passes_ = png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
      channels = png_get_channels(png_, info_);
    });
    return done ? channels : 0;
  }

  [[nodiscard]] ImageSize size() const {
    return {.height = png_get_image_height(png_, info_), .width = png_get_image_width(png_, info_)};
  }

  // Decodes all rows, then reads the chunks after them.
  [[nodiscard]] bool read_rows(uint8_t* rows, const StopCheck& stop) {
    return source_.jump.run([&] {
      const size_t row_bytes = png_get_rowbytes(png_, info_);
      const png_uint_32 height = png_get_image_height(png_, info_);
      for (int pass = 0; pass < num_passes_; ++pass) {
        for (png_uint_32 y = 0; y < height; ++y) {
          if (stop && stop()) source_.jump.stop();
          png_read_row(png_, rows + y * row_bytes, nullptr);
        }
      }
      png_read_end(png_, nullptr);
    });
  }

  [[nodiscard]] const ErrorJump& jump() const { return source_.jump; }

 private:
  PngSource source_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int num_passes_ = 1;
};

}  // namespace

MediaResult<ImageHeader> read_png_header(std::span<const uint8_t> file) {
  constexpr size_t kHeaderEnd = kPngSignatureBytes + 8 + 13;
  if (file.size() < kHeaderEnd) return broken_png("it ends inside its header");
  if (big32(file, kPngSignatureBytes) != 13 || !has_bytes(file, kPngSignatureBytes + 4, "IHDR")) {
    return broken_png("it does not begin with an IHDR chunk of 13 bytes");
  }
  ImageHeader header;
  header.stored = {.height = big32(file, 20), .width = big32(file, 16)};
  const int colour_type = file[25];
  bool alpha = colour_type == kGreyAlpha || colour_type == kRgbAlpha;

  // Visits every chunk: length, type, data, checksum. The loop ends at a chunk that is longer than
  // the rest of the file. libpng reports an error if the picture needs that chunk.
  bool pixels_seen = false;
  for (size_t at = kPngSignatureBytes; file.size() - at >= 12;) {
    const size_t length = big32(file, at);
    if (length > file.size() - at - 12) break;
    if (has_bytes(file, at + 4, "IDAT")) pixels_seen = true;
    if (has_bytes(file, at + 4, "acTL") && !pixels_seen) header.animated = true;
    if (has_bytes(file, at + 4, "tRNS")) alpha = true;
    if (has_bytes(file, at + 4, "IEND")) break;
    if (has_bytes(file, at + 4, "eXIf") && header.orientation == 1) {
      header.orientation = exif_orientation(file.subspan(at + 8, length));
    }
    at += 12 + length;
  }
  header.bytes_per_pixel = alpha || colour_type == kPalette ? 4 : 3;
  return header;
}

MediaResult<Image> decode_png(std::span<const uint8_t> file, const ImageHeader& header,
                              const DecodeOptions& options, const StopCheck& stop) {
  PngReader reader(file);
  if (!reader.exists()) {
    return MediaError{MediaFault::kTooExpensive, "no memory to begin to decode a PNG file"};
  }
  const int channels = reader.begin(options.limits.max_side);
  if (channels == 0) return broken_png(reader.jump().message());
  if ((channels != 3 && channels != 4) || reader.size() != header.stored) {
    return broken_png("its header contradicts itself");
  }
  Image image;
  image.size = header.stored;
  image.rgb.resize(static_cast<size_t>(header.stored.pixels() * channels));
  if (!reader.read_rows(image.rgb.data(), stop)) {
    if (reader.jump().stopped()) return MediaError{MediaFault::kCancelled, "decoding was stopped"};
    return broken_png(reader.jump().message());
  }
  if (channels == 4) remove_alpha(image.rgb, options.alpha);
  return image;
}

}  // namespace heddle::media
