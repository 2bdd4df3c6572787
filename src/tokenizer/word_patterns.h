// SPDX-License-Identifier: Apache-2.0
// The patterns that files name without spelling them out.
#pragma once

#include <string_view>

namespace heddle::tokenizer {

// GPT-2's, used by ByteLevel pre-tokenizers and by vocab.json with merges.txt.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Qwen2's, for vocab.json with merges.txt of that class; newer files spell it out.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

inline constexpr std::string_view kDigitPattern = R"(\p{N})";
inline constexpr std::string_view kDigitsPattern = R"(\p{N}+)";
inline constexpr std::string_view kPunctuationPattern = R"([\p{P}!-/:-@\[-`{-~])";
inline constexpr std::string_view kWhitespacePattern = R"(\s)";
inline constexpr std::string_view kWordOrSymbolsPattern = R"(\w+|[^\w\s]+)";

}  // namespace heddle::tokenizer
