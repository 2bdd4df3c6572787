// SPDX-License-Identifier: Apache-2.0
#include "server/api/native/generate_answer.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/call/answer_log.h"
#include "server/http/body_sender.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

class GenerateAdapter final : public ApiAdapter {
 public:
  explicit GenerateAdapter(GenerateAnswerOptions options)
      : options_(std::move(options)),
        logs_(options_.choices.size()),
        streamed_(options_.stream ? options_.choices.size() : 0) {}

  void set_weight_version(std::string name) override { options_.weight_version = std::move(name); }

  void event(size_t index, const RequestEvent& event, std::string& out) override {
    ChoiceLog& log = logs_[index];
    if (options_.stream) log.clear();  // the previous event has been written
    log.add(event);
    if (options_.turn) options_.turn->add(event);
    if (!options_.stream) return;
    Streamed& streamed = streamed_[index];
    if (options_.stream_increments) streamed = {.began = streamed.began};
    streamed.append(log, index, *this);
    JsonPieces chunk;
    chunk.around("data: ");
    add_choice(index, chunk);
    chunk.around("\n\n");
    streamed.began = true;
    static_cast<void>(chunk.next(out, kBodyPieceBytes));
    rest_ = std::move(chunk);
  }

  JsonPieces rest() override { return std::exchange(rest_, {}); }

  void end(std::string& out) override { out += kSseDone; }

  JsonPieces body() override {
    JsonPieces body;
    if (options_.as_predictions) body.begin_object().key("predictions");
    if (options_.as_list) body.begin_list();
    for (size_t i = 0; i < logs_.size(); ++i) add_choice(i, body);
    if (options_.as_list) body.end_list();
    if (options_.as_predictions) body.end_object();
    return body;
  }

 private:
  // The text that a choice has streamed so far, as JSON text without brackets and quotes, to which
  // each event appends. The events show all of it, or only the new part. The log probabilities of a
  // prompt, which may be many megabytes, are added while the first event is written.
  struct Streamed {
    bool began = false;  // an event has been streamed
    std::string text = {};
    std::string ids = {};
    std::string logprobs = {};
    std::string tops = {};
    std::string listed = {};
    std::string prompt_logprobs = {};
    std::string prompt_tops = {};
    std::string prompt_listed = {};

    void append(const ChoiceLog& log, size_t index, const GenerateAdapter& adapter) {
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
        if (!adapter.options_.choices[index].logprob_tokens) continue;
        separate(listed);
        adapter.append_listed(index, log.logprobs, i, listed);
      }
    }

