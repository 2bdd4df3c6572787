// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/answer_log.h"
#include "server/chat_completions.h"
#include "server/json_text.h"

namespace heddle::server {
namespace {

class ChatAdapter final : public ApiAdapter {
 public:
  explicit ChatAdapter(ChatAnswerOptions options)
      : options_(std::move(options)),
        logs_(options_.num_choices),
        started_(options_.num_choices, false) {}

  void event(size_t choice, const RequestEvent& event, std::string& out) override {
    ChoiceLog& log = logs_[choice];
    log.add(event);
    if (!options_.streaming.stream) return;
    if (!started_[choice]) append_chunk(choice, Chunk::kRole, out);
    started_[choice] = true;
    if (!log.text.empty() || shows_logprobs(log) || shows_tokens(log)) {
      append_chunk(choice, Chunk::kContent, out);
    }
    if (log.finish) append_chunk(choice, Chunk::kFinish, out);
    log.clear();
  }

  void end(std::string& out) override {
    if (options_.streaming.include_usage) {
      JsonPieces chunk;
      chunk.around("data: ");
      begin_answer(chunk, "chat.completion.chunk");
      chunk.key("choices").begin_list().end_list().key("usage").value(usage());
      chunk.end_object().around("\n\n").write_all(out);
    }
    out += kSseDone;
  }

  JsonPieces body() override {
    JsonPieces body;
    begin_answer(body, "chat.completion");
    body.key("choices").begin_list();
    for (size_t i = 0; i < logs_.size(); ++i) {
      const ChoiceLog& log = logs_[i];
      const Finish finish = log.finish.value_or(Finish{});
      body.begin_object().key("index").value(i);
      body.key("message").begin_object().key("role").value("assistant");
      body.key("content").text(log.text);
      body.key("reasoning_content").value(nullptr).key("tool_calls").value(nullptr).end_object();
      body.key("logprobs");
      options_.logprobs ? add_logprobs(log, body) : body.value(nullptr);
      body.key("finish_reason").value(finish_name(finish.reason));
      body.key("matched_stop").value(matched_stop(finish));
      if (options_.return_token_ids) body.key("token_ids").integers(log.tokens);
      body.end_object();
    }
    body.end_list().key("usage").value(usage());
    body.key("metadata").value({{"weight_version", "default"}});
    if (options_.prompt_token_ids)
      body.key("prompt_token_ids").integers(*options_.prompt_token_ids);
    return std::move(body.end_object());
  }

 private:
  // A choice is streamed as its role, then what is new at each event, then its end.
  enum class Chunk { kRole, kContent, kFinish };

  void append_chunk(size_t index, Chunk kind, std::string& out) const {
    const ChoiceLog& log = logs_[index];
    const bool content = kind == Chunk::kContent;
    JsonPieces chunk;
    chunk.around("data: ");
    begin_answer(chunk, "chat.completion.chunk");
    chunk.key("choices").begin_list().begin_object().key("index").value(index);
    chunk.key("delta").begin_object();
    if (kind == Chunk::kRole) chunk.key("role").value("assistant").key("content").value("");
    if (content && !log.text.empty()) chunk.key("content").text(log.text);
    chunk.end_object().key("logprobs");
    content&& shows_logprobs(log) ? add_logprobs(log, chunk) : chunk.value(nullptr);
    chunk.key("finish_reason");
    if (kind == Chunk::kFinish) {
      chunk.value(finish_name(log.finish->reason));
      chunk.key("matched_stop").value(matched_stop(*log.finish));
    } else {
      chunk.value(nullptr);
    }
    if (content && shows_tokens(log)) chunk.key("token_ids").integers(log.tokens);
    chunk.end_object().end_list();
    if (kind == Chunk::kRole && index == 0 && options_.prompt_token_ids) {
      chunk.key("prompt_token_ids").integers(*options_.prompt_token_ids);
    }
    if (options_.streaming.continuous_usage) {
      chunk.key("usage").value(usage());
    } else if (options_.streaming.include_usage) {
      chunk.key("usage").value(nullptr);
    }
    chunk.end_object().around("\n\n").write_all(out);
  }

  // The object is left open.
  void begin_answer(JsonPieces& answer, std::string_view object) const {
    answer.begin_object().key("id").value(options_.id).key("object").value(object);
    answer.key("created").value(options_.created).key("model").value(options_.model);
  }

  [[nodiscard]] bool shows_logprobs(const ChoiceLog& log) const {
    return options_.logprobs && log.logprobs.size() > 0;
  }

  [[nodiscard]] bool shows_tokens(const ChoiceLog& log) const {
    return options_.return_token_ids && !log.tokens.empty();
  }

  [[nodiscard]] nlohmann::ordered_json usage() const {
    return usage_json(logs_, logs_.size(), options_.cache_details);
  }

  // {"content": [{"token": .., "logprob": .., "bytes": [..], "top_logprobs": [..]}, ..]}
  JsonPieces& add_logprobs(const ChoiceLog& log, JsonPieces& answer) const {
    const auto write_entry = [this, &log](size_t index, std::string& out) {
      append_token(log.logprobs.token(index), log.logprobs.logprob(index), out);
      out += ",\"top_logprobs\":[";
      const size_t begin = out.size();
      for (const auto& [token, logprob] : log.logprobs.top(index)) {
        if (out.size() > begin) out += ',';
        append_token(token, logprob, out);
        out += '}';
      }
      out += "]}";
    };
    return answer.begin_object().key("content").list(log.logprobs.size(), write_entry).end_object();
  }

  // The object is left open.
  void append_token(TokenId token, float logprob, std::string& out) const {
    const std::string bytes = options_.codec->token_bytes(token);
    out += "{\"token\":";
    append_json_string(bytes, out);
    out += ",\"logprob\":";
    append_logprob(logprob, out);
    out += ",\"bytes\":[";
    for (size_t i = 0; i < bytes.size(); ++i) {
      fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",",
                     static_cast<unsigned char>(bytes[i]));
    }
    out += ']';
  }

  ChatAnswerOptions options_;
  std::vector<ChoiceLog> logs_;
  std::vector<bool> started_;  // per choice: its role was streamed
};

}  // namespace

std::unique_ptr<ApiAdapter> make_chat_adapter(ChatAnswerOptions options) {
  return std::make_unique<ChatAdapter>(std::move(options));
}

}  // namespace heddle::server
