// SPDX-License-Identifier: Apache-2.0
// heddle chat: a conversation in the terminal.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "core/mutex.h"
#include "core/printable.h"
#include "server/call/speed_log.h"
#include "server/call/text_codec.h"
#include "tools/chat_model.h"
#include "tools/cli/event_queue.h"
#include "tools/cli/line_editor.h"
#include "tools/cli/option_names.h"
#include "tools/cli/options_engine.h"
#include "tools/cli/options_sampling.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/terminal.h"
#include "tools/cli/word_wrap.h"
#include "tools/load/options_served.h"
#include "tools/served_chat.h"

namespace heddle::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxShown = 2000;  // limit for messages and names that a server may have written

constexpr std::string_view kHelp =
    "/system TEXT  start over with this system message\n"
    "/reset        start over, the system message stays\n"
    "/exit         leave; so does Ctrl-D\n"
    "Ctrl-C stops an answer, or empties the line. Alt-Enter, a backslash at the end, or lines of\n"
    "\"\"\" before and after make a message of several lines; so does pasting them.\n";

struct ChatSettings {
  EngineSettings model;
  SamplingSettings sampling;
  std::string system;
  bool history = true;
  ServedSettings served;
};

// A model in this process.
class LocalChat : public ChatModel {
 public:
  LocalChat(const SamplingSettings& sampling, std::unique_ptr<Engine> engine,
            std::unique_ptr<const server::TextCodec> codec)
      : sampling_(sampling), engine_(std::move(engine)), codec_(std::move(codec)) {}

  [[nodiscard]] std::string description() const override {
    const ModelInfo& model = engine_->model_info();
    return fmt::format("{}, {} tokens of context", model.name, model.context_length);
  }

  Result<ChatAnswer> answer(const Json& messages, const ShowText& show) override {
    HEDDLE_ASSIGN_OR_RETURN(const std::string text,
                            codec_->render_chat(messages, nullptr, true, Json::object()));
    HEDDLE_ASSIGN_OR_RETURN(auto tokens, codec_->encode(text, /*add_special_tokens=*/false));
    const ModelInfo& model = engine_->model_info();
    if (static_cast<int64_t>(tokens.size()) >= model.context_length) {
      return invalid_argument(
          fmt::format("the conversation has {} tokens and the context {}; /reset "
                      "starts over",
                      tokens.size(), model.context_length));
    }
    HEDDLE_ASSIGN_OR_RETURN(Request request, make_request(sampling_, model, std::move(tokens),
                                                          /*default_tokens=*/model.context_length));
    return stream(std::move(request), show);
  }

  bool cancel() override HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (running_id_.empty()) return false;
    engine_->cancel(running_id_);
    return true;
  }

 private:
  Result<ChatAnswer> stream(Request request, const ShowText& show) HEDDLE_EXCLUDES(mutex_) {
    request.id = fmt::format("chat-{}", ++num_answers_);
    request.role_boundaries = codec_->role_boundaries(request.prompt);
    EventQueue events;
    {
      const MutexLock lock(mutex_);
      running_id_ = request.id;
    }
    const Status submitted = engine_->submit(
        std::move(request), [&events](RequestEvent&& event) { events.push(0, std::move(event)); });
    ChatAnswer answer;
    RequestEvent last;
    while (submitted.ok() && !last.finish) {
      last = events.pop().second;
      answer.text += last.text;
      if (!last.text.empty()) show(last.text);
    }
    {
      const MutexLock lock(mutex_);
      running_id_.clear();
    }
    HEDDLE_RETURN_IF_ERROR(submitted);
    if (last.completion_tokens > 0) {
      server::CallSpeed speed;
      speed.add(last, /*counts_prompt=*/true);
      answer.speed = speed.to_string();
    }
    if (last.finish->reason == FinishReason::kError) return last.finish->error;
    return answer;
  }

  const SamplingSettings& sampling_;
  const std::unique_ptr<Engine> engine_;
  const std::unique_ptr<const server::TextCodec> codec_;
  int num_answers_ = 0;
  Mutex mutex_;
  // Id of the running answer; empty between answers.
  std::string running_id_ HEDDLE_GUARDED_BY(mutex_);
};

std::string wrapped(std::string_view line) {
  WordWrap wrap(terminal_columns());
  const std::string shown = wrap.feed(line);
  return shown + wrap.end() + "\n";
}

class Conversation {
 public:
  Conversation(const ChatSettings& settings, ChatModel& model)
      : model_(model), system_(settings.system), remembers_(settings.history) {
    start_over();
  }

  // Runs the conversation until the input ends or /exit is typed. Returns the exit code.
  int run() {
    const bool interactive = stdin_is_terminal();
    if (interactive && stdout_is_terminal()) {
      editor_.emplace(remembers_ ? chat_history_file() : std::filesystem::path());
    }
    interrupts().set_handler([this](int signal, int /*count*/) { on_signal(signal); });
    if (interactive) {
      print_now(wrapped(fmt::format("{}. /help lists the commands.",
                                    printable(model_.description(), kMaxShown))));
    }
    int exit_code = 0;
    while (const std::optional<std::string> line = next_message(interactive)) {
      if (*line == "/exit" || *line == "/quit") break;
      if (line->find_first_not_of(" \t\r\n") == std::string::npos) continue;
      if (line->front() == '/') {
        obey(*line);
        continue;
      }
      const Status status = answer(*line);
      if (!status.ok()) exit_code = kExitFailure;
      if (!status.ok()) {
        fmt::print(stderr, "error: {}\n", printable(status.message(), kMaxShown));
      }
    }
    interrupts().set_handler(nullptr);
    return interactive ? 0 : exit_code;
  }

