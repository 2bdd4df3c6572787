// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece_check.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "tokenizer/sentencepiece_fields.h"

namespace heddle::tokenizer {
namespace {

constexpr std::string_view kNotWellFormed = "its fields do not add up";

// A double-array trie as Darts-clone writes it, 32-bit units in the machine's order:
// github.com/s-yata/darts-clone. From a unit at i the next one for a byte c is at i ^ offset ^ c,
// and the value of a unit with a leaf at i ^ offset.
class Trie {
 public:
  explicit Trie(std::string_view units) : units_(units) {}

  // Whether no text leads out of the units, and every value is below `end_value`.
  [[nodiscard]] bool holds(size_t end_value) const {
    if (units_.size() % sizeof(uint32_t) != 0) return false;
    for (size_t i = 0; i < size(); ++i) {
      // A unit that holds a value is never walked through; the first one always is.
      if (i != 0 && (at(i) & kIsValue) != 0) continue;
      const size_t next = i ^ offset(at(i));
      if ((next | 0xFF) >= size()) return false;
      if ((at(i) & kHasLeaf) != 0 && (at(next) & ~kIsValue) >= end_value) return false;
    }
    return size() > 0;
  }

 private:
  static constexpr uint32_t kIsValue = 1u << 31;
  static constexpr uint32_t kHasLeaf = 1u << 8;
  static constexpr uint32_t kOffsetIsLarge = 1u << 9;

  static size_t offset(uint32_t unit) {
    return size_t{unit >> 10} << ((unit & kOffsetIsLarge) != 0 ? 8 : 0);
  }

  [[nodiscard]] size_t size() const { return units_.size() / sizeof(uint32_t); }

  [[nodiscard]] uint32_t at(size_t i) const {
    uint32_t unit = 0;
    std::memcpy(&unit, units_.data() + i * sizeof(unit), sizeof(unit));
    return unit;
  }

  std::string_view units_;
};

// The size of a trie, the trie, and the texts that its values are the beginnings of, each with a
// zero behind it.
bool is_charsmap(std::string_view map) {
  if (map.empty()) return true;
  uint32_t trie_bytes = 0;
  if (map.size() <= sizeof(trie_bytes)) return false;
  std::memcpy(&trie_bytes, map.data(), sizeof(trie_bytes));
  map.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes >= map.size() || map.back() != '\0') return false;
  return Trie(map.substr(0, trie_bytes)).holds(map.size() - trie_bytes);
}

Status check_piece(std::string_view message, int64_t index) {
  std::string_view text;
  Fields fields(message);
  while (const std::optional<Field> field = fields.next()) {
    if (field->holds_bytes(kPieceText)) text = field->bytes;
  }
  if (!fields.is_well_formed()) return not_a_sentencepiece_model(kNotWellFormed);
  if (text.empty() || text.find('\0') != std::string_view::npos) {
    return data_loss(
        fmt::format("piece {} of the SentencePiece model {}; no such piece can be loaded", index,
                    text.empty() ? "is empty" : "has a zero byte"));
  }
  if (text.size() > kMaxPieceBytes) {
    return data_loss(
        fmt::format("piece {} of the SentencePiece model has {} bytes; the limit is {}", index,
                    text.size(), kMaxPieceBytes));
  }
  return ok_status();
}

Status check_normalizer(std::string_view message) {
  Fields fields(message);
  while (const std::optional<Field> field = fields.next()) {
    if (field->holds_bytes(kPrecompiledCharsmap) && !is_charsmap(field->bytes)) {
      return data_loss(
          "the SentencePiece model's precompiled_charsmap points outside of itself; the file is "
          "damaged");
    }
  }
  return fields.is_well_formed() ? ok_status() : not_a_sentencepiece_model(kNotWellFormed);
}

}  // namespace

Status check_sentencepiece_model(std::string_view model) {
  int64_t num_pieces = 0;
  Fields fields(model);
  while (const std::optional<Field> field = fields.next()) {
    if (field->holds_bytes(kPieces)) {
      HEDDLE_RETURN_IF_ERROR(check_piece(field->bytes, num_pieces++));
    }
    if (field->holds_bytes(kNormalizerSpec) || field->holds_bytes(kDenormalizerSpec)) {
      HEDDLE_RETURN_IF_ERROR(check_normalizer(field->bytes));
    }
  }
  return fields.is_well_formed() ? ok_status() : not_a_sentencepiece_model(kNotWellFormed);
}

Status not_a_sentencepiece_model(std::string_view why) {
  return data_loss(
      fmt::format("not a SentencePiece model: {}. If it is a list of base64 tokens and ranks, copy "
                  "the model's tokenizer.json next to it",
                  why));
}

}  // namespace heddle::tokenizer
