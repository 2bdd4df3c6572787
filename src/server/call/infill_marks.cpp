// SPDX-License-Identifier: Apache-2.0
#include "server/call/infill_marks.h"

#include <array>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace heddle::server {
namespace {

struct Family {
  std::string_view prefix, suffix, middle;  // middle: empty if no mark precedes the answer
  bool suffix_first = false;
};

constexpr std::array kFamilies = {
    Family{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},     // Qwen, CodeGemma
    Family{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},     // DeepSeek
    Family{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},  // GLM
    Family{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},           // StarCoder, Granite
    Family{"[PREFIX]", "[SUFFIX]", "", /*suffix_first=*/true},        // Codestral
};

}  // namespace

std::optional<InfillMarks> find_infill_marks(const tokenizer::Tokenizer& tokenizer) {
  if (tokenizer.strips_leading_space()) return std::nullopt;
  for (const Family& family : kFamilies) {
    const auto prefix = tokenizer.token_to_id(family.prefix);
    const auto suffix = tokenizer.token_to_id(family.suffix);
    const auto middle = tokenizer.token_to_id(family.middle);
    if (!prefix || !suffix || (!middle && !family.middle.empty())) continue;
    return InfillMarks{.prefix = *prefix,
                       .suffix = *suffix,
                       .middle = family.middle.empty() ? std::nullopt : middle,
                       .suffix_first = family.suffix_first};
  }
  return std::nullopt;
}

}  // namespace heddle::server