 private:
  void start_over() {
    messages_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  // Reads the next message; none at the end of the input.
  std::optional<std::string> next_message(bool interactive) {
    if (editor_) return editor_->read();
    if (interactive) print_now("> ");
    std::string line;
    if (std::getline(std::cin, line)) return line;
    if (interactive) print_now("\n");
    return std::nullopt;
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

  // Adds question and answer to the history, or nothing if there is no answer.
  Status answer(const std::string& question) {
    HEDDLE_RETURN_IF_ERROR(check_utf8("the system message", system_));
    HEDDLE_RETURN_IF_ERROR(check_utf8("the message", question));
    Json messages = messages_;
    messages.push_back({{"role", "user"}, {"content", question}});
    WordWrap wrap(terminal_columns());
    bool ends_line = true;
    const auto show = [&ends_line](const std::string& text) {
      if (!text.empty()) ends_line = text.back() == '\n';
      print_now(text);
    };
    Result<ChatAnswer> answer =
        model_.answer(messages, [&](std::string_view text) { show(wrap.feed(text)); });
    show(wrap.end());
    if (!ends_line || (answer.ok() && answer->text.empty())) print_now("\n");
    HEDDLE_RETURN_IF_ERROR(answer.status());
    if (stdin_is_terminal() && !answer->speed.empty())
      print_now(wrapped("[" + answer->speed + "]"));
    if (answer->text.empty()) return ok_status();
    messages.push_back({{"role", "assistant"}, {"content", std::move(answer->text)}});
    messages_ = std::move(messages);
    return ok_status();
  }

  // While a line is edited, Ctrl-C reaches the editor as a key. This signal therefore arrives
  // during an answer, or from `kill`.
  void on_signal(int signal) {
    if (signal == SIGINT && model_.cancel()) {
      num_idle_interrupts_ = 0;
      return;
    }
    if (signal != SIGINT || ++num_idle_interrupts_ > 1 || !stdin_is_terminal()) {
      if (editor_) editor_->restore_terminal();
      std::_Exit(128 + signal);
    }
    print_now("\n/exit or Ctrl-D leaves\n");
  }

  ChatModel& model_;
  std::string system_;
  Json messages_;
  const bool remembers_;              // whether typed messages are stored for later runs
  std::optional<LineEditor> editor_;  // set if standard input is a terminal
  // Ctrl-C since the last one that ended an answer; used on the signals' thread.
  int num_idle_interrupts_ = 0;
};

Result<std::unique_ptr<ChatModel>> make_chat_model(ChatSettings& settings) {
  if (!settings.served.url.empty()) {
    if (!settings.model.model_dir.empty()) {
      return invalid_argument(fmt::format("{} and --url {}: a folder and a server; name one",
                                          settings.model.model_dir, settings.served.url));
    }
    return make_served_chat(settings.served, settings.sampling);
  }
  HEDDLE_RETURN_IF_ERROR(apply(settings.model));
  HEDDLE_ASSIGN_OR_RETURN(auto engine, create_engine(settings.model.engine));
  HEDDLE_ASSIGN_OR_RETURN(
      auto codec, server::make_model_codec(settings.model.engine.model_dir, *engine->tokenizer(),
                                           settings.model.chat_template));
  return std::unique_ptr<ChatModel>(
      std::make_unique<LocalChat>(settings.sampling, std::move(engine), std::move(codec)));
}

Result<int> chat(ChatSettings& settings) {
  HEDDLE_ASSIGN_OR_RETURN(const auto model, make_chat_model(settings));
  return Conversation(settings, *model).run();
}

std::function<int()> declare_chat(Options& options) {
  auto settings = std::make_shared<ChatSettings>();
  settings->model.log_level = "warning";
  options.examples(
      "heddle chat\n"
      "heddle chat MODEL_DIR --system \"You are brief.\" --temperature 0.3\n"
      "heddle chat --url http://127.0.0.1:30000\n"
      "echo \"What is 3 + 4?\" | heddle chat models/heddle-tiny");
  options.reserve("--seed");
  declare_engine_options(options, settings->model, ModelArgument::kOptional);
  const std::vector<DeclaredOption> of_this_process = options.declared();
  options.heading("Conversation");
  options.value("--system", &settings->system, "The system message");
  options.flag("--history,!--no-history", &settings->history,
               "Remember messages for the next chat (default)");
  declare_served_options(options, settings->served, of_this_process);
  declare_sampling_options(options, settings->sampling);
  return [settings] {
    const Result<int> result = chat(*settings);
    return result.ok() ? *result : report_failure(result.status());
  };
}

}  // namespace

const Subcommand kChat = {
    .name = "chat", .summary = "Talk to a model in the terminal.", .declare = declare_chat};

}  // namespace heddle::tools
