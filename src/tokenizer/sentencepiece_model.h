// SPDX-License-Identifier: Apache-2.0
// Reads a SentencePiece model file without libsentencepiece: checks whether the file is safe for
// the library, and reads the settings that the library does not report.
//
// Threading: Fields is confined to a thread; the free functions have no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <heddle/status.h>

namespace heddle::tokenizer {

// ---- The wire format of protocol buffers ----
//
// https://protobuf.dev/programming-guides/encoding. Numbers are those of sentencepiece_model.proto.
// Cost: O(bytes), nothing is copied.

enum ModelField : uint32_t {
  kPieces = 1,
  kTrainerSpec = 2,
  kNormalizerSpec = 3,
  kDenormalizerSpec = 5,
};

enum PieceField : uint32_t { kPieceText = 1, kPieceType = 3 };

enum PieceType : uint32_t { kUserDefined = 4 };

enum TrainerField : uint32_t { kModelType = 3 };

enum ModelType : uint32_t { kBpe = 2 };

enum NormalizerField : uint32_t {
  kPrecompiledCharsmap = 2,
  kRemoveExtraWhitespaces = 4,
  kEscapeWhitespaces = 5,
};

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

struct Field {
  uint32_t number = 0;
  uint32_t type = kVarint;
  uint64_t value = 0;      // value of a varint field
  std::string_view bytes;  // content of a field of any other type

  // Whether the field has this number and contains bytes. The library ignores a field whose type is
  // another one.
  [[nodiscard]] bool holds_bytes(uint32_t wanted) const {
    return number == wanted && type == kLengthDelimited;
  }
};

class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  // Returns the next field; nullopt at the end of the message, or where it is malformed.
  std::optional<Field> next();

  [[nodiscard]] bool is_well_formed() const { return well_formed_; }

 private:
  uint64_t varint();
  std::string_view take(uint64_t length);

  std::string_view rest_;
  bool well_formed_ = true;
};

// ---- The check ----

inline constexpr size_t kMaxPieceBytes = 4096;

// Refuses models with which libsentencepiece misbehaves: it throws for a piece without text,
// recurses once per byte of a piece, follows the offsets of the normalizer's tables without a
// check, and writes beyond fixed arrays if a text matches too many nested keys of these tables or
// too many nested user-defined pieces (version 0.1.97; for some of it see
// github.com/google/sentencepiece issues 156, 1263, 1269).
//
// `model` is the serialised file. Error: kDataLoss naming the piece or the table.
// Cost: O(bytes of the model), and O(bytes of the normalizer's table) for each byte of the table's
// longest key (at most 256); a millisecond for published models.
[[nodiscard]] Status check_sentencepiece_model(std::string_view model);

// The kDataLoss error for a file that is not a SentencePiece model; names the other format that
// uses this file name.
[[nodiscard]] Status not_a_sentencepiece_model(std::string_view why);

// ---- Settings. Cost: O(pieces of the model) ----

// True if no byte of a text is lost: nothing is replaced, and white space is not removed, only
// marked. False also if `model`, the serialised file, cannot be read.
[[nodiscard]] bool normalizer_keeps_text(std::string_view model);

// True for a BPE model, which only merges neighbouring pieces.
[[nodiscard]] bool is_bpe_model(std::string_view model);

}  // namespace heddle::tokenizer
