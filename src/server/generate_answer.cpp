// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "server/answer_log.h"
#include "server/json_text.h"
#include "server/native_generate.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

class GenerateAdapter final : public ApiAdapter {
 public:
  explicit GenerateAdapter(GenerateAnswerOptions options)
      : options_(std::move(options)),
        logs_(options_.choices.size()),
        streamed_(options_.stream ? options_.choices.size() : 0) {}

  void event(size_t index, const RequestEvent& event, std::string& out) override {
    logs_[index].add(event);
    if (!options_.stream) return;
    streamed_[index].append(logs_[index], *this);
    logs_[index].clear();
    JsonPieces chunk;
    chunk.around("data: ");
    add_choice(index, chunk);
    chunk.around("\n\n").write_all(out);
  }

  void end(std::string& out) override { out += kSseDone; }

  JsonPieces body() override {
    JsonPieces body;
    if (options_.as_list) body.begin_list();
    for (size_t i = 0; i < logs_.size(); ++i) add_choice(i, body);
    if (options_.as_list) body.end_list();
    return body;
  }

 private:
  // Each event of a stream shows everything so far. Here that is as JSON text, without brackets and
  // quotes, to which an event only appends.
  struct Streamed {
    std::string text;
    std::string ids;
    std::string logprobs;
    std::string tops;

    void append(const ChoiceLog& log, const GenerateAdapter& adapter) {
      append_json_characters(log.text, text);
      for (const TokenId id : log.tokens) {
        separate(ids);
        ids += std::to_string(id);
      }
      for (size_t i = 0; i < log.logprobs.size(); ++i) {
        separate(logprobs);
        adapter.append_entry(log.logprobs.token(i), log.logprobs.logprob(i), logprobs);
        separate(tops);
        adapter.append_top(log.logprobs, i, tops);
      }
    }

    static void separate(std::string& list) {
      if (!list.empty()) list += ',';
    }
  };

  void add_choice(size_t index, JsonPieces& answer) const {
    const GenerateChoice& choice = options_.choices[index];
    const ChoiceLog& log = logs_[index];
    const ChoiceCounts& counts = log.counts;
    answer.begin_object().key("text");
    options_.stream ? answer.written('"', streamed_[index].text, '"') : answer.text(log.text);
    answer.key("output_ids");
    options_.stream ? answer.written('[', streamed_[index].ids, ']') : answer.integers(log.tokens);
    answer.key("meta_info").begin_object().key("id").value(choice.id);
    answer.key("finish_reason").value(finish_json(log));
    answer.key("prompt_tokens").value(counts.prompt_tokens);
    answer.key("completion_tokens").value(counts.completion_tokens);
    answer.key("cached_tokens").value(counts.cached_tokens);
    answer.key("cached_tokens_details").value(cache_details(counts.cache));
    answer.key("weight_version").value("default");
    answer.key("e2e_latency").value(counts.elapsed_seconds);
    answer.key("queue_time").value(counts.queue_seconds);
    if (choice.logprobs) add_logprobs(index, answer);
    answer.end_object();
    if (!options_.prompt_token_ids.empty()) {
      answer.key("prompt_token_ids").integers(options_.prompt_token_ids[choice.prompt_index]);
    }
    if (options_.stream && options_.as_list) answer.key("index").value(index);
    answer.end_object();
  }

  void add_logprobs(size_t index, JsonPieces& answer) const {
    const LogprobLog& log = logs_[index].logprobs;
    answer.key("input_token_logprobs").begin_list().end_list().key("output_token_logprobs");
    if (options_.stream) {
      answer.written('[', streamed_[index].logprobs, ']');
    } else {
      answer.list(log.size(), [this, &log](size_t i, std::string& out) {
        append_entry(log.token(i), log.logprob(i), out);
      });
    }
    answer.key("input_top_logprobs").begin_list().end_list().key("output_top_logprobs");
    if (options_.stream) {
      answer.written('[', streamed_[index].tops, ']');
    } else {
      answer.list(log.size(),
                  [this, &log](size_t i, std::string& out) { append_top(log, i, out); });
    }
  }

  // [logprob, id, text or null]
  void append_entry(TokenId token, float logprob, std::string& out) const {
    out += '[';
    append_logprob(logprob, out);
    out += ',';
    out += std::to_string(token);
    out += ',';
    if (options_.text_in_logprobs) {
      append_json_string(options_.codec->token_bytes(token), out);
    } else {
      out += "null";
    }
    out += ']';
  }

  void append_top(const LogprobLog& log, size_t index, std::string& out) const {
    out += '[';
    const size_t begin = out.size();
    for (const auto& [token, logprob] : log.top(index)) {
      if (out.size() > begin) out += ',';
      append_entry(token, logprob, out);
    }
    out += ']';
  }

  [[nodiscard]] static Json finish_json(const ChoiceLog& log) {
    if (!log.finish) return nullptr;
    Json finish = {{"type", finish_name(log.finish->reason)}};
    switch (log.finish->reason) {
      case FinishReason::kStop:
        finish["matched"] = matched_stop(*log.finish);
        break;
      case FinishReason::kLength:
        finish["length"] = log.counts.completion_tokens;
        break;
      default:
        finish["message"] = log.finish->error.ok() ? "Aborted" : log.finish->error.message();
        break;
    }
    return finish;
  }

  GenerateAnswerOptions options_;
  std::vector<ChoiceLog> logs_;
  std::vector<Streamed> streamed_;  // per choice; empty when not streaming
};

}  // namespace

std::unique_ptr<ApiAdapter> make_generate_adapter(GenerateAnswerOptions options) {
  return std::make_unique<GenerateAdapter>(std::move(options));
}

}  // namespace heddle::server
