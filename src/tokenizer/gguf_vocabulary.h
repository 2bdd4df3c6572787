// SPDX-License-Identifier: Apache-2.0
// The lists of a GGUF file's vocabulary, and the word-splitting rules that such files name.
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

inline constexpr std::string_view kGgufSpaceMark = "▁";  // replaces a space in pieces

// A rule to split words, named by `pre`: patterns whose matches are pieces. Each pattern is applied
// to the text that the patterns before it did not match. Empty: GPT-2's rule.
struct GgufWordSplit {
  std::string_view name;
  std::array<std::string_view, 6> patterns = {};
  bool nfc = false;            // the hub's tokenizer converts text to NFC first
  bool ignore_merges = false;  // a word that is a token becomes that token, without merges
  bool adds_bos = false;       // adds BOS if the file does not say whether to
  bool ranks_tokens = false;   // if the file has no merges, tokens are ranked by their ids
};

// Finds the rule. Error: kUnimplemented for an unsupported name, listing the supported ones, and
// for a file without a name.
[[nodiscard]] Result<GgufWordSplit> find_gguf_word_split(const checkpoint::GgufMetadata& metadata);

// The lists of a vocabulary; they have the same length.
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

  // Whether the row of the embedding has no token; older converters give such rows names.
  [[nodiscard]] bool is_padding(size_t id) const {
    return kinds[id] == kUnused || tokens[id] == fmt::format("[PAD{}]", id);
  }

  // Whether the token is matched literally in texts and takes no part in merges.
  [[nodiscard]] bool is_added(size_t id) const {
    return kinds[id] == kControl || kinds[id] == kUserDefined || kinds[id] == kUnknown;
  }
};

// Reads the lists. Error: kDataLoss for lists that are missing, too long or of different lengths.
[[nodiscard]] Result<GgufVocabulary> read_gguf_vocabulary(const checkpoint::GgufMetadata& metadata);

}  // namespace heddle::tokenizer
