// SPDX-License-Identifier: Apache-2.0
// SentencePiece models (tokenizer.model, as Llama 2 has) through libsentencepiece. Kudo and
// Richardson, "SentencePiece: A simple and language independent subword tokenizer",
// arXiv:1808.06226.
//
// Control pieces (<s>, </s>) and the added tokens of tokenizer_config.json are found first; the
// library receives the text between them. Each such text gets the model's leading space; with
// "legacy": false only the text at the very start does.
//
// Threading: immutable after loading; thread-safe.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include <heddle/status.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace heddle::tokenizer {

// `model` is the serialised file. Error: kDataLoss naming the fault (sentencepiece_model.h), or
// with the library's message.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> parse_sentencepiece(std::string_view model,
                                                                     const TokenizerConfig& config);

[[nodiscard]] Result<std::unique_ptr<Tokenizer>> load_sentencepiece(
    const std::filesystem::path& path, const TokenizerConfig& config);

}  // namespace heddle::tokenizer
