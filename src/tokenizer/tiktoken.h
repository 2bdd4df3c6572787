// SPDX-License-Identifier: Apache-2.0
// Reads tiktoken.model, which has one line per token: its bytes in base64, and its rank, which is
// also its id. There are no merges: of all neighbouring pieces that together are a token, those
// with the lowest rank are joined first, the leftmost among equals. A word that is a token becomes
// that token.
//
// The file does not say how to split words, nor which tokens are special. The special tokens are
// those of tokenizer_config.json. The splitting rule depends on the class that it names:
// TikTokenTokenizer is Kimi's class, for which the 256 ids after the last rank are special tokens,
// too (<|reserved_token_163589|> if the file gives no name). For all other classes words are split
// as for Llama 3, as transformers does with such a file.
//
// Kimi's own code also cuts a text every 400,000 characters, and a run without white space every
// 25,000. Heddle does not.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include <heddle/status.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace heddle::tokenizer {

// Error: kDataLoss naming the line and the fault: no base64, no rank, a repeated rank or token, a
// token of more than 1,024 bytes; or naming a missing rank or a byte without a token.
// Cost: about that of a tokenizer.json with the same tokens: two look-ups for each way to split a
// token in two.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> parse_tiktoken(std::string_view ranks,
                                                                TokenizerConfig config);

// Error: as parse_tiktoken(), with the file's path.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> load_tiktoken(
    const std::filesystem::path& model_dir, TokenizerConfig config);

}  // namespace heddle::tokenizer
