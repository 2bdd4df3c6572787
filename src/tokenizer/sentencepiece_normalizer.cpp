// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece_normalizer.h"

#include <cstdint>
#include <optional>

namespace heddle::tokenizer {
namespace {

// Of sentencepiece_model.proto.
constexpr uint64_t kNormalizerSpec = 3;
constexpr uint64_t kPrecompiledCharsmap = 2;
constexpr uint64_t kRemoveExtraWhitespaces = 4;
constexpr uint64_t kEscapeWhitespaces = 5;

enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

struct Field {
  uint64_t number = 0;
  uint64_t type = kVarint;
  uint64_t value = 0;      // of a varint
  std::string_view bytes;  // of a string or a message
};

// Goes through the fields of a message in the wire format of protocol buffers.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  // None at the end of the message, and where it makes no sense: is_well_formed() tells which.
  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    Field field;
    const uint64_t tag = varint();
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

  [[nodiscard]] bool is_well_formed() const { return well_formed_; }

 private:
  uint64_t varint() {
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

  std::string_view take(uint64_t length) {
    if (length > rest_.size()) {
      well_formed_ = false;
      return {};
    }
    const std::string_view taken = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return taken;
  }

  std::string_view rest_;
  bool well_formed_ = true;
};

}  // namespace

bool normalizer_keeps_text(std::string_view model) {
  // The defaults of the format.
  bool replaces = false;
  bool removes_white_space = true;
  bool marks_white_space = true;
  Fields fields(model);
  while (const std::optional<Field> field = fields.next()) {
    if (field->number != kNormalizerSpec) continue;
    if (field->type != kLengthDelimited) return false;
    Fields spec(field->bytes);
    while (const std::optional<Field> setting = spec.next()) {
      const bool is_flag =
          setting->number == kRemoveExtraWhitespaces || setting->number == kEscapeWhitespaces;
      if (is_flag && setting->type != kVarint) return false;
      if (setting->number == kPrecompiledCharsmap) {
        if (setting->type != kLengthDelimited) return false;
        replaces = !setting->bytes.empty();
      }
      if (setting->number == kRemoveExtraWhitespaces) removes_white_space = setting->value != 0;
      if (setting->number == kEscapeWhitespaces) marks_white_space = setting->value != 0;
    }
    if (!spec.is_well_formed()) return false;
  }
  return fields.is_well_formed() && !replaces && !removes_white_space && marks_white_space;
}

}  // namespace heddle::tokenizer
