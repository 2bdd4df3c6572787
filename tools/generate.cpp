// SPDX-License-Identifier: Apache-2.0
// heddle generate: prints one completion, or answers a file of prompts.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "checkpoint/model_folder.h"
#include "server/call/answer_log.h"
#include "server/call/text_codec.h"
#include "server/http/json_text.h"
#include "tools/cli/adapter_option.h"
#include "tools/cli/event_queue.h"
#include "tools/cli/option_names.h"
#include "tools/cli/options_engine.h"
#include "tools/cli/options_sampling.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/terminal.h"
#include "tools/generate_batch.h"

namespace heddle::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kRequestId = "generate";

struct GenerateSettings {
  EngineSettings model;
  SamplingSettings sampling;
  std::vector<std::string> adapters;  // at most one
  std::string prompt;
  std::string system;
  std::string output;
  bool chat = false;
  bool json = false;
};

// The tokens of the prompt: plain, or as a user's message in the chat template.
Result<std::vector<TokenId>> prompt_tokens(const GenerateSettings& settings,
                                           const server::TextCodec& codec,
                                           const std::string& prompt) {
  if (!settings.chat) return codec.encode(prompt, /*add_special_tokens=*/true);
  HEDDLE_RETURN_IF_ERROR(check_utf8("--system", settings.system));
  HEDDLE_RETURN_IF_ERROR(check_utf8("the prompt", prompt));
  Json messages = Json::array();
  if (!settings.system.empty()) {
    messages.push_back({{"role", "system"}, {"content", settings.system}});
  }
  messages.push_back({{"role", "user"}, {"content", prompt}});
  HEDDLE_ASSIGN_OR_RETURN(const std::string text,
                          codec.render_chat(messages, nullptr, true, Json::object()));
  return codec.encode(text, /*add_special_tokens=*/false);
}

Json report_of(const ModelInfo& model, const std::string& prompt, const std::string& text,
               const std::vector<TokenId>& tokens, const RequestEvent& last) {
  const double decode_seconds = last.elapsed_seconds - last.first_token_seconds;
  const auto decoded = static_cast<double>(last.completion_tokens - 1);
  return {{"model", model.name},
          {"prompt", prompt},
          {"text", text},
          {"output_ids", tokens},
          {"finish_reason", server::finish_name(last.finish->reason)},
          {"matched_stop", server::matched_stop(*last.finish)},
          {"prompt_tokens", last.prompt_tokens},
          {"completion_tokens", last.completion_tokens},
          {"cached_tokens", last.cached_tokens},
          {"cached_tokens_details", server::cache_details(last.cache)},
          {"first_token_seconds", last.first_token_seconds},
          {"total_seconds", last.elapsed_seconds},
          {"decode_tokens_per_second",
           decoded > 0 && decode_seconds > 0 ? Json(decoded / decode_seconds) : Json(nullptr)}};
}

// Streams one answer. Returns the exit code.
Result<int> generate_one(const GenerateSettings& settings, Engine& engine,
                         const server::TextCodec& codec, const std::string& prompt) {
  HEDDLE_ASSIGN_OR_RETURN(auto tokens, prompt_tokens(settings, codec, prompt));
  if (tokens.empty()) return invalid_argument("the prompt is empty");
  HEDDLE_ASSIGN_OR_RETURN(Request request, make_request(settings.sampling, engine.model_info(),
                                                        std::move(tokens), kDefaultOutputTokens));
  request.id = kRequestId;
  request.role_boundaries = codec.role_boundaries(request.prompt);

  EventQueue events;
  interrupts().set_handler([&engine](int signal, int count) {
    if (count > 1) std::_Exit(128 + signal);
    engine.cancel(kRequestId);
  });
  const Status submitted = engine.submit(
      std::move(request), [&events](RequestEvent&& event) { events.push(0, std::move(event)); });
  std::string text;
  std::vector<TokenId> output;
  RequestEvent last;
  bool reader_left = false;
  while (submitted.ok() && !last.finish) {
    last = events.pop().second;
    text += last.text;
    output.insert(output.end(), last.tokens.begin(), last.tokens.end());
    if (!settings.json && !reader_left && !last.text.empty() && !print_now(last.text)) {
      reader_left = true;  // the reader of a pipe has ended, as in `heddle generate ... | head`
      engine.cancel(kRequestId);
    }
  }
  interrupts().set_handler(nullptr);
  HEDDLE_RETURN_IF_ERROR(submitted);
  if (last.finish->reason == FinishReason::kError) return last.finish->error;
  if (settings.json) {
    fmt::print("{}\n", report_of(engine.model_info(), prompt, text, output, last)
                           .dump(2, ' ', false, Json::error_handler_t::replace));
  } else if (text.empty() || text.back() != '\n') {
    print_now("\n");
  }
  return last.finish->reason == FinishReason::kAbort && !reader_left ? kExitInterrupted : 0;
}

