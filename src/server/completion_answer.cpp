// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/answer_fields.h"
#include "server/completions.h"
#include "server/json_text.h"
#include "server/usage.h"
#include "tokenizer/utf8.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// Characters of UTF-8 text: every byte but the continuation ones.
int64_t num_characters(std::string_view text) {
  int64_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xc0u) != 0x80u;
  return count;
}

// A token as text. Tokens that are part of a character would all read as U+FFFD: they are shown as
// OpenAI does, by their bytes: bytes:\xe2\x82.
std::string token_text(const std::string& bytes) {
  if (tokenizer::is_valid_utf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char byte : bytes) {
    text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

class CompletionAdapter final : public ApiAdapter {
 public:
  explicit CompletionAdapter(CompletionAnswerOptions options)
      : options_(std::move(options)),
        choices_(options_.num_choices),
        usage_(options_.num_choices, options_.choices_per_prompt, options_.cache_details) {
    if (options_.echoes.empty()) return;
    for (size_t i = 0; i < choices_.size(); ++i) {
      choices_[i].text = options_.echoes[i / options_.choices_per_prompt];
      choices_[i].logprob_offset = num_characters(choices_[i].text);
    }
  }

  void event(size_t index, const RequestEvent& event, std::string& out) override {
    usage_.update(index, event);
    Choice& choice = choices_[index];
    choice.text += event.text;
    choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
    choice.logprobs.insert(choice.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
    if (event.finish) choice.finish = event.finish;
    if (!options_.streaming.stream) return;
    const bool something = !choice.text.empty() ||
                           (options_.logprobs && !choice.logprobs.empty()) ||
                           (options_.return_token_ids && !choice.tokens.empty()) || event.finish;
    if (!something) return;
    Json chunk = head();
    chunk["choices"] = Json::array();
    chunk["choices"].push_back(choice_json(index));
    if (options_.streaming.continuous_usage) {
      chunk["usage"] = usage_.to_json();
    } else if (options_.streaming.include_usage) {
      chunk["usage"] = nullptr;
    }
    out += sse_event(chunk);
    choice.text.clear();
    choice.tokens.clear();
    choice.logprobs.clear();
  }

  void end(std::string& out) override {
    if (!options_.streaming.stream) {
      Json body = head();
      body["choices"] = Json::array();
      for (size_t i = 0; i < choices_.size(); ++i) body["choices"].push_back(choice_json(i));
      body["usage"] = usage_.to_json();
      body["metadata"] = {{"weight_version", "default"}};
      out += dump_json(body);
      return;
    }
    if (options_.streaming.include_usage) {
      Json chunk = head();
      chunk["choices"] = Json::array();
      chunk["usage"] = usage_.to_json();
      out += sse_event(chunk);
    }
    out += kSseDone;
  }

 private:
  // What is not told yet; everything when not streaming.
  struct Choice {
    std::string text;
    std::vector<TokenId> tokens;
    std::vector<TokenLogprob> logprobs;
    std::optional<Finish> finish;
    int64_t logprob_offset = 0;  // characters before the next token with a logprob
    bool prompt_ids_shown = false;
  };

  [[nodiscard]] Json head() const {
    return {{"id", options_.id},
            {"object", "text_completion"},
            {"created", options_.created},
            {"model", options_.model}};
  }

  [[nodiscard]] Json choice_json(size_t index) {
    Choice& choice = choices_[index];
    Json entry = {{"index", index},
                  {"text", choice.text},
                  {"logprobs", options_.logprobs ? logprobs_json(choice) : Json(nullptr)},
                  {"finish_reason", nullptr},
                  {"matched_stop", nullptr}};
    if (choice.finish) {
      entry["finish_reason"] = finish_name(choice.finish->reason);
      entry["matched_stop"] = matched_stop(*choice.finish);
    }
    if (options_.return_token_ids) entry["token_ids"] = choice.tokens;
    if (!options_.prompt_token_ids.empty() && !choice.prompt_ids_shown) {
      choice.prompt_ids_shown = true;
      entry["prompt_token_ids"] = options_.prompt_token_ids[index / options_.choices_per_prompt];
    }
    return entry;
  }

  [[nodiscard]] Json logprobs_json(Choice& choice) const {
    Json tokens = Json::array();
    Json values = Json::array();
    Json top_lists = Json::array();
    Json offsets = Json::array();
    for (const TokenLogprob& entry : choice.logprobs) {
      const std::string bytes = options_.codec->token_bytes(entry.token);
      tokens.push_back(token_text(bytes));
      values.push_back(printable_logprob(entry.logprob));
      Json top = Json::object();
      for (const auto& [id, logprob] : entry.top) {
        // Of two tokens that read alike the likelier one, which comes first, is shown.
        top.emplace(token_text(options_.codec->token_bytes(id)), printable_logprob(logprob));
      }
      top_lists.push_back(std::move(top));
      offsets.push_back(choice.logprob_offset);
      choice.logprob_offset += num_characters(bytes);
    }
    return {{"tokens", std::move(tokens)},
            {"token_logprobs", std::move(values)},
            {"top_logprobs", std::move(top_lists)},
            {"text_offset", std::move(offsets)}};
  }

  CompletionAnswerOptions options_;
  std::vector<Choice> choices_;
  Usage usage_;
};

}  // namespace

std::unique_ptr<ApiAdapter> make_completion_adapter(CompletionAnswerOptions options) {
  return std::make_unique<CompletionAdapter>(std::move(options));
}

}  // namespace heddle::server
