// SPDX-License-Identifier: Apache-2.0
// Refuses SentencePiece models that libsentencepiece would trust and be led astray by: it throws
// for a piece without text, calls itself once per byte of a piece, follows the offsets of the
// normalizer's tables wherever they point, and counts what it finds on a way through them, or among
// user-defined pieces, beyond the arrays that it has for it (version 0.1.97; for some of it see
// github.com/google/sentencepiece issues 156, 1263, 1269).
//
// Threading: free functions without state. Cost: O(bytes of the model), of its normalizer's table
// once more for every byte of the longest key (at most 256); a millisecond for published ones.
#pragma once

#include <cstddef>
#include <string_view>

#include <heddle/status.h>

namespace heddle::tokenizer {

inline constexpr size_t kMaxPieceBytes = 4096;

// `model` is the serialised file. Error: kDataLoss naming the piece or the table.
[[nodiscard]] Status check_sentencepiece_model(std::string_view model);

// kDataLoss for a file that is none, and what else of this name it may be.
[[nodiscard]] Status not_a_sentencepiece_model(std::string_view why);

}  // namespace heddle::tokenizer