// Whether the prompt is the name of a batch file, even if it is mistyped.
bool is_batch(const std::string& prompt) { return prompt.ends_with(".jsonl"); }

// Handles a single argument: it is a prompt for the default model, unless it is a model's folder,
// which is an error because the prompt is missing.
Status settle_prompt(GenerateSettings& settings) {
  if (!settings.prompt.empty()) return {};
  std::string& only = settings.model.model_dir;
  std::error_code error;
  if (only.empty() || only.ends_with(".gguf") || std::filesystem::is_directory(only, error)) {
    return invalid_argument(
        "there is no prompt; give a text in quotes, - for standard input, or a .jsonl file, behind "
        "the model");
  }
  if (only.find('/') != std::string::npos && only.find_first_of(" \n") == std::string::npos) {
    // Reports a mistyped model name as such.
    HEDDLE_RETURN_IF_ERROR(checkpoint::check_model_folder(only));
  }
  settings.prompt = std::exchange(only, {});
  return {};
}

Result<int> generate(GenerateSettings& settings) {
  HEDDLE_RETURN_IF_ERROR(settle_prompt(settings));
  HEDDLE_RETURN_IF_ERROR(apply(settings.model));
  HEDDLE_RETURN_IF_ERROR(apply_adapters(settings.adapters, settings.model.engine));
  const bool batch = is_batch(settings.prompt);
  if (!batch && !settings.output.empty()) {
    return invalid_argument("--output is for batches: name a .jsonl file instead of a prompt");
  }
  if (batch && settings.json && settings.output.empty()) {
    return invalid_argument("--json of a batch needs --output for the answers themselves");
  }
  Batch lines;
  if (batch) {
    HEDDLE_ASSIGN_OR_RETURN(lines, read_batch({.input = settings.prompt,
                                               .output = settings.output,
                                               .json_report = settings.json,
                                               .sampling = settings.sampling}));
  }
  if (settings.prompt == "-") {
    settings.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto engine, create_engine(settings.model.engine));
  HEDDLE_ASSIGN_OR_RETURN(
      const auto codec,
      server::make_model_codec(settings.model.engine.model_dir, *engine->tokenizer(),
                               settings.model.chat_template));
  HEDDLE_ASSIGN_OR_RETURN(const auto adapters, load_adapters(settings.adapters, *engine));
  if (!adapters.empty()) {
    settings.sampling.adapter = lines.settings.sampling.adapter = adapters.front().adapter;
  }
  if (!batch) return generate_one(settings, *engine, *codec, settings.prompt);
  const auto to_tokens = [&](const std::string& prompt) {
    return prompt_tokens(settings, *codec, prompt);
  };
  return generate_batch(lines, *engine, *codec, to_tokens);
}

std::function<int()> declare_generate(Options& options) {
  auto settings = std::make_shared<GenerateSettings>();
  settings->model.log_level = "warning";
  options.examples(
      "heddle generate \"Once upon a time\" --max-tokens 64\n"
      "heddle generate MODEL_DIR --chat \"What is 3 + 4?\" --temperature 0\n"
      "cat letter.txt | heddle generate models/heddle-tiny -\n"
      "heddle generate models/heddle-tiny prompts.jsonl --output answers.jsonl\n"
      "  where each line is {\"prompt\": \"...\"} or {\"messages\": [...]}, with \"custom_id\",\n"
      "  \"max_tokens\", \"temperature\" and the other sampling fields of a request if you like");
  options.reserve("--seed");
  declare_engine_options(options, settings->model, ModelArgument::kOptional);
  options.positional("PROMPT", &settings->prompt,
                     "The text to go on from; -: standard input; NAME.jsonl: a batch. A single "
                     "argument is the prompt",
                     /*required=*/false);
  declare_adapter(options, settings->adapters);
  options.heading("Prompt");
  options.flag("--chat", &settings->chat,
               "The prompt is a user's message: apply the chat template");
  options.value("--system", &settings->system, "With --chat: the system message");
  options.needs("--system", "--chat");
  declare_sampling_options(options, settings->sampling);
  options.heading("Output");
  options.text("-o,--output", &settings->output,
               "File for a batch's answers, in the prompts' order; it must not exist");
  options.flag("--json", &settings->json, "Print a report as JSON instead of streaming");
  return [settings] {
    const Result<int> result = generate(*settings);
    return result.ok() ? *result : report_failure(result.status());
  };
}

}  // namespace

const Subcommand kGenerate = {.name = "generate",
                              .summary = "Complete a prompt, or a file of them.",
                              .declare = declare_generate};

}  // namespace heddle::tools
