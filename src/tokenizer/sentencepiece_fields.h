// SPDX-License-Identifier: Apache-2.0
// The fields of a SentencePiece model, read from the wire format of protocol buffers without its
// library: https://protobuf.dev/programming-guides/encoding. Numbers are those of
// sentencepiece_model.proto.
//
// Threading: confined. Cost: O(bytes), nothing is copied.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle::tokenizer {

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
  uint64_t value = 0;      // of a varint
  std::string_view bytes;  // of everything else

  // The library takes a field of another type for one that it does not know.
  [[nodiscard]] bool holds_bytes(uint32_t wanted) const {
    return number == wanted && type == kLengthDelimited;
  }
};

class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  // None at the end of the message, and where it makes no sense: is_well_formed() tells which.
  std::optional<Field> next();

  [[nodiscard]] bool is_well_formed() const { return well_formed_; }

 private:
  uint64_t varint();
  std::string_view take(uint64_t length);

  std::string_view rest_;
  bool well_formed_ = true;
};

}  // namespace heddle::tokenizer
