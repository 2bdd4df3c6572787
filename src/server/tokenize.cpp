// SPDX-License-Identifier: Apache-2.0
#include "server/tokenize.h"

#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/call_fields.h"
#include "server/chat_completions.h"
#include "server/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

HttpResponse tokenize_messages(FieldReader& fields, const CallContext& context) {
  std::vector<TokenId> tokens;
  constexpr size_t kAnyNumber = std::numeric_limits<size_t>::max();  // they are what is asked for
  if (auto error = read_chat_prompt(fields, context, kAnyNumber, tokens)) {
    return error_response(*error);
  }
  return {.headers = {},
          .body = dump_json({{"tokens", tokens},
                             {"count", tokens.size()},
                             {"max_model_len", context.model.context_length}})};
}

}  // namespace

HttpResponse answer_tokenize(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return error_response(*error);
  FieldReader fields(object);
  static_cast<void>(read_model_name(fields, context));
  const bool add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  if (fields.error()) return error_response(*fields.error());
  if (fields.find("messages") != nullptr) return tokenize_messages(fields, context);

  const auto texts = fields.strings("prompt");
  if (fields.error()) return error_response(*fields.error());
  if (!texts) return error_response(missing_parameter("prompt"));
  Json all_tokens = Json::array();
  Json counts = Json::array();
  for (const std::string& text : *texts) {
    const auto tokens = context.codec.encode(text, add_special_tokens);
    if (!tokens.ok()) return error_response(error_from_status(tokens.status(), context.id));
    counts.push_back(tokens->size());
    all_tokens.push_back(*tokens);
  }
  const bool batched = fields.find("prompt")->is_array();
  return {.headers = {},
          .body = dump_json({{"tokens", batched ? all_tokens : all_tokens[0]},
                             {"count", batched ? counts : counts[0]},
                             {"max_model_len", context.model.context_length}})};
}

HttpResponse answer_detokenize(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return error_response(*error);
  FieldReader fields(object);
  static_cast<void>(read_model_name(fields, context));
  const bool skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  const Json* tokens = fields.array("tokens");
  if (fields.error()) return error_response(*fields.error());
  if (tokens == nullptr) return error_response(missing_parameter("tokens"));

  const bool batched = !tokens->empty() && (*tokens)[0].is_array();
  Json texts = Json::array();
  std::vector<TokenId> ids;
  for (size_t i = 0; i < (batched ? tokens->size() : 1); ++i) {
    const Json& list = batched ? (*tokens)[i] : *tokens;
    if (!list.is_array() || !read_token_ids(list, context.model.vocab_size, false, ids)) {
      return error_response(
          invalid_value("tokens", fmt::format("`tokens` must hold token ids from 0 to {} only.",
                                              context.model.vocab_size - 1)));
    }
    texts.push_back(context.codec.decode(ids, skip_special_tokens));
  }
  return {.headers = {}, .body = dump_json({{"text", batched ? texts : texts[0]}})};
}

}  // namespace heddle::server
