// SPDX-License-Identifier: Apache-2.0
#include "server/call/prompt_list.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/call/field_reader.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// The error for a prompt that is too long. `at_least`: the tokens were not counted to the end.
ApiError too_long(size_t num_tokens, bool at_least, std::string_view param,
                  const CallContext& context) {
  return {.code = "context_length_exceeded",
          .message = fmt::format(
              "This model's maximum context length is {} tokens; the request needs {}{} "
              "for its prompt alone. Shorten the prompt.",
              context.model.context_length, at_least ? "at least " : "", num_tokens),
          .param = std::string(param),
          .overflow = ContextOverflow{.input_tokens = static_cast<int64_t>(num_tokens),
                                      .context_length = context.model.context_length}};
}

std::optional<ApiError> add_text(const Json& text, const std::string& param,
                                 const CallContext& context, PromptList& list) {
  std::vector<TokenId> ids;
  if (auto error = encode_prompt(text.get_ref<const std::string&>(), /*add_special_tokens=*/true,
                                 max_counted_tokens(context.model), param, context, ids)) {
    return error;
  }
  if (ids.empty()) return invalid_value(param, fmt::format("`{}` is empty.", param));
  list.prompts.push_back(std::move(ids));
  return std::nullopt;
}

std::optional<ApiError> add_ids(const Json& ids, const std::string& param,
                                const CallContext& context, PromptList& list) {
  std::vector<TokenId> prompt;
  if (!read_token_ids(ids, context.model.vocab_size, /*skip_nulls=*/false, prompt)) {
    return invalid_value(param, fmt::format("`{}` must hold token ids from 0 to {} only.", param,
                                            context.model.vocab_size - 1));
  }
  if (prompt.empty()) return invalid_value(param, fmt::format("`{}` is empty.", param));
  list.prompts.push_back(std::move(prompt));
  return std::nullopt;
}

}  // namespace

const std::vector<TokenId>& longest_prompt(const PromptList& list) {
  return *std::ranges::max_element(list.prompts, {}, &std::vector<TokenId>::size);
}

size_t max_counted_tokens(const ModelInfo& model) {
  return 2 * static_cast<size_t>(model.context_length);
}

std::optional<ApiError> encode_prompt(std::string_view text, bool add_special_tokens,
                                      size_t max_tokens, std::string_view param,
                                      const CallContext& context, std::vector<TokenId>& ids) {
  const auto fits =
      context.codec.encode_at_most(text, max_tokens, add_special_tokens, context.is_cancelled, ids);
  if (!fits.ok()) return error_from_status(fits.status(), context.id);
  if (!*fits) return too_long(max_tokens + 1, /*at_least=*/true, param, context);
  return std::nullopt;
}

std::optional<ApiError> read_prompts(const Json& value, std::string_view param_name,
                                     const CallContext& context, bool allow_text, bool allow_ids,
                                     PromptList& list) {
  const std::string param(param_name);
  const std::string_view wanted =
      allow_text && allow_ids ? "a string, a list of strings, a list of token ids or a list "
                                "of such lists"
      : allow_text            ? "a string or a list of strings"
                              : "a list of token ids or a list of such lists";
  if (value.is_string() && allow_text) return add_text(value, param, context, list);
  if (!value.is_array()) return invalid_type(param, wanted);
  if (value.empty()) return invalid_value(param, fmt::format("`{}` is empty.", param));
  if (value[0].is_number() && allow_ids) return add_ids(value, param, context, list);
  list.batched = true;
  if (value.size() > kMaxPrompts) {
    return invalid_value(param, fmt::format("`{}` has {} prompts; at most {} are allowed.", param,
                                            value.size(), kMaxPrompts));
  }
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string item_param = fmt::format("{}[{}]", param, i);
    std::optional<ApiError> error;
    if (value[i].is_string() && allow_text) {
      error = add_text(value[i], item_param, context, list);
    } else if (value[i].is_array() && allow_ids) {
      error = add_ids(value[i], item_param, context, list);
    } else {
      error = invalid_type(param, wanted);
    }
    if (error) return error;
    // Checked here, before up to a thousand more prompts are encoded.
    const size_t num_tokens = list.prompts.back().size();
    if (num_tokens > static_cast<size_t>(context.model.context_length)) {
      return too_long(num_tokens, /*at_least=*/false, item_param, context);
    }
  }
  return std::nullopt;
}

}  // namespace heddle::server
