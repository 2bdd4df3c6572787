// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece_fields.h"

namespace heddle::tokenizer {

std::optional<Field> Fields::next() {
  if (rest_.empty()) return std::nullopt;
  Field field;
  const auto tag = static_cast<uint32_t>(varint());  // as the library cuts it off
  field.number = tag >> 3;
  field.type = tag & 7;
  switch (field.type) {
    case kVarint:
      field.value = varint();
      break;
    case kFixed64:
      field.bytes = take(8);
      break;
    case kLengthDelimited:
      field.bytes = take(varint());
      break;
    case kFixed32:
      field.bytes = take(4);
      break;
    default:
      well_formed_ = false;
  }
  return well_formed_ ? std::optional(field) : std::nullopt;
}

uint64_t Fields::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  well_formed_ = false;
  return 0;
}

std::string_view Fields::take(uint64_t length) {
  if (length > rest_.size()) {
    well_formed_ = false;
    return {};
  }
  const std::string_view taken = rest_.substr(0, length);
  rest_.remove_prefix(length);
  return taken;
}

}  // namespace heddle::tokenizer
