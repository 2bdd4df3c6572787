// SPDX-License-Identifier: Apache-2.0
#include "batch_line.h"

#include <fstream>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/call_fields.h"
#include "server/chat_messages.h"
#include "server/field_reader.h"
#include "server/sampling_fields.h"

namespace heddle::tools {
namespace {

using Json = nlohmann::ordered_json;

Result<std::vector<TokenId>> prompt_of_line(server::FieldReader& fields,
                                            const server::TextCodec& codec,
                                            const ToTokens& to_tokens) {
  const Json* messages = fields.find("messages");
  const Json* prompt = fields.find("prompt");
  if ((messages == nullptr) == (prompt == nullptr)) {
    return invalid_argument(messages == nullptr
                                ? "the line has neither a \"prompt\" nor \"messages\""
                                : "the line has a \"prompt\" and \"messages\"; leave one out");
  }
  if (messages == nullptr) {
    if (!prompt->is_string()) return invalid_argument("\"prompt\" must be a string");
    return to_tokens(prompt->get<std::string>());
  }
  Json normalised;
  if (const auto error = server::normalise_messages(*messages, normalised)) {
    return invalid_argument(error->message);
  }
  const Json* tools = fields.find("tools");
  if (tools != nullptr) {
    if (const auto error = server::check_tools(*tools)) return invalid_argument(error->message);
  }
  const Json* variables = fields.object("chat_template_kwargs");
  if (fields.error()) return invalid_argument(fields.error()->message);
  HEDDLE_ASSIGN_OR_RETURN(
      const std::string text,
      codec.render_chat(normalised, tools != nullptr ? *tools : Json(nullptr), true,
                        variables != nullptr ? *variables : Json::object()));
  return codec.encode(text, /*add_special_tokens=*/false);
}

// What a line's answer cannot show or do is refused rather than ignored.
void refuse_what_has_no_effect(server::FieldReader& fields) {
  server::refuse_unserved_features(fields);
  server::check_response_format(fields);
  server::refuse_fields(fields, {"body", "logprobs", "top_logprobs", "continue_final_message"});
}

}  // namespace

Result<std::vector<BatchLine>> read_batch_lines(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return not_found(fmt::format(
        "cannot read {}; a name that ends in .jsonl is a file of prompts. A prompt that "
        "ends so can come from standard input, with -",
        path));
  }
  std::vector<BatchLine> lines;
  std::string text;
  for (int64_t index = 0; std::getline(file, text); ++index) {
    if (text.find_first_not_of(" \t\r") != std::string::npos) lines.push_back({index, text});
  }
  if (file.bad()) return not_found(fmt::format("cannot read {} to its end", path));
  return lines;
}

Result<Request> request_of_line(const Json& line, const SamplingSettings& settings,
                                const ModelInfo& model, const server::TextCodec& codec,
                                const ToTokens& to_tokens) {
  server::FieldReader fields(line);
  ModelInfo defaults = model;
  defaults.default_sampling = sampling_of(settings, model);
  server::SamplingFields own =
      server::read_sampling_fields(fields, server::SamplingSpelling::kOpenAi, defaults);
  refuse_what_has_no_effect(fields);
  if (fields.error()) return invalid_argument(fields.error()->message);
  if (own.num_choices != 1) {
    return invalid_argument(
        fmt::format("\"n\" is {}; a line has one answer, so write it as often as you want answers",
                    own.num_choices));
  }
  if (!own.max_tokens) own.max_tokens = settings.max_tokens;
  if (fields.find("stop") == nullptr) own.stop.texts = settings.stop;
  if (fields.find("ignore_eos") == nullptr) own.stop.ignore_eos = settings.ignore_eos;

  Request request;
  HEDDLE_ASSIGN_OR_RETURN(request.prompt, prompt_of_line(fields, codec, to_tokens));
  if (request.prompt.empty()) return invalid_argument("the prompt is empty");
  if (const auto error =
          server::fit_to_context(own, static_cast<int64_t>(request.prompt.size()),
                                 kDefaultOutputTokens, model.context_length, "prompt")) {
    return invalid_argument(error->message);
  }
  request.role_boundaries = codec.role_boundaries(request.prompt);
  request.sampling = own.sampling;
  request.stop = std::move(own.stop);
  request.skip_special_tokens = own.skip_special_tokens;
  return request;
}

}  // namespace heddle::tools
