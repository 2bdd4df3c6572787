// SPDX-License-Identifier: Apache-2.0
#include "tools/served_chat.h"

#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <heddle/request.h>

#include "server/call/speed_log.h"
#include "tools/load/load_answer.h"
#include "tools/load/load_client.h"

namespace heddle::tools {
namespace {

using nlohmann::ordered_json;
using ChatClock = std::chrono::steady_clock;

double seconds_since(ChatClock::time_point start) {
  return std::chrono::duration<double>(ChatClock::now() - start).count();
}

// Reads the events of an answer as they arrive.
class AnswerEvents {
 public:
  explicit AnswerEvents(const ChatModel::ShowText& show) : show_(show) {}

  void take(std::string_view data) {
    if (data == "[DONE]") return;
    const auto event = ordered_json::parse(data, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object()) return;
    if (const auto error = event.find("error"); error != event.end() && !error->is_null()) {
      error_ = error_message(data);
    }
    if (const auto usage = event.find("usage"); usage != event.end() && usage->is_object()) {
      last_.prompt_tokens = count(*usage, "prompt_tokens");
      last_.completion_tokens = count(*usage, "completion_tokens");
      if (const auto details = usage->find("prompt_tokens_details");
          details != usage->end() && details->is_object()) {
        last_.cached_tokens = count(*details, "cached_tokens");
      }
    }
    const auto choices = event.find("choices");
    if (choices == event.end() || !choices->is_array() || choices->empty()) return;
    const auto delta = choices->front().find("delta");
    if (delta == choices->front().end() || !delta->is_object()) return;
    for (const char* key : {"reasoning_content", "reasoning"}) {
      if (const std::string* part = text(*delta, key)) {
        reasons_ = true;
        say(*part);
        break;
      }
    }
    if (const std::string* part = text(*delta, "content")) {
      if (std::exchange(reasons_, false)) say("\n\n");
      text_ += *part;
      say(*part);
    }
  }

  Result<ChatAnswer> end() {
    if (error_) return unavailable(*error_);
    ChatAnswer answer{.text = std::move(text_)};
    if (last_.completion_tokens > 0) {
      last_.elapsed_seconds = seconds_since(start_);
      server::CallSpeed speed;
      speed.add(last_, /*counts_prompt=*/true);
      answer.speed = speed.to_string();
    }
    return answer;
  }

 private:
  static const std::string* text(const ordered_json& delta, const char* key) {
    const auto found = delta.find(key);
    if (found == delta.end() || !found->is_string()) return nullptr;
    const auto& value = found->get_ref<const std::string&>();
    return value.empty() ? nullptr : &value;
  }

  // A token count in the usage; 0 if it is missing or no number.
  static int64_t count(const ordered_json& usage, const char* key) {
    const auto found = usage.find(key);
    return found != usage.end() && found->is_number_unsigned() ? found->get<int64_t>() : 0;
  }

  void say(std::string_view part) {
    if (last_.first_token_seconds == 0) last_.first_token_seconds = seconds_since(start_);
    show_(part);
  }

  const ChatModel::ShowText& show_;
  const ChatClock::time_point start_ = ChatClock::now();
  RequestEvent last_;
  std::string text_;
  bool reasons_ = false;
  std::optional<std::string> error_;
};

class ServedChat : public ChatModel {
 public:
  ServedChat(const ServedSettings& served, SamplingSettings sampling, ServerAddress address)
      : served_(served),
        sampling_(std::move(sampling)),
        call_(std::move(address), served.api_key, "heddle-chat") {}

  [[nodiscard]] std::string description() const override {
    return fmt::format("{} at {}", served_.model, served_.url);
  }

  Result<ChatAnswer> answer(const ordered_json& messages, const ShowText& show) override {
    AnswerEvents events(show);
    HEDDLE_ASSIGN_OR_RETURN(const ServerReply reply,
                            call_.post("/v1/chat/completions", body_of(messages),
                                       [&events](std::string_view data) { events.take(data); }));
    if (reply.is_stream || reply.was_cancelled) return events.end();
    return unavailable(refusal_text(call_.address(), reply));
  }

  bool cancel() override { return call_.cancel(); }

 private:
  [[nodiscard]] std::string body_of(const ordered_json& messages) const {
    ordered_json body = {{"model", served_.model},
                         {"messages", messages},
                         {"stream", true},
                         {"stream_options", {{"include_usage", true}}}};
    add_sampling(sampling_, body);
    return body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  }

  const ServedSettings served_;
  const SamplingSettings sampling_;
  ServerCall call_;
};

}  // namespace

void add_sampling(const SamplingSettings& sampling, ordered_json& body) {
  const auto add = [&body](const char* key, const auto& value) {
    if (value) body[key] = *value;
  };
  add("max_tokens", sampling.max_tokens);
  add("temperature", sampling.temperature);
  add("top_p", sampling.top_p);
  add("top_k", sampling.top_k);
  add("min_p", sampling.min_p);
  add("frequency_penalty", sampling.frequency_penalty);
  add("presence_penalty", sampling.presence_penalty);
  add("repetition_penalty", sampling.repetition_penalty);
  add("seed", sampling.seed);
  if (!sampling.stop.empty()) body["stop"] = sampling.stop;
  if (sampling.ignore_eos) body["ignore_eos"] = true;
}

std::string refusal_text(const ServerAddress& address, const ServerReply& reply) {
  return fmt::format("{} answers {}: {}{}", address.url(), reply.status, error_message(reply.body),
                     reply.status == 401 ? "; name a key with --api-key" : "");
}

Status choose_served_model(const ServerAddress& address, ServedSettings& served) {
  if (!served.model.empty()) return ok_status();
  LoadClient client({.address = address,
                     .model_option = "--served-model",
                     .api_key = served.api_key,
                     .timeout_seconds = served.timeout_seconds});
  HEDDLE_ASSIGN_OR_RETURN(served.model, client.choose_model());
  return ok_status();
}

Result<std::unique_ptr<ChatModel>> make_served_chat(ServedSettings served,
                                                    const SamplingSettings& sampling) {
  HEDDLE_ASSIGN_OR_RETURN(ServerAddress address, address_of(served));
  HEDDLE_RETURN_IF_ERROR(choose_served_model(address, served));
  return std::unique_ptr<ChatModel>(
      std::make_unique<ServedChat>(served, sampling, std::move(address)));
}

}  // namespace heddle::tools
