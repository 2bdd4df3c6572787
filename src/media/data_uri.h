// SPDX-License-Identifier: Apache-2.0
// Decodes pictures that requests contain as text: data URIs and bare base64. Errors never contain
// the data.
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

// Decodes base64 in the standard or the URL-safe alphabet, with or without padding; blanks and line
// breaks are ignored. The symbols are counted against the limit before memory is allocated. Error:
// kBase64Invalid, naming the position; kTooManyBytes.
MediaResult<std::vector<uint8_t>> decode_base64(std::string_view text, const MediaLimits& limits);

struct DataUri {
  std::string type;  // as the URI declares it, "image/png"; often wrong; empty if it declares none
  std::vector<uint8_t> bytes;
};

// Decodes data:[type/subtype][;parameter]*;base64,DATA (RFC 2397), with "data" and "base64" in any
// case. Error: those of decode_base64(); kUrlInvalid for other addresses and for percent-encoded
// data.
MediaResult<DataUri> read_data_uri(std::string_view url, const MediaLimits& limits);

}  // namespace heddle::media
