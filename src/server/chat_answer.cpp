// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "server/answer_fields.h"
#include "server/chat_completions.h"
#include "server/json_text.h"
#include "server/usage.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

class ChatAdapter final : public ApiAdapter {
 public:
  explicit ChatAdapter(ChatAnswerOptions options)
      : options_(std::move(options)),
        choices_(options_.num_choices),
        usage_(options_.num_choices, options_.num_choices, options_.cache_details) {}

  void event(size_t choice, const RequestEvent& event, std::string& out) override {
    usage_.update(choice, event);
    Choice& state = choices_[choice];
    if (event.finish) state.finish = event.finish;
    if (options_.streaming.stream) {
      stream_event(choice, event, out);
      return;
    }
    state.text += event.text;
    if (options_.return_token_ids) {
      state.tokens.insert(state.tokens.end(), event.tokens.begin(), event.tokens.end());
    }
    state.logprobs.insert(state.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
  }

  void end(std::string& out) override {
    if (!options_.streaming.stream) {
      out += dump_json(body());
      return;
    }
    if (options_.streaming.include_usage) {
      Json chunk = chunk_head();
      chunk["choices"] = Json::array();
      chunk["usage"] = usage_.to_json();
      out += sse_event(chunk);
    }
    out += kSseDone;
  }

 private:
  struct Choice {
    bool started = false;
    std::string text;
    std::vector<TokenId> tokens;
    std::vector<TokenLogprob> logprobs;
    std::optional<Finish> finish;
  };

  // Role, then the text, then the finish: one chunk each, as they come.
  void stream_event(size_t index, const RequestEvent& event, std::string& out) {
    Choice& choice = choices_[index];
    if (!choice.started) {
      choice.started = true;
      Json chunk = choice_chunk(index, {{"role", "assistant"}, {"content", ""}});
      if (options_.prompt_token_ids && index == 0) {
        chunk["prompt_token_ids"] = *options_.prompt_token_ids;
      }
      out += sse_event(with_usage(std::move(chunk)));
    }
    const bool has_logprobs = options_.logprobs && !event.logprobs.empty();
    const bool has_tokens = options_.return_token_ids && !event.tokens.empty();
    if (!event.text.empty() || has_logprobs || has_tokens) {
      Json delta = Json::object();
      if (!event.text.empty()) delta["content"] = event.text;
      Json chunk = choice_chunk(index, std::move(delta));
      if (has_logprobs) chunk["choices"][0]["logprobs"] = logprobs_json(event.logprobs);
      if (has_tokens) chunk["choices"][0]["token_ids"] = event.tokens;
      out += sse_event(with_usage(std::move(chunk)));
    }
    if (event.finish) {
      Json chunk = choice_chunk(index, Json::object());
      chunk["choices"][0]["finish_reason"] = finish_name(event.finish->reason);
      chunk["choices"][0]["matched_stop"] = matched_stop(*event.finish);
      out += sse_event(with_usage(std::move(chunk)));
    }
  }

  [[nodiscard]] Json chunk_head() const {
    return {{"id", options_.id},
            {"object", "chat.completion.chunk"},
            {"created", options_.created},
            {"model", options_.model}};
  }

  [[nodiscard]] Json choice_chunk(size_t index, Json delta) const {
    Json chunk = chunk_head();
    chunk["choices"] = Json::array();
    chunk["choices"].push_back({{"index", index},
                                {"delta", std::move(delta)},
                                {"logprobs", nullptr},
                                {"finish_reason", nullptr}});
    return chunk;
  }

  [[nodiscard]] Json with_usage(Json chunk) const {
    if (options_.streaming.continuous_usage) {
      chunk["usage"] = usage_.to_json();
    } else if (options_.streaming.include_usage) {
      chunk["usage"] = nullptr;
    }
    return chunk;
  }

  [[nodiscard]] Json body() const {
    Json choices = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      const Choice& choice = choices_[i];
      const Finish finish = choice.finish.value_or(Finish{});
      Json entry = {
          {"index", i},
          {"message",
           {{"role", "assistant"},
            {"content", choice.text},
            {"reasoning_content", nullptr},
            {"tool_calls", nullptr}}},
          {"logprobs", options_.logprobs ? logprobs_json(choice.logprobs) : Json(nullptr)},
          {"finish_reason", finish_name(finish.reason)},
          {"matched_stop", matched_stop(finish)}};
      if (options_.return_token_ids) entry["token_ids"] = choice.tokens;
      choices.push_back(std::move(entry));
    }
    Json result = {{"id", options_.id},
                   {"object", "chat.completion"},
                   {"created", options_.created},
                   {"model", options_.model},
                   {"choices", std::move(choices)},
                   {"usage", usage_.to_json()},
                   {"metadata", {{"weight_version", "default"}}}};
    if (options_.prompt_token_ids) result["prompt_token_ids"] = *options_.prompt_token_ids;
    return result;
  }

  [[nodiscard]] Json token_json(TokenId token, float logprob) const {
    const std::string bytes = options_.codec->token_bytes(token);
    Json numbers = Json::array();
    for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
    return {
        {"token", bytes}, {"logprob", printable_logprob(logprob)}, {"bytes", std::move(numbers)}};
  }

  [[nodiscard]] Json logprobs_json(const std::vector<TokenLogprob>& logprobs) const {
    Json content = Json::array();
    for (const TokenLogprob& entry : logprobs) {
      Json token = token_json(entry.token, entry.logprob);
      Json top = Json::array();
      for (const auto& [id, logprob] : entry.top) top.push_back(token_json(id, logprob));
      token["top_logprobs"] = std::move(top);
      content.push_back(std::move(token));
    }
    return {{"content", std::move(content)}};
  }

  ChatAnswerOptions options_;
  std::vector<Choice> choices_;
  Usage usage_;
};

}  // namespace

std::unique_ptr<ApiAdapter> make_chat_adapter(ChatAnswerOptions options) {
  return std::make_unique<ChatAdapter>(std::move(options));
}

}  // namespace heddle::server
