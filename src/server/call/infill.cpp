// SPDX-License-Identifier: Apache-2.0
#include "server/call/infill.h"

#include "server/call/prompt_list.h"
#include "server/call/text_codec.h"

namespace heddle::server {

std::optional<ApiError> encode_infill(std::string_view prefix, std::string_view suffix,
                                      const CallContext& context, std::vector<TokenId>& ids) {
  const std::optional<InfillMarks> marks = context.codec.infill_marks();
  if (!marks) {
    return unsupported_parameter("suffix",
                                 "this model has no tokens that mark the gap between two texts");
  }
  const size_t most = max_counted_tokens(context.model);
  // Encodes an empty text, which gives the special tokens that precede every text.
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
