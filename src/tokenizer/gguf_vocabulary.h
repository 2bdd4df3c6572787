// SPDX-License-Identifier: Apache-2.0
// The lists of a GGUF file's vocabulary, and the ways to split words that such files name.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <heddle/status.h>

#include "checkpoint/gguf_header.h"

namespace heddle::tokenizer {

inline constexpr std::string_view kGgufSpaceMark = "▁";  // a space in pieces

// The ways to split words that `pre` names: patterns whose matches are pieces, one after the other
// applied to what those before left whole. Empty: the words of GPT-2.
struct GgufWordSplit {
  std::string_view name;
  std::array<std::string_view, 6> patterns = {};
  bool nfc = false;            // the hub's tokenizer composes characters first
  bool ignore_merges = false;  // a word that is a token is taken whole
  bool adds_bos = false;       // where the file does not say
  bool ranks_tokens = false;   // a file without merges ranks tokens by their ids
};

// Error: kUnimplemented for an unsupported name, listing the supported ones, and for a file without
// a name.
[[nodiscard]] Result<GgufWordSplit> find_gguf_word_split(const checkpoint::GgufMetadata& metadata);

// A vocabulary's lists, all of the same length.
struct GgufVocabulary {
  // Kinds of tokens, numbered as in SentencePiece.
  enum Kind : int64_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
  };

  std::vector<std::string_view> tokens;
  std::vector<int64_t> kinds;

  // Rows of the embedding without a token have such a name in older conversions.
  [[nodiscard]] bool is_padding(size_t id) const {
    return kinds[id] == kUnused || tokens[id] == fmt::format("[PAD{}]", id);
  }

  // A token that is matched literally in texts and takes no part in merges.
  [[nodiscard]] bool is_added(size_t id) const {
    return kinds[id] == kControl || kinds[id] == kUserDefined || kinds[id] == kUnknown;
  }
};

// Error: kDataLoss for lists that are missing, too long or of other lengths than each other.
[[nodiscard]] Result<GgufVocabulary> read_gguf_vocabulary(const checkpoint::GgufMetadata& metadata);

}  // namespace heddle::tokenizer
