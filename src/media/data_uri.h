// SPDX-License-Identifier: Apache-2.0
// Pictures in text: data URIs and bare base64. Errors never contain the data.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "media/image_header.h"
#include "media/media_error.h"

namespace heddle::media {

// The bytes of base64: both alphabets, with or without padding, blanks and line breaks ignored. The
// symbols are counted against the limit before anything is allocated. Error: kBase64Invalid, naming
// the position; kTooManyBytes.
MediaResult<std::vector<uint8_t>> decode_base64(std::string_view text, const MediaLimits& limits);

struct DataUri {
  std::string type;  // as declared, "image/png"; often wrong, and empty where none is
  std::vector<uint8_t> bytes;
};

// data:[type/subtype][;parameter]*;base64,DATA (RFC 2397); "data" and "base64" in any case. Error:
// also kUrlInvalid, for other addresses and for data that is percent-encoded.
MediaResult<DataUri> read_data_uri(std::string_view url, const MediaLimits& limits);

}  // namespace heddle::media
