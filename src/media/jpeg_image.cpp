// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdio>  // declares FILE, which jpeglib.h uses
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>

#include "media/byte_order.h"
#include "media/error_jump.h"
#include "media/exif.h"
#include "media/picture_formats.h"

namespace heddle::media {

namespace {

// The coefficients of a progressive file with 40 million pixels at full chroma take 240 MB.
constexpr long kMostJpegBytes = 256L << 20;

MediaError broken_jpeg(std::string_view complaint) {
  return {MediaFault::kDecodeFailed,
          fmt::format("the JPEG file is broken: {}; save the picture again", complaint)};
}

// libjpeg's decoder and its callbacks, which find this object through client_data.
class JpegReader {
 public:
  JpegReader(std::span<const uint8_t> file, int64_t max_scans, const StopCheck& stop)
      : max_scans_(max_scans), stop_(stop) {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = fail;
    errors_.emit_message = ignore_message;
    errors_.output_message = ignore_output;
    source_.init_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = end_of_file;
    source_.skip_input_data = skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = [](j_decompress_ptr) {};
    source_.next_input_byte = file.data();
    source_.bytes_in_buffer = file.size();
    progress_.progress_monitor = progress;
  }

  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  ~JpegReader() { jpeg_destroy_decompress(&info_); }  // does nothing if begin() has created nothing

  // Reads the file up to its first scan and chooses how to decode.
  [[nodiscard]] bool begin() {
    return jump_.run([this] {
      jpeg_create_decompress(&info_);
      info_.src = &source_;
      info_.progress = &progress_;
      info_.mem->max_memory_to_use = kMostJpegBytes;
      jpeg_read_header(&info_, TRUE);
      const bool cmyk = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
      info_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
      info_.dct_method = JDCT_ISLOW;
      info_.do_fancy_upsampling = TRUE;
      info_.do_block_smoothing = TRUE;
    });
  }

  [[nodiscard]] ImageSize size() const {
    return {.height = info_.image_height, .width = info_.image_width};
  }

  [[nodiscard]] bool is_cmyk() const { return info_.out_color_space == JCS_CMYK; }

  // Decodes all rows to RGB. If is_cmyk(), `cmyk` must have room for one row of four bytes a pixel.
  [[nodiscard]] bool read_rows(Image& image, uint8_t* cmyk) {
    return jump_.run([&] {
      jpeg_start_decompress(&info_);
      while (info_.output_scanline < info_.output_height) {
        uint8_t* const rgb = image.row(info_.output_scanline);
        JSAMPROW row = is_cmyk() ? cmyk : rgb;
        if (stop_ && stop_()) jump_.stop();
        if (jpeg_read_scanlines(&info_, &row, 1) != 1) jump_.fail("a row is missing");
        if (is_cmyk()) rgb_of_cmyk(cmyk, rgb, image.size.width);
      }
      jpeg_finish_decompress(&info_);
    });
  }

  [[nodiscard]] const ErrorJump& jump() const { return jump_; }

  [[nodiscard]] bool out_of_scans() const { return out_of_scans_; }

  [[nodiscard]] bool out_of_memory() const { return out_of_memory_; }

 private:
  static JpegReader& of(j_common_ptr info) { return *static_cast<JpegReader*>(info->client_data); }

  static void fail(j_common_ptr info) {
    std::array<char, JMSG_LENGTH_MAX> message{};
    (*info->err->format_message)(info, message.data());
    JpegReader& reader = of(info);
    const int code = info->err->msg_code;
    reader.out_of_memory_ = code == JERR_NO_BACKING_STORE || code == JERR_OUT_OF_MEMORY;
    reader.jump_.fail(message.data());
  }

  // libjpeg warns about faults that it can decode. Pillow ignores these warnings, too.
  static void ignore_message(j_common_ptr /*info*/, int /*level*/) {}

  static void ignore_output(j_common_ptr /*info*/) {}

  static boolean end_of_file(j_decompress_ptr info) {
    of(reinterpret_cast<j_common_ptr>(info)).jump_.fail("the file ends before its picture");
  }

  static void skip(j_decompress_ptr info, long count) {
    if (count <= 0) return;
    jpeg_source_mgr& source = *info->src;
    if (static_cast<size_t>(count) > source.bytes_in_buffer) end_of_file(info);
    source.next_input_byte += count;
    source.bytes_in_buffer -= static_cast<size_t>(count);
  }

