// SPDX-License-Identifier: Apache-2.0
// Makes pictures for tests, and encodes them as files.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <jpeglib.h>
#include <openssl/sha.h>
#include <webp/encode.h>
#include <zlib.h>

#include "core/check.h"
#include "media/image.h"

namespace heddle::media::testing {

inline std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// A picture in which neighbouring pixels differ and that no symmetry maps to itself. The recorded
// results in resample_test.cpp belong to this picture.
inline Image test_picture(int64_t height, int64_t width) {
  Image image({.height = height, .width = width});
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        image.row(y)[3 * x + c] =
            static_cast<uint8_t>(7 * x + 13 * y + 29 * c + 5 * ((x * y) % 31));
      }
    }
  }
  return image;
}

inline std::string big(uint64_t number, int num_bytes) {
  std::string text;
  for (int i = num_bytes - 1; i >= 0; --i) text += static_cast<char>(number >> (8 * i));
  return text;
}

inline std::string little(uint64_t number, int num_bytes) {
  const std::string text = big(number, num_bytes);
  return {text.rbegin(), text.rend()};
}

inline std::string sha256_hex(std::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

// The hash that the recorded results use: SHA-256 of height, width and pixels.
inline std::string hash_of(const Image& image) {
  const auto height = static_cast<uint64_t>(image.size.height);
  const auto width = static_cast<uint64_t>(image.size.width);
  return sha256_hex(little(height, 4) + little(width, 4) +
                    std::string(reinterpret_cast<const char*>(image.rgb.data()), image.rgb.size()));
}

// A TIFF structure with one entry, the orientation.
inline std::string exif_block(int orientation, bool little_endian = false) {
  const auto number = little_endian ? little : big;
  const auto value = static_cast<uint64_t>(orientation);
  return (little_endian ? "II" : "MM") + number(42, 2) + number(8, 4) + number(1, 2) +
         number(0x0112, 2) + number(3, 2) + number(1, 4) + number(value, 2) + number(0, 2) +
         number(0, 4);
}

inline std::string png_chunk(std::string_view type, std::string_view data) {
  const std::string body = std::string(type) + std::string(data);
  const uLong sum =
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big(data.size(), 4) + body + big(sum, 4);
}

inline std::string deflated(std::string_view text) {
  uLongf length = compressBound(text.size());
  std::string packed(length, '\0');
  const int code = compress(reinterpret_cast<Bytef*>(packed.data()), &length,
                            reinterpret_cast<const Bytef*>(text.data()), text.size());
  HEDDLE_CHECK_EQ(code, Z_OK);
  packed.resize(length);
  return packed;
}

struct PngParts {
  int64_t height = 1;
  int64_t width = 1;
  int bits = 8;
  int colour_type = 2;  // 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA
  bool interlaced = false;
  std::string rows;    // encoded rows, each after its filter byte
  std::string before;  // chunks between IHDR and IDAT
  std::string after;   // chunks between IDAT and IEND
};

inline std::string png_file(const PngParts& parts) {
  const std::string header = big(static_cast<uint64_t>(parts.width), 4) +
                             big(static_cast<uint64_t>(parts.height), 4) +
                             static_cast<char>(parts.bits) + static_cast<char>(parts.colour_type) +
                             std::string(2, '\0') + (parts.interlaced ? '\1' : '\0');
  return "\x89PNG\r\n\x1A\n" + png_chunk("IHDR", header) + parts.before +
         png_chunk("IDAT", deflated(parts.rows)) + parts.after + png_chunk("IEND", "");
}

// Encodes a picture as an RGB PNG file with 8 bits per channel.
inline std::string png_of(const Image& image, const std::string& before = "",
                          bool interlaced = false) {
  PngParts parts{.height = image.size.height, .width = image.size.width, .before = before};
  parts.interlaced = interlaced;
  const auto append_pass = [&](int64_t y0, int64_t x0, int64_t dy, int64_t dx) {
    for (int64_t y = y0; y < image.size.height; y += dy) {
      if (x0 < image.size.width) parts.rows += '\0';
      for (int64_t x = x0; x < image.size.width; x += dx) {
        parts.rows.append(reinterpret_cast<const char*>(image.row(y) + 3 * x), 3);
      }
    }
  };
  if (!interlaced) {
    append_pass(0, 0, 1, 1);
  } else {
    append_pass(0, 0, 8, 8);
    append_pass(0, 4, 8, 8);
    append_pass(4, 0, 8, 4);
    append_pass(0, 2, 4, 4);
    append_pass(2, 0, 4, 2);
    append_pass(0, 1, 2, 2);
    append_pass(1, 0, 2, 1);
  }
  return png_file(parts);
}

struct JpegParts {
  int channels = 3;  // 1 grey, 3 RGB, 4 CMYK
  bool progressive = false;
  std::string exif;  // a TIFF structure
};

// Encodes `samples`, [height, width, channels], as a JPEG file of quality 100 without chroma
// subsampling.
inline std::string jpeg_of(ImageSize size, const std::vector<uint8_t>& samples,
                           const JpegParts& parts = {}) {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* file = nullptr;
  unsigned long length = 0;
  jpeg_mem_dest(&info, &file, &length);
  info.image_height = static_cast<JDIMENSION>(size.height);
  info.image_width = static_cast<JDIMENSION>(size.width);
  info.input_components = parts.channels;
  info.in_color_space = parts.channels == 1   ? JCS_GRAYSCALE
                        : parts.channels == 3 ? JCS_RGB
                                              : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = 1;
  if (parts.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  if (!parts.exif.empty()) {
    const std::string segment = std::string("Exif\0\0", 6) + parts.exif;
    jpeg_write_marker(&info, JPEG_APP0 + 1, bytes_of(segment).data(),
                      static_cast<unsigned>(segment.size()));
  }
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<uint8_t*>(samples.data()) +
                static_cast<size_t>(info.next_scanline * info.image_width) *
                    static_cast<size_t>(parts.channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string result(reinterpret_cast<char*>(file), length);
  std::free(file);
  return result;
}

// Encodes a lossless WebP file. `channels` is 3, or 4 with alpha.
inline std::string webp_of(ImageSize size, const std::vector<uint8_t>& pixels, int channels = 3) {
  uint8_t* file = nullptr;
  const int width = static_cast<int>(size.width), height = static_cast<int>(size.height);
  const auto encode = channels == 3 ? WebPEncodeLosslessRGB : WebPEncodeLosslessRGBA;
  const size_t length = encode(pixels.data(), width, height, width * channels, &file);
  HEDDLE_CHECK(length > 0);
  std::string result(reinterpret_cast<char*>(file), length);
  WebPFree(file);
  return result;
}

inline std::string riff_chunk(std::string_view type, std::string_view data) {
  return std::string(type) + little(data.size(), 4) + std::string(data) +
         std::string(data.size() % 2, '\0');
}

inline std::string riff_file(std::string_view chunks) {
  return "RIFF" + little(chunks.size() + 4, 4) + "WEBP" + std::string(chunks);
}

// The VP8X chunk of an extended WebP file. The bits of `flags` say which other chunks the file has.
inline std::string vp8x_chunk(int flags, ImageSize canvas) {
  return riff_chunk("VP8X", little(static_cast<uint64_t>(flags), 4) +
                                little(static_cast<uint64_t>(canvas.width - 1), 3) +
                                little(static_cast<uint64_t>(canvas.height - 1), 3));
}

inline std::string webp_with_exif(ImageSize size, const std::vector<uint8_t>& pixels,
                                  const std::string& exif) {
  return riff_file(vp8x_chunk(8, size) + webp_of(size, pixels).substr(12) +
                   riff_chunk("EXIF", exif));
}

}  // namespace heddle::media::testing
