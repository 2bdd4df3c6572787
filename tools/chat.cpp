// SPDX-License-Identifier: Apache-2.0
// heddle chat: a conversation in the terminal.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "core/mutex.h"
#include "event_queue.h"
#include "option_names.h"
#include "options_engine.h"
#include "options_sampling.h"
#include "server/speed_log.h"
#include "server/text_codec.h"
#include "subcommand.h"
#include "terminal.h"

namespace heddle::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrompt = "> ";
constexpr std::string_view kHelp =
    "/system TEXT  start over with this system message\n"
    "/reset        start over, the system message stays\n"
    "/exit         leave; so does Ctrl-D\n"
    "Ctrl-C stops an answer.\n";

struct ChatSettings {
  EngineSettings model;
  SamplingSettings sampling;
  std::string system;
};

class Conversation {
 public:
  Conversation(const ChatSettings& settings, Engine& engine, const server::TextCodec& codec)
      : settings_(settings), engine_(engine), codec_(codec), system_(settings.system) {
    start_over();
  }

  // Runs until the input ends or /exit. Returns the exit code.
  int run() {
    interrupts().set_handler([this](int signal, int) { on_signal(signal); });
    const bool interactive = stdin_is_terminal();
    if (interactive) {
      print_now(fmt::format("{}, {} tokens of context. /help lists the commands.\n",
                            engine_.model_info().name, engine_.model_info().context_length));
    }
    int exit_code = 0;
    std::string line;
    while (true) {
      if (interactive) print_now(kPrompt);
      if (!std::getline(std::cin, line)) {
        if (interactive) print_now("\n");
        break;
      }
      if (line == "/exit" || line == "/quit") break;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      if (line.front() == '/') {
        obey(line);
        continue;
      }
      const Status status = answer(line);
      if (!status.ok()) exit_code = kExitFailure;
      if (!status.ok()) fmt::print(stderr, "error: {}\n", status.message());
    }
    interrupts().set_handler(nullptr);
    return interactive ? 0 : exit_code;
  }

 private:
  void start_over() {
    messages_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  void obey(const std::string& line) {
    constexpr std::string_view kSystem = "/system ";
    if (line == "/help") {
      print_now(kHelp);
    } else if (line == "/reset") {
      start_over();
    } else if (line.starts_with(kSystem) || line == "/system") {
      system_ = line.size() > kSystem.size() ? line.substr(kSystem.size()) : "";
      start_over();
    } else {
      print_now(fmt::format("There is no command {}. /help lists them.\n",
                            line.substr(0, line.find(' '))));
    }
  }

  // Adds question and answer to the history, or neither when there is no answer.
  Status answer(const std::string& question) {
    HEDDLE_RETURN_IF_ERROR(check_utf8("the system message", system_));
    HEDDLE_RETURN_IF_ERROR(check_utf8("the message", question));
    Json messages = messages_;
    messages.push_back({{"role", "user"}, {"content", question}});
    HEDDLE_ASSIGN_OR_RETURN(const std::string text,
                            codec_.render_chat(messages, nullptr, true, Json::object()));
    HEDDLE_ASSIGN_OR_RETURN(auto tokens, codec_.encode(text, /*add_special_tokens=*/false));
    const ModelInfo& model = engine_.model_info();
    if (static_cast<int64_t>(tokens.size()) >= model.context_length) {
      return invalid_argument(
          fmt::format("the conversation has {} tokens and the context {}; /reset "
                      "starts over",
                      tokens.size(), model.context_length));
    }
    HEDDLE_ASSIGN_OR_RETURN(Request request,
                            make_request(settings_.sampling, model, std::move(tokens),
                                         /*default_tokens=*/model.context_length));
    HEDDLE_ASSIGN_OR_RETURN(std::string said, stream(std::move(request)));
    messages.push_back({{"role", "assistant"}, {"content", std::move(said)}});
    messages_ = std::move(messages);
    return ok_status();
  }

  Result<std::string> stream(Request request) {
    request.id = fmt::format("chat-{}", ++num_answers_);
    request.role_boundaries = codec_.role_boundaries(request.prompt);
    EventQueue events;
    {
      const MutexLock lock(mutex_);
      running_id_ = request.id;
    }
    const Status submitted = engine_.submit(
        std::move(request), [&events](RequestEvent&& event) { events.push(0, std::move(event)); });
    std::string said;
    RequestEvent last;
    while (submitted.ok() && !last.finish) {
      last = events.pop().second;
      said += last.text;
      if (!last.text.empty()) print_now(last.text);
    }
    {
      const MutexLock lock(mutex_);
      running_id_.clear();
    }
    HEDDLE_RETURN_IF_ERROR(submitted);
    if (said.empty() || said.back() != '\n') print_now("\n");
    if (stdin_is_terminal() && last.completion_tokens > 0) {
      server::CallSpeed speed;
      speed.add(last, /*counts_prompt=*/true);
      print_now(fmt::format("[{}]\n", speed.to_string()));
    }
    if (last.finish->reason == FinishReason::kError) return last.finish->error;
    return said;
  }

  void on_signal(int signal) HEDDLE_EXCLUDES(mutex_) {
    if (signal != SIGINT) std::_Exit(128 + signal);
    const MutexLock lock(mutex_);
    if (!running_id_.empty()) {
      engine_.cancel(running_id_);
    } else if (stdin_is_terminal()) {
      print_now(fmt::format("\n/exit or Ctrl-D leaves\n{}", kPrompt));
    } else {
      std::_Exit(128 + signal);
    }
  }

  const ChatSettings& settings_;
  Engine& engine_;
  const server::TextCodec& codec_;
  std::string system_;
  Json messages_;
  int num_answers_ = 0;
  Mutex mutex_;
  std::string running_id_ HEDDLE_GUARDED_BY(mutex_);  // empty between answers
};

Result<int> chat(ChatSettings& settings) {
  HEDDLE_RETURN_IF_ERROR(apply(settings.model));
  HEDDLE_ASSIGN_OR_RETURN(const auto engine, create_engine(settings.model.engine));
  HEDDLE_ASSIGN_OR_RETURN(
      const auto codec,
      server::make_model_codec(settings.model.engine.model_dir, *engine->tokenizer(),
                               settings.model.chat_template));
  return Conversation(settings, *engine, *codec).run();
}

std::function<int()> declare_chat(Options& options) {
  auto settings = std::make_shared<ChatSettings>();
  settings->model.log_level = "warning";
  options.examples(
      "heddle chat\n"
      "heddle chat MODEL_DIR --system \"You are brief.\" --temperature 0.3\n"
      "echo \"What is 3 + 4?\" | heddle chat models/heddle-tiny");
  options.heading("Conversation");
  options.value("--system", &settings->system, "The system message");
  options.reserve("--seed");
  declare_engine_options(options, settings->model, ModelArgument::kOptional);
  declare_sampling_options(options, settings->sampling);
  return [settings] {
    const Result<int> result = chat(*settings);
    if (result.ok()) return *result;
    fmt::print(stderr, "error: {}\n", result.status().message());
    return kExitFailure;
  };
}

}  // namespace

const Subcommand kChat = {
    .name = "chat", .summary = "Talk to a model in the terminal.", .declare = declare_chat};

}  // namespace heddle::tools
