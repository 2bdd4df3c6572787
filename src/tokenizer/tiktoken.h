// SPDX-License-Identifier: Apache-2.0
// Reads tiktoken.model: one line a token, its bytes in base64 and its rank, which is also its id.
// There are no merges: of all neighbours that make a token together those of the lowest rank are
// joined first, the leftmost among equals, and a word that is a token is taken whole.
//
// The file does not say how to split words, nor which tokens are special. The latter are those of
// tokenizer_config.json. The former is a matter of the class that it names: TikTokenTokenizer is
// that of Kimi, whose 256 ids after the last rank are special tokens, too
// (<|reserved_token_163589|> where the file has no name). Other classes are split as Llama 3 does,
// which is how transformers reads such a file.
//
// Kimi's own code also cuts a text every 400,000 characters, and a run without white space every
// 25,000: this is not followed.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include <heddle/status.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace heddle::tokenizer {

// Error: kDataLoss naming the line and what is wrong with it: no base64, no rank, a rank or a token
// that comes twice, a token of more than 1,024 bytes; or a rank, or the token of a byte, that is
// missing.
// Cost: about that of a tokenizer.json of the same tokens: two look-ups for each cut of a token.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> parse_tiktoken(std::string_view ranks,
                                                                TokenizerConfig config);

// Error: as above with the file's path.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> load_tiktoken(
    const std::filesystem::path& model_dir, TokenizerConfig config);

}  // namespace heddle::tokenizer