    static void separate(std::string& list) {
      if (!list.empty()) list += ',';
    }
  };

  void add_choice(size_t index, JsonPieces& answer) {
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
    const DraftReport& drafts = counts.drafts;
    answer.key("spec_verify_ct").value(drafts.verify_steps);
    answer.key("spec_accept_token_num").value(drafts.accepted_tokens);
    const int64_t num_drafts = drafts.accepted_tokens + drafts.rejected_tokens;
    const auto accepted_of = [&drafts](int64_t whole) {
      return whole > 0 ? static_cast<double>(drafts.accepted_tokens) / static_cast<double>(whole)
                       : 0;
    };
    answer.key("spec_draft_token_num").value(num_drafts);
    answer.key("spec_accept_length").value(1 + accepted_of(drafts.verify_steps));
    answer.key("spec_accept_rate").value(accepted_of(num_drafts));
    answer.key("weight_version").value(options_.weight_version);
    answer.key("total_retractions").value(counts.num_retractions);
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

  // Two lists with one entry per token, for the prompt and for the output.
  struct LogprobLists {
    std::string_view name;  // suffix of the field names, after input_ and output_
    std::string Streamed::* prompts;
    std::string Streamed::* outputs;
    std::string first;  // entry for the prompt's first token, which has no log probability
    std::function<void(const LogprobLog& log, size_t index, std::string& out)> append;
  };

  void add_logprobs(size_t index, JsonPieces& answer) {
    const GenerateChoice& choice = options_.choices[index];
    std::string first;
    if (choice.first_token) append_entry(*choice.first_token, std::nullopt, first);
    add_lists(
        index,
        {.name = "token_logprobs",
         .prompts = &Streamed::prompt_logprobs,
         .outputs = &Streamed::logprobs,
         .first = std::move(first),
         .append = [this](const LogprobLog& log, size_t i,
                          std::string& out) { append_entry(log.token(i), log.logprob(i), out); }},
        answer);
    add_lists(index,
              {.name = "top_logprobs",
               .prompts = &Streamed::prompt_tops,
               .outputs = &Streamed::tops,
               .first = "null",
               .append = [this](const LogprobLog& log, size_t i,
                                std::string& out) { append_top(log, i, out); }},
              answer);
    if (!choice.logprob_tokens) return;
    add_lists(index,
              {.name = "token_ids_logprobs",
               .prompts = &Streamed::prompt_listed,
               .outputs = &Streamed::listed,
               .first = "null",
               .append = [this, index](const LogprobLog& log, size_t i,
                                       std::string& out) { append_listed(index, log, i, out); }},
              answer);
  }

  void add_lists(size_t index, const LogprobLists& lists, JsonPieces& answer) {
    const ChoiceLog& log = logs_[index];
    Streamed* const streamed = options_.stream ? &streamed_[index] : nullptr;
    answer.key(fmt::format("input_{}", lists.name));
    if (streamed != nullptr && streamed->began) {
      answer.written('[', streamed->*lists.prompts, ']');
    } else {
      // In a cumulative stream the next event needs the text again.
      const bool keeps = streamed != nullptr && !options_.stream_increments;
      const size_t num_before = options_.choices[index].first_token ? 1 : 0;
      const auto write = [num_before, &log, append = lists.append, first = lists.first](
                             size_t i, std::string& out) {
        if (i < num_before) {
          out += first;
        } else {
          append(log.prompt_logprobs, i - num_before, out);
        }
      };
      answer.list(num_before + log.prompt_logprobs.size(),
                  keep(keeps ? &(streamed->*lists.prompts) : nullptr, write));
    }
    answer.key(fmt::format("output_{}", lists.name));
    if (streamed != nullptr) {
      answer.written('[', streamed->*lists.outputs, ']');
    } else {
      answer.list(log.logprobs.size(), [&log, append = lists.append](size_t i, std::string& out) {
        append(log.logprobs, i, out);
      });
    }
  }

  // A function that calls `write_item` and appends the same text to the list `kept`.
  static JsonPieces::WriteItem keep(std::string* kept, JsonPieces::WriteItem write_item) {
    if (kept == nullptr) return write_item;
    return [kept, write_item = std::move(write_item)](size_t i, std::string& out) {
      const size_t begin = out.size();
      write_item(i, out);
      Streamed::separate(*kept);
      kept->append(out, begin);
    };
  }

  // Appends [logprob or null, id, text or null].
  void append_entry(TokenId token, std::optional<float> logprob, std::string& out) const {
    out += '[';
    if (logprob) {
      append_logprob(*logprob, out);
    } else {
      out += "null";
    }
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

  // Appends the log probabilities of the tokens that the request lists.
  void append_listed(size_t choice, const LogprobLog& log, size_t index, std::string& out) const {
    const std::vector<TokenId>& tokens = *options_.choices[choice].logprob_tokens;
    const std::span<const float> logprobs = log.listed(index);
    out += '[';
    const size_t begin = out.size();
    for (size_t i = 0; i < logprobs.size(); ++i) {
      if (out.size() > begin) out += ',';
      append_entry(tokens[i], logprobs[i], out);
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
      default: {
        const Status& error = log.finish->error;
        finish["message"] = error.ok() ? "Aborted" : error.message();
        finish["status_code"] = nullptr;
        finish["err_type"] = nullptr;
        if (error.ok()) break;
        const int status = error_from_status(error, "").status;
        finish["status_code"] = status;
        finish["err_type"] = flat_error_type(status);
        break;
      }
    }
    return finish;
  }

  GenerateAnswerOptions options_;
  std::vector<ChoiceLog> logs_;
  std::vector<Streamed> streamed_;  // what each choice has streamed; empty when not streaming
  JsonPieces rest_;                 // remainder of the last message of a stream
};

}  // namespace

std::unique_ptr<ApiAdapter> make_generate_adapter(GenerateAnswerOptions options) {
  return std::make_unique<GenerateAdapter>(std::move(options));
}

}  // namespace heddle::server
