// SPDX-License-Identifier: Apache-2.0
#include "tools/batch_line.h"

#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/call/answer_form.h"
#include "server/call/api_adapter.h"
#include "server/call/call_fields.h"
#include "server/call/chat_prompt.h"
#include "server/call/field_reader.h"
#include "server/call/prompt_list.h"
#include "server/call/sampling_fields.h"
#include "server/call/tool_fields.h"

namespace heddle::tools {
namespace {

using Json = nlohmann::ordered_json;

// The name of a field that only the chat template reads, if the line has one.
std::optional<std::string> template_field(server::FieldReader& fields) {
  server::refuse_fields(fields, {"tools", "tool_choice", "chat_template_kwargs", "reasoning_effort",
                                 "reasoning", "continue_final_message"});
  if (fields.error()) return fields.error()->param;
  if (!fields.boolean("add_generation_prompt").value_or(true)) return "add_generation_prompt";
  return std::nullopt;
}

Result<std::vector<TokenId>> prompt_of_line(server::FieldReader& fields,
                                            const server::CallContext& context,
                                            const ToTokens& to_tokens) {
  const Json* prompt = fields.find("prompt");
  const int num_given = (prompt != nullptr ? 1 : 0) + (fields.find("messages") != nullptr ? 1 : 0) +
                        (fields.find("input_ids") != nullptr ? 1 : 0);
  if (num_given == 0) {
    return invalid_argument("the line has neither a \"prompt\" nor \"messages\" nor \"input_ids\"");
  }
  if (num_given > 1) {
    return invalid_argument(
        "the line has more than one of \"prompt\", \"messages\" and \"input_ids\"; leave one out");
  }
  if (fields.find("messages") == nullptr) {
    if (const auto field = template_field(fields)) {
      return invalid_argument(
          fmt::format("\"{}\" belongs to \"messages\", of which the line has none", *field));
    }
  }
  if (fields.error()) return invalid_argument(fields.error()->message);
  if (prompt == nullptr) {
    const server::ToolFields tools = server::read_tool_fields(fields);
    if (tools.choice.forces_call()) {
      return invalid_argument(
          "\"tool_choice\" forces a call, which lines of a file cannot; use auto or none");
    }
    server::ChatPrompt chat;
    if (const auto error = server::read_chat_prompt(
            fields, context, tools, server::max_counted_tokens(context.model), chat)) {
      return invalid_argument(error->message);
    }
    return std::move(chat.ids);
  }
  if (!prompt->is_string()) return invalid_argument("\"prompt\" must be a string");
  return to_tokens(prompt->get<std::string>());
}

// Refuses fields that request something which the answer to a line cannot contain.
void refuse_what_has_no_effect(server::FieldReader& fields) {
  server::refuse_unserved_features(fields);
  server::refuse_fields(
      fields, {"body", "logprobs", "top_logprobs", "echo", "stream", "stream_options",
               "stream_interval", "rid", "best_of", "suffix", "return_token_ids",
               "return_prompt_token_ids", "return_meta_info", "functions", "function_call"});
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
  const server::HttpRequest no_headers;
  const server::FairKey by_user;
  const std::vector<std::string> served_names = {model.name};
  const server::CallContext context{.model = model,
                                    .codec = codec,
                                    .served_names = served_names,
                                    .head = no_headers,
                                    .fair_key = by_user,
                                    .id = {}};
  const server::SchedulingFields scheduling = server::read_scheduling_fields(fields, context);
  const std::optional<server::AnswerForm> form = server::read_answer_form(fields);
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
  HEDDLE_ASSIGN_OR_RETURN(request.prompt, prompt_of_line(fields, context, to_tokens));
  if (request.prompt.empty()) return invalid_argument("the prompt is empty");
  if (const auto error = server::fit_to_context(own, static_cast<int64_t>(request.prompt.size()),
                                                kDefaultOutputTokens, model.context_length,
                                                server::MaxTokensOverflow::kError, "prompt")) {
    return invalid_argument(error->message);
  }
  if (const auto error =
          server::compile_form(context, form, server::ReasoningFirst::kNo, request.constraint)) {
    return invalid_argument(error->message);
  }
  request.role_boundaries = codec.role_boundaries(request.prompt);
  scheduling.apply(request);
  request.sampling = own.sampling;
  request.stop = std::move(own.stop);
  request.skip_special_tokens = own.skip_special_tokens;
  return request;
}

}  // namespace heddle::tools