  static void progress(j_common_ptr info) {
    JpegReader& reader = of(info);
    if (reader.stop_ && reader.stop_()) reader.jump_.stop();
    if (reader.info_.input_scan_number > reader.max_scans_) {
      reader.out_of_scans_ = true;
      reader.jump_.fail("too many scans");
    }
  }

  // Files with four channels store inverted ink: Adobe's programs write them so, and Pillow reads
  // all such files so.
  static void rgb_of_cmyk(const uint8_t* cmyk, uint8_t* rgb, int64_t pixels) {
    for (int64_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
      const int light = cmyk[3];
      for (int c = 0; c < 3; ++c) {
        const int product = (255 - cmyk[c]) * light + 128;
        rgb[c] = static_cast<uint8_t>(light - (((product >> 8) + product) >> 8));
      }
    }
  }

  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  ErrorJump jump_;
  int64_t max_scans_;
  const StopCheck& stop_;
  bool out_of_scans_ = false;
  bool out_of_memory_ = false;
};

// Why the decoding of a JPEG ended early.
MediaError error_of(const JpegReader& reader, const DecodeOptions& options) {
  if (reader.jump().stopped()) return {MediaFault::kCancelled, "decoding was stopped"};
  if (reader.out_of_scans()) {
    return {MediaFault::kTooExpensive,
            fmt::format("the JPEG file has more than {} scans; save it as a baseline file",
                        options.limits.max_scans)};
  }
  if (reader.out_of_memory()) {
    return {
        MediaFault::kTooExpensive,
        fmt::format("decoding the JPEG file needs more than {} bytes; save it as a baseline file",
                    kMostJpegBytes)};
  }
  return broken_jpeg(reader.jump().message());
}

bool is_frame_header(uint8_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

}  // namespace

MediaResult<ImageHeader> read_jpeg_header(std::span<const uint8_t> file) {
  using std::string_view_literals::operator""sv;
  ImageHeader header;
  bool frame_seen = false;
  bool exif_seen = false;
  bool progressive = false;
  int components = 0;
  for (size_t at = 2; at + 4 <= file.size();) {
    const uint8_t marker = file[at + 1];
    if (file[at] != 0xFF || marker == 0xFF) {  // padding, or bytes that do not belong here
      ++at;
      continue;
    }
    const bool alone = marker <= 0x01 || (marker >= 0xD0 && marker <= 0xD8);
    if (alone) {
      at += 2;
      continue;
    }
    if (marker == 0xD9) break;  // marker EOI: end of the picture
    const size_t length = big16(file, at + 2);
    if (length < 2 || length > file.size() - at - 2) break;
    const auto segment = file.subspan(at + 4, length - 2);
    if (marker == 0xDA) {  // marker SOS: the first scan
      if (!frame_seen) return broken_jpeg("it has pixels before their size");
      // If components are in separate scans, libjpeg keeps two bytes per coefficient until it has
      // all scans.
      if (progressive || (!segment.empty() && segment[0] < components)) {
        header.bytes_per_pixel += 2 * std::min(components, 4);
      }
      return header;
    }
    if (is_frame_header(marker) && !frame_seen) {
      if (segment.size() < 6) return broken_jpeg("its frame header is too short");
      header.stored = {.height = big16(segment, 1), .width = big16(segment, 3)};
      progressive = (marker & 3) == 2;
      components = segment[5];
      header.bytes_per_pixel = 3;
      frame_seen = true;
    } else if (marker == 0xE1 && !exif_seen && has_bytes(segment, 0, "Exif\0\0"sv)) {
      exif_seen = true;
      header.orientation = exif_orientation(segment);
    }
    at += 2 + length;
  }
  return broken_jpeg("it ends inside its header");
}

MediaResult<Image> decode_jpeg(std::span<const uint8_t> file, const ImageHeader& header,
                               const DecodeOptions& options, const StopCheck& stop) {
  JpegReader reader(file, options.limits.max_scans, stop);
  if (!reader.begin()) return error_of(reader, options);
  if (reader.size() != header.stored) return broken_jpeg("its header contradicts itself");
  Image image(header.stored);
  std::vector<uint8_t> cmyk(reader.is_cmyk() ? static_cast<size_t>(header.stored.width) * 4
                                             : size_t{0});
  if (reader.read_rows(image, cmyk.data())) return image;
  return error_of(reader, options);
}

}  // namespace heddle::media
