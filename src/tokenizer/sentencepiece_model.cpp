// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace heddle::tokenizer {

std::optional<Field> Fields::next() {
  if (rest_.empty()) return std::nullopt;
  Field field;
  const auto tag = static_cast<uint32_t>(varint());  // truncated to 32 bits, as the library does
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

namespace {

constexpr std::string_view kNotWellFormed = "its fields do not add up";

// The size of the library's fixed arrays: for keys of the normalizer's table that are prefixes of
// one another, and for user-defined pieces that are prefixes of one another.
constexpr int kMaxNestedKeys = 32;
constexpr size_t kMaxNestedPieces = 64;

// Limits on the cost of looking up one character and of writing its replacement. Published tables
// have keys of up to 10 bytes and replacements of up to 33.
constexpr int kMaxKeyBytes = 256;
constexpr size_t kMaxReplacementBytes = 256;

// A double-array trie as Darts-clone writes it, 32-bit units in the machine's order:
// github.com/s-yata/darts-clone. The base of unit i is i ^ offset: the child for byte c is at base
// ^ c with label c, and the value of a unit with a leaf is at its base.
class Trie {
 public:
  explicit Trie(std::string_view units) : units_(units) {}

  // Whether every lookup reads only units of the trie, and every value is the offset of one of
  // `texts`.
  [[nodiscard]] bool stays_inside(std::string_view texts) const {
    if (units_.empty() || units_.size() % (kBlock * sizeof(uint32_t)) != 0) return false;
    for (size_t i = 0; i < size(); ++i) {
      // A lookup never passes through a unit that contains a value, except the first unit.
      if (i != 0 && is_value(i)) continue;
      if (base(i) >= size()) return false;
      if (!has_leaf(i)) continue;
      const size_t value = at(base(i)) & ~kIsValue;
      if (value >= texts.size()) return false;
      const std::string_view text = texts.substr(value, kMaxReplacementBytes + 1);
      if (text.find('\0') == std::string_view::npos) return false;
    }
    return true;
  }

  // Whether every lookup ends after at most kMaxNestedKeys keys. Requires stays_inside().
  [[nodiscard]] bool ends() const {
    std::vector<int> num_keys(size(), kUnreached);  // for each base, the most keys on a path to it
    num_keys[base(0)] = 0;
    for (int length = 0; length <= kMaxKeyBytes; ++length) {
      std::vector<int> longer(size(), kUnreached);
      bool any = false;
      for (size_t i = 0; i < size(); ++i) {
        const int before = is_value(i) ? kUnreached : num_keys[i ^ (at(i) & 0xFF)];
        if (before == kUnreached) continue;
        const int count = before + (has_leaf(i) ? 1 : 0);
        if (count > kMaxNestedKeys) return false;
        longer[base(i)] = std::max(longer[base(i)], count);
        any = true;
      }
      if (!any) return true;
      num_keys = std::move(longer);
    }
    return false;
  }

 private:
  static constexpr uint32_t kIsValue = 1u << 31;
  static constexpr uint32_t kHasLeaf = 1u << 8;
  static constexpr uint32_t kOffsetIsLarge = 1u << 9;
  static constexpr size_t kBlock = 256;  // Units are in blocks: the children of a base for all
                                         // bytes are in one block.
  static constexpr int kUnreached = -1;

  [[nodiscard]] size_t size() const { return units_.size() / sizeof(uint32_t); }

  [[nodiscard]] uint32_t at(size_t i) const {
    uint32_t unit = 0;
    std::memcpy(&unit, units_.data() + i * sizeof(unit), sizeof(unit));
    return unit;
  }

  [[nodiscard]] bool is_value(size_t i) const { return (at(i) & kIsValue) != 0; }

  [[nodiscard]] bool has_leaf(size_t i) const { return (at(i) & kHasLeaf) != 0; }

  [[nodiscard]] size_t base(size_t i) const {
    return i ^ (size_t{at(i) >> 10} << ((at(i) & kOffsetIsLarge) != 0 ? 8 : 0));
  }

  std::string_view units_;
};

// Whether the map is well formed: the size of a trie, the trie, and the texts to which its values
// are offsets, each followed by a zero byte.
bool is_charsmap(std::string_view map) {
  if (map.empty()) return true;
  uint32_t trie_bytes = 0;
  if (map.size() <= sizeof(trie_bytes)) return false;
  std::memcpy(&trie_bytes, map.data(), sizeof(trie_bytes));
  map.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes >= map.size()) return false;
  const Trie trie(map.substr(0, trie_bytes));
  return trie.stays_inside(map.substr(trie_bytes)) && trie.ends();
}

struct Piece {
  std::string_view text;
  // True if any of the piece's type fields is USER_DEFINED; the library uses the last one.
  bool may_be_user_defined = false;
};

Result<Piece> read_piece(std::string_view message, int64_t index) {
  Piece piece;
  Fields fields(message);
  while (const std::optional<Field> field = fields.next()) {
    if (field->holds_bytes(kPieceText)) piece.text = field->bytes;
    if (field->number == kPieceType) {
      // The library truncates the value to 32 bits.
      piece.may_be_user_defined |= static_cast<uint32_t>(field->value) == kUserDefined;
    }
  }
  if (!fields.is_well_formed()) return not_a_sentencepiece_model(kNotWellFormed);
  if (piece.text.empty() || piece.text.find('\0') != std::string_view::npos) {
    return data_loss(fmt::format("piece {} of the SentencePiece model {}", index,
                                 piece.text.empty() ? "is empty" : "has a zero byte"));
  }
  if (piece.text.size() > kMaxPieceBytes) {
    return data_loss(fmt::format("piece {} of the SentencePiece model has {} bytes, more than {}",
                                 index, piece.text.size(), kMaxPieceBytes));
  }
  return piece;
}

Status check_nesting(std::vector<std::string_view> user_defined) {
  std::ranges::sort(user_defined);
  // The user-defined pieces that are prefixes of the current one, itself included.
  std::vector<std::string_view> prefixes;
  for (const std::string_view text : user_defined) {
    while (!prefixes.empty() && !text.starts_with(prefixes.back())) prefixes.pop_back();
    prefixes.push_back(text);
    if (prefixes.size() > kMaxNestedPieces) {
      return data_loss(
          fmt::format("more than {} user-defined pieces of the SentencePiece model are the "
                      "beginnings of one another",
                      kMaxNestedPieces));
    }
  }
  return ok_status();
}

Status check_normalizer(std::string_view message) {
  Fields fields(message);
  while (const std::optional<Field> field = fields.next()) {
    if (field->holds_bytes(kPrecompiledCharsmap) && !is_charsmap(field->bytes)) {
      return data_loss(
          "the SentencePiece model's precompiled_charsmap points outside of itself, goes in "
          "circles "
          "or nests too deep; the file is damaged");
    }
  }
  return fields.is_well_formed() ? ok_status() : not_a_sentencepiece_model(kNotWellFormed);
}

}  // namespace

