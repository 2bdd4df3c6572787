// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "server/answer_fields.h"
#include "server/json_text.h"
#include "server/native_generate.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

class GenerateAdapter final : public ApiAdapter {
 public:
  explicit GenerateAdapter(GenerateAnswerOptions options)
      : options_(std::move(options)), choices_(options_.ids.size()) {}

  void event(size_t index, const RequestEvent& event, std::string& out) override {
    Choice& choice = choices_[index];
    choice.text += event.text;
    choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
    if (options_.logprobs[index]) {
      for (const TokenLogprob& entry : event.logprobs) add_logprob(choice, entry);
    }
    choice.last = {.finish = event.finish,
                   .prompt_tokens = event.prompt_tokens,
                   .completion_tokens = event.completion_tokens,
                   .cached_tokens = event.cached_tokens,
                   .cache = event.cache,
                   .queue_seconds = event.queue_seconds,
                   .elapsed_seconds = event.elapsed_seconds};
    if (!options_.stream) return;
    Json chunk = choice_json(index);
    if (options_.as_list) chunk["index"] = index;
    out += sse_event(chunk);
  }

  void end(std::string& out) override {
    if (options_.stream) {
      out += kSseDone;
    } else if (options_.as_list) {
      Json list = Json::array();
      for (size_t i = 0; i < choices_.size(); ++i) list.push_back(choice_json(i));
      out += dump_json(list);
    } else {
      out += dump_json(choice_json(0));
    }
  }

 private:
  struct Totals {
    std::optional<Finish> finish;
    int64_t prompt_tokens = 0;
    int64_t completion_tokens = 0;
    int64_t cached_tokens = 0;
    CacheReport cache;
    double queue_seconds = 0;
    double elapsed_seconds = 0;
  };

  struct Choice {
    std::string text;
    std::vector<TokenId> tokens;
    Json logprobs = Json::array();
    Json top_logprobs = Json::array();
    Totals last;
  };

  // [logprob, id, text or null]
  [[nodiscard]] Json logprob_json(TokenId token, float logprob) const {
    return Json::array(
        {printable_logprob(logprob), token,
         options_.text_in_logprobs ? Json(options_.codec->token_bytes(token)) : Json(nullptr)});
  }

  void add_logprob(Choice& choice, const TokenLogprob& entry) const {
    choice.logprobs.push_back(logprob_json(entry.token, entry.logprob));
    Json top = Json::array();
    for (const auto& [id, logprob] : entry.top) top.push_back(logprob_json(id, logprob));
    choice.top_logprobs.push_back(std::move(top));
  }

  [[nodiscard]] static Json finish_json(const Totals& totals) {
    if (!totals.finish) return nullptr;
    Json finish = {{"type", finish_name(totals.finish->reason)}};
    switch (totals.finish->reason) {
      case FinishReason::kStop:
        finish["matched"] = matched_stop(*totals.finish);
        break;
      case FinishReason::kLength:
        finish["length"] = totals.completion_tokens;
        break;
      default:
        finish["message"] = totals.finish->error.ok() ? "Aborted" : totals.finish->error.message();
        break;
    }
    return finish;
  }

  [[nodiscard]] Json choice_json(size_t index) const {
    const Choice& choice = choices_[index];
    Json meta = {{"id", options_.ids[index]},
                 {"finish_reason", finish_json(choice.last)},
                 {"prompt_tokens", choice.last.prompt_tokens},
                 {"completion_tokens", choice.last.completion_tokens},
                 {"cached_tokens", choice.last.cached_tokens},
                 {"cached_tokens_details", cache_details(choice.last.cache)},
                 {"weight_version", "default"},
                 {"e2e_latency", choice.last.elapsed_seconds},
                 {"queue_time", choice.last.queue_seconds}};
    if (options_.logprobs[index]) {
      meta["input_token_logprobs"] = Json::array();
      meta["output_token_logprobs"] = choice.logprobs;
      meta["input_top_logprobs"] = Json::array();
      meta["output_top_logprobs"] = choice.top_logprobs;
    }
    Json result = {{"text", choice.text}, {"output_ids", choice.tokens}, {"meta_info", meta}};
    if (!options_.prompt_token_ids.empty()) {
      result["prompt_token_ids"] = options_.prompt_token_ids[index];
    }
    return result;
  }

  GenerateAnswerOptions options_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<ApiAdapter> make_generate_adapter(GenerateAnswerOptions options) {
  return std::make_unique<GenerateAdapter>(std::move(options));
}

}  // namespace heddle::server
