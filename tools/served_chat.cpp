// SPDX-License-Identifier: Apache-2.0
#include "served_chat.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>

#include <heddle/request.h>

#include "core/mutex.h"
#include "load_answer.h"
#include "server/speed_log.h"

namespace heddle::tools {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using nlohmann::ordered_json;
using ChatClock = std::chrono::steady_clock;

constexpr size_t kMaxErrorBytes = 64 << 10;  // kept of an answer that is no stream

double seconds_since(ChatClock::time_point start) {
  return std::chrono::duration<double>(ChatClock::now() - start).count();
}

// An answer's events, as they come.
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

  // 0 where it is missing, or no count.
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
  ServedChat(ServedChatOptions options, ServerAddress address)
      : options_(std::move(options)), address_(std::move(address)) {}

  [[nodiscard]] std::string description() const override {
    return fmt::format("{} at {}", options_.model, options_.url);
  }

  Result<ChatAnswer> answer(const ordered_json& messages, const ShowText& show) override {
    asio::io_context io;
    asio::ip::tcp::socket socket(io);
    error_code error;
    asio::ip::tcp::resolver resolver(io);
    const auto found = resolver.resolve(address_.host, address_.port, error);
    if (!error) asio::connect(socket, found, error);
    if (error) return failure("the connection", error);
    set_running(socket.native_handle());
    auto answered = exchange(socket, messages, show);
    set_running(-1);
    return answered;
  }

  bool cancel() override {
    const MutexLock lock(mutex_);
    if (running_ < 0) return false;
    cancelled_ = true;
    ::shutdown(running_, SHUT_RDWR);
    return true;
  }

 private:
  void set_running(int socket) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    running_ = socket;
    if (socket >= 0) cancelled_ = false;
  }

  [[nodiscard]] bool was_cancelled() HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return cancelled_;
  }

  [[nodiscard]] Status failure(std::string_view of, const error_code& error) const {
    return unavailable(
        fmt::format("{}: {} failed: {}; is the server up?", options_.url, of, error.message()));
  }

  [[nodiscard]] std::string body_of(const ordered_json& messages) const {
    const SamplingSettings& sampling = options_.sampling;
    ordered_json body = {{"model", options_.model},
                         {"messages", messages},
                         {"stream", true},
                         {"stream_options", {{"include_usage", true}}}};
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
    return body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  }

  Result<ChatAnswer> exchange(asio::ip::tcp::socket& socket, const ordered_json& messages,
                              const ShowText& show) {
    http::request<http::string_body> request(http::verb::post,
                                             address_.path + "/v1/chat/completions", 11);
    const bool v6 = address_.host.find(':') != std::string::npos;
    request.set(http::field::host, fmt::format("{}{}{}:{}", v6 ? "[" : "", address_.host,
                                               v6 ? "]" : "", address_.port));
    request.set(http::field::user_agent, "heddle-chat");
    request.set(http::field::content_type, "application/json");
    request.set(http::field::connection, "close");
    if (!options_.api_key.empty()) {
      request.set(http::field::authorization, "Bearer " + options_.api_key);
    }
    request.body() = body_of(messages);
    request.prepare_payload();

    AnswerEvents events(show);
    error_code error;
    http::write(socket, request, error);
    boost::beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    error = {};  // a refusal may be there although the request could not be sent whole
    http::read_header(socket, buffer, parser, error);
    if (error) return was_cancelled() ? events.end() : failure("the answer", error);
    const int status = static_cast<int>(parser.get().result_int());
    const bool streams =
        status == 200 && parser.get()[http::field::content_type].starts_with("text/event-stream");
    SseReader reader;
    std::string refusal;
    std::array<char, 16 << 10> bytes;
    while (!parser.is_done()) {
      parser.get().body().data = bytes.data();
      parser.get().body().size = bytes.size();
      http::read_some(socket, buffer, parser, error);
      if (error == http::error::need_buffer) error = {};
      const std::string_view part(bytes.data(), bytes.size() - parser.get().body().size);
      if (streams) {
        reader.feed(part, [&events](std::string_view data) { events.take(data); });
      } else {
        refusal += part.substr(0, kMaxErrorBytes - std::min(refusal.size(), kMaxErrorBytes));
      }
      if (error && was_cancelled()) break;
      if (error) return failure("the answer", error);
    }
    if (streams) return events.end();
    return unavailable(fmt::format("{} answers {}: {}{}", options_.url, status,
                                   error_message(refusal),
                                   status == 401 ? "; name a key with --api-key" : ""));
  }

  const ServedChatOptions options_;
  const ServerAddress address_;
  Mutex mutex_;
  int running_ HEDDLE_GUARDED_BY(mutex_) = -1;  // the socket of the answer under way
  bool cancelled_ HEDDLE_GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<std::unique_ptr<ChatModel>> make_served_chat(ServedChatOptions options) {
  HEDDLE_ASSIGN_OR_RETURN(ServerAddress address, parse_server_address(options.url));
  if (options.model.empty()) {
    LoadClient client(
        {.address = address, .model_option = "--served-model", .api_key = options.api_key});
    HEDDLE_ASSIGN_OR_RETURN(options.model, client.choose_model());
  }
  return std::unique_ptr<ChatModel>(
      std::make_unique<ServedChat>(std::move(options), std::move(address)));
}

}  // namespace heddle::tools
