// SPDX-License-Identifier: Apache-2.0
// Reads the older pair of files vocab.json and merges.txt. They do not say how to split words; that
// depends on the class that tokenizer_config.json names. Qwen2Tokenizer has its own rule (and NFC);
// for all other classes words are split as for GPT-2.
//
// Added tokens are those of the configuration (tokenizer_config.h). Tokens with a role (bos, eos,
// pad), and GPT-2's <|endoftext|>, are special.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include <heddle/status.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace heddle::tokenizer {

// Error: kDataLoss naming the file and the token or line.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> parse_vocab_merges(std::string_view vocab_json,
                                                                    std::string_view merges_txt,
                                                                    TokenizerConfig config);

[[nodiscard]] Result<std::unique_ptr<Tokenizer>> load_vocab_merges(
    const std::filesystem::path& model_dir, TokenizerConfig config);

}  // namespace heddle::tokenizer
