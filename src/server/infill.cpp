// SPDX-License-Identifier: Apache-2.0
#include "server/infill.h"

#include <array>

#include "server/prompt_list.h"
#include "tokenizer/tokenizer.h"

namespace heddle::server {
namespace {

struct Family {
  std::string_view prefix, suffix, middle;  // middle: empty where nothing stands before the answer
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

std::optional<ApiError> encode_infill(std::string_view prefix, std::string_view suffix,
                                      const CallContext& context, std::vector<TokenId>& ids) {
  const std::optional<InfillMarks> marks = context.codec.infill_marks();
  if (!marks) {
    return unsupported_parameter("suffix",
                                 "this model has no tokens that mark the gap between two texts");
  }
  const size_t most = max_counted_tokens(context.model);
  // The tokens that stand before every text, of no text at all.
  if (auto error = encode_prompt("", /*add_special_tokens=*/true, most, "prompt", context, ids)) {
    return error;
  }
  std::vector<TokenId> before;
  std::vector<TokenId> behind;
  if (auto error = encode_prompt(prefix, false, most, "prompt", context, before)) return error;
  if (auto error = encode_prompt(suffix, false, most, "suffix", context, behind)) return error;
  const auto append = [&ids](TokenId mark, const std::vector<TokenId>& text) {
    ids.push_back(mark);
    ids.insert(ids.end(), text.begin(), text.end());
  };
  if (marks->suffix_first) append(marks->suffix, behind);
  append(marks->prefix, before);
  if (!marks->suffix_first) append(marks->suffix, behind);
  if (marks->middle) ids.push_back(*marks->middle);
  return std::nullopt;
}

}  // namespace heddle::server
