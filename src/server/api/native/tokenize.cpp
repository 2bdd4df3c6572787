// SPDX-License-Identifier: Apache-2.0
#include "server/api/native/tokenize.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/call/body_fields.h"
#include "server/call/call_fields.h"
#include "server/call/chat_prompt.h"
#include "server/call/tool_fields.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;
using TokenLists = std::vector<std::vector<TokenId>>;

// The answer {"tokens": .., "count": .., "max_model_len": ..}, with lists of these for a list of
// texts.
JsonAnswer tokens_answer(TokenLists lists, bool batched, const CallContext& context) {
  const auto shown = std::make_shared<const TokenLists>(std::move(lists));
  JsonPieces body;
  body.begin_object().key("tokens");
  if (batched) body.begin_list();
  for (const std::vector<TokenId>& tokens : *shown) body.integers(tokens);
  if (batched) body.end_list();
  body.key("count");
  if (batched) body.begin_list();
  for (const std::vector<TokenId>& tokens : *shown) body.value(tokens.size());
  if (batched) body.end_list();
  body.key("max_model_len").value(context.model.context_length).end_object();
  return {.body = std::move(body), .shown = shown};
}

AnswerResult tokenize_messages(FieldReader& fields, const CallContext& context) {
  const ToolFields tools = read_tool_fields(fields);
  ChatPrompt prompt;
  if (auto error = read_chat_prompt(fields, context, tools, kMaxTokenizedTokens, prompt)) {
    return *error;
  }
  TokenLists lists;
  lists.push_back(std::move(prompt.ids));
  return tokens_answer(std::move(lists), /*batched=*/false, context);
}

// Encodes the texts; each is freed once it is encoded.
AnswerResult tokenize_texts(Json& prompt, bool add_special_tokens, const CallContext& context) {
  TokenLists lists;
  size_t num_tokens = 0;
  const auto encode = [&](Json& item) -> std::optional<ApiError> {
    const std::string text = std::move(item.get_ref<std::string&>());
    std::vector<TokenId>& ids = lists.emplace_back();
    const auto fits = context.codec.encode_at_most(text, kMaxTokenizedTokens - num_tokens,
                                                   add_special_tokens, context.is_cancelled, ids);
    if (!fits.ok()) return error_from_status(fits.status(), context.id);
    if (!*fits) {
      return ApiError{.status = 413,
                      .code = "request_too_large",
                      .message = fmt::format("`prompt` has more than {} tokens; send it in parts.",
                                             kMaxTokenizedTokens),
                      .param = "prompt"};
    }
    ids.shrink_to_fit();
    num_tokens += ids.size();
    return std::nullopt;
  };
  const bool batched = prompt.is_array();
  if (batched) {
    for (Json& item : prompt) {
      if (auto error = encode(item)) return *error;
    }
  } else if (auto error = encode(prompt)) {
    return *error;
  }
  return tokens_answer(std::move(lists), batched, context);
}

bool is_text_or_texts(const Json& value) {
  if (value.is_string()) return true;
  if (!value.is_array()) return false;
  for (const Json& item : value) {
    if (!item.is_string()) return false;
  }
  return true;
}

}  // namespace

AnswerResult answer_tokenize(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  static_cast<void>(read_model_name(fields, context));
  const bool add_special_tokens = fields.flag(Body::kTokenize["add_special_tokens"]);
  if (fields.error()) return *fields.error();
  if (fields.find(Body::kChatInput["messages"]) != nullptr)
    return tokenize_messages(fields, context);
  if (fields.find(Body::kTokenize["prompt"]) == nullptr) return missing_parameter("prompt");
  Json& prompt = object["prompt"];
  if (!is_text_or_texts(prompt)) return invalid_type("prompt", "a string or a list of strings");
  return tokenize_texts(prompt, add_special_tokens, context);
}

AnswerResult answer_detokenize(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  static_cast<void>(read_model_name(fields, context));
  const bool skip_special_tokens = fields.flag(Body::kDetokenize["skip_special_tokens"]);
  const Json* tokens = fields.array(Body::kDetokenize["tokens"]);
  if (fields.error()) return *fields.error();
  if (tokens == nullptr) return missing_parameter("tokens");

  const bool batched = !tokens->empty() && (*tokens)[0].is_array();
  auto texts = std::make_shared<std::vector<std::string>>();
  std::vector<TokenId> ids;
  for (size_t i = 0; i < (batched ? tokens->size() : 1); ++i) {
    const Json& list = batched ? (*tokens)[i] : *tokens;
    if (!list.is_array() || !read_token_ids(list, context.model.vocab_size, false, ids)) {
      return invalid_value("tokens", fmt::format("`tokens` must hold token ids from 0 to {} only.",
                                                 context.model.vocab_size - 1));
    }
    texts->push_back(context.codec.decode(ids, skip_special_tokens));
  }
  JsonPieces answer;
  answer.begin_object().key("text");
  if (batched) answer.begin_list();
  for (const std::string& text : *texts) answer.text(text);
  if (batched) answer.end_list();
  answer.end_object();
  return JsonAnswer{.body = std::move(answer), .shown = std::move(texts)};
}

}  // namespace heddle::server
