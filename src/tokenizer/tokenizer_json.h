// SPDX-License-Identifier: Apache-2.0
// Reads tokenizer.json: the complete pipeline of a BPE model in one file.
//
// Supported: the normalizers NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip,
// StripAccents; the pre-tokenizers ByteLevel, Split, Digits, Punctuation, Whitespace,
// WhitespaceSplit, Metaspace, CharDelimiterSplit, BertPreTokenizer; the post-processors ByteLevel,
// TemplateProcessing, RobertaProcessing, BertProcessing; the decoders ByteLevel, ByteFallback,
// Metaspace, Replace, Fuse, Strip; and Sequence of each. Any other is kUnimplemented, with its
// name.
//
// Cost: see the README's table; no step is worse than linear in the file.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include <heddle/status.h>

#include "tokenizer/added_tokens.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace heddle {
class JsonValue;
}

namespace heddle::tokenizer {

// Error: kDataLoss or kUnimplemented, naming the path: "model.merges[17]: the merge 'a' 'b' ...".
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> parse_tokenizer_json(
    std::string_view json, const TokenizerConfig& config);

// As parse_tokenizer_json(), for a file; messages begin with its name.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> load_tokenizer_json(
    const std::filesystem::path& path, const TokenizerConfig& config);

// One entry of "added_tokens", or of tokenizer_config.json's added_tokens_decoder.
[[nodiscard]] Result<AddedToken> parse_added_token(const JsonValue& entry, TokenId id);

}  // namespace heddle::tokenizer