Status check_sentencepiece_model(std::string_view model) {
  int64_t num_pieces = 0;
  std::vector<std::string_view> user_defined;
  Fields fields(model);
  while (const std::optional<Field> field = fields.next()) {
    if (field->holds_bytes(kPieces)) {
      HEDDLE_ASSIGN_OR_RETURN(const Piece piece, read_piece(field->bytes, num_pieces++));
      if (piece.may_be_user_defined) user_defined.push_back(piece.text);
    }
    if (field->holds_bytes(kNormalizerSpec) || field->holds_bytes(kDenormalizerSpec)) {
      HEDDLE_RETURN_IF_ERROR(check_normalizer(field->bytes));
    }
  }
  if (!fields.is_well_formed()) return not_a_sentencepiece_model(kNotWellFormed);
  return check_nesting(std::move(user_defined));
}

Status not_a_sentencepiece_model(std::string_view why) {
  return data_loss(
      fmt::format("not a SentencePiece model: {}. If it is a list of base64 tokens and ranks, copy "
                  "the model's tokenizer.json next to it",
                  why));
}

bool normalizer_keeps_text(std::string_view model) {
  // The defaults of the file format.
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

bool is_bpe_model(std::string_view model) {
  bool is_bpe = false;  // the file format's default is another type
  Fields fields(model);
  while (const std::optional<Field> field = fields.next()) {
    if (!field->holds_bytes(kTrainerSpec)) continue;
    Fields spec(field->bytes);
    while (const std::optional<Field> setting = spec.next()) {
      if (setting->number != kModelType) continue;
      if (setting->type != kVarint) return false;
      is_bpe = setting->value == kBpe;
    }
    if (!spec.is_well_formed()) return false;
  }
  return fields.is_well_formed() && is_bpe;
}

}  // namespace heddle::tokenizer
