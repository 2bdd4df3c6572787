// SPDX-License-Identifier: Apache-2.0
// Fuzzes the parsers of data URIs and base64 with any text.
#include "core/check.h"
#include "media/data_uri.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::media;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const MediaLimits limits{.max_bytes = 1000};
  const auto bytes = decode_base64(text, limits);
  if (bytes.ok()) HEDDLE_CHECK(bytes->size() <= 1000 && bytes->size() <= size * 3 / 4);
  const auto uri = read_data_uri(text, limits);
  if (uri.ok()) HEDDLE_CHECK_LE(uri->type.size() + uri->bytes.size(), size);
  return 0;
}
