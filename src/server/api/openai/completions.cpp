// SPDX-License-Identifier: Apache-2.0
#include "server/api/openai/completions.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/call/answer_form.h"
#include "server/call/answer_log.h"
#include "server/call/body_fields.h"
#include "server/call/call_fields.h"
#include "server/call/infill.h"
#include "server/call/prompt_list.h"
#include "server/call/sampling_fields.h"
#include "server/http/body_sender.h"
#include "server/http/json_text.h"
#include "tokenizer/utf8.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// ---- The answer ----

// Counts the characters of UTF-8 text: all bytes except continuation bytes.
int64_t num_characters(std::string_view text) {
  return std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0u) != 0x80u; });
}

// A token as text. A token that is only part of a character would read as U+FFFD, so its bytes are
// shown as in OpenAI's API: "bytes:\xe2\x82".
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
      : options_(std::move(options)), logs_(options_.num_choices), shown_(options_.num_choices) {
    if (options_.echoes.empty()) return;
    for (size_t i = 0; i < logs_.size(); ++i) {
      logs_[i].text = options_.echoes[i / options_.choices_per_prompt];
      shown_[i].logprob_offset = num_characters(logs_[i].text);
    }
  }

  void set_weight_version(std::string name) override { options_.weight_version = std::move(name); }

  void event(size_t index, const RequestEvent& event, std::string& out) override {
    ChoiceLog& log = logs_[index];
    if (std::exchange(shown_[index].log, false)) log.clear();
    log.add(event);
    if (!options_.streaming.stream) return;
    const bool something = !log.text.empty() || (options_.logprobs && log.logprobs.size() > 0) ||
                           log.prompt_logprobs.size() > 0 ||
                           (options_.return_token_ids && !log.tokens.empty()) || event.finish;
    if (!something) return;
    JsonPieces chunk;
    chunk.around("data: ");
    begin_answer(chunk);
    chunk.key("choices").begin_list();
    add_choice(index, index, chunk);
    chunk.end_list();
    if (options_.streaming.continuous_usage) {
      chunk.key("usage").value(usage());
    } else if (options_.streaming.include_usage) {
      chunk.key("usage").value(nullptr);
    }
    chunk.end_object().around("\n\n");
    shown_[index].log = true;
    static_cast<void>(chunk.next(out, kBodyPieceBytes));
    rest_ = std::move(chunk);
  }

  JsonPieces rest() override { return std::exchange(rest_, {}); }

  void end(std::string& out) override {
    if (options_.streaming.include_usage) {
      JsonPieces chunk;
      chunk.around("data: ");
      begin_answer(chunk);
      chunk.key("choices").begin_list().end_list().key("usage").value(usage());
      chunk.end_object().around("\n\n").write_all(out);
    }
    out += kSseDone;
  }

  JsonPieces body() override {
    JsonPieces body;
    begin_answer(body);
    body.key("choices").begin_list();
    const std::vector<size_t> choices = shown_choices();
    for (size_t i = 0; i < choices.size(); ++i) add_choice(choices[i], i, body);
    body.end_list().key("usage").value(usage());
    body.key("metadata").value({{"weight_version", options_.weight_version}});
    return std::move(body.end_object());
  }

 private:
  struct Shown {
    int64_t logprob_offset = 0;  // characters before the next token of the output
    int64_t prompt_offset = 0;   // characters before the next token of the echoed prompt
    size_t prompt_bytes = 0;     // bytes before the next token of the echoed prompt
    bool prompt_ids = false;
    bool first_token = false;
    bool log = false;  // for streams: the event's log probabilities have been shown
  };

  // The tokens whose log probabilities are shown: those of the prompt, if it is echoed, then those
  // of the output. The prompt's first token has no log probability.
  struct ShownLogprobs {
    const ChoiceLog& log;
    std::optional<TokenId> first;

    [[nodiscard]] size_t num_prompt() const { return (first ? 1 : 0) + log.prompt_logprobs.size(); }

    [[nodiscard]] size_t size() const { return num_prompt() + log.logprobs.size(); }

    [[nodiscard]] bool is_first(size_t i) const { return first && i == 0; }

    // The list and the index in it of an entry other than the prompt's first token.
    [[nodiscard]] std::pair<const LogprobLog&, size_t> entry(size_t i) const {
      if (i >= num_prompt()) return {log.logprobs, i - num_prompt()};
      return {log.prompt_logprobs, i - (first ? 1 : 0)};
    }

    [[nodiscard]] TokenId token(size_t i) const {
      if (is_first(i)) return *first;
      const auto [list, index] = entry(i);
      return list.token(index);
    }
  };

  // Writes the beginning of an answer; leaves the JSON object open.
  void begin_answer(JsonPieces& answer) const {
    answer.begin_object().key("id").value(options_.id).key("object").value("text_completion");
    answer.key("created").value(options_.created).key("model").value(options_.model);
  }

  // Indices of the choices that an answer shows which is not streamed; those of a prompt are
  // adjacent.
  [[nodiscard]] std::vector<size_t> shown_choices() const {
    std::vector<size_t> choices(logs_.size());
    std::iota(choices.begin(), choices.end(), size_t{0});
    const size_t shown = options_.shown_per_prompt;
    if (shown == 0) return choices;
    std::vector<size_t> best;
    for (size_t begin = 0; begin < choices.size(); begin += options_.choices_per_prompt) {
      const std::span of_prompt(&choices[begin], options_.choices_per_prompt);
      std::ranges::stable_sort(of_prompt, std::ranges::greater(),
                               [this](size_t index) { return mean_logprob(index); });
      best.insert(best.end(), of_prompt.begin(),
                  of_prompt.begin() + static_cast<std::ptrdiff_t>(shown));
    }
    return best;
  }

  [[nodiscard]] double mean_logprob(size_t index) const {
    const LogprobLog& log = logs_[index].logprobs;
    double sum = 0;
    for (size_t i = 0; i < log.size(); ++i) sum += static_cast<double>(log.logprob(i));
    return log.size() == 0 ? 0 : sum / static_cast<double>(log.size());
  }

  // Adds a choice. `number` is its index in the answer.
  void add_choice(size_t index, size_t number, JsonPieces& answer) {
    const ChoiceLog& log = logs_[index];
    answer.begin_object().key("index").value(number).key("text").text(log.text).key("logprobs");
    options_.logprobs ? add_logprobs(index, answer) : answer.value(nullptr);
    answer.key("finish_reason");
    log.finish ? answer.value(finish_name(log.finish->reason)) : answer.value(nullptr);
    answer.key("matched_stop");
    log.finish ? answer.value(matched_stop(*log.finish)) : answer.value(nullptr);
    if (options_.return_token_ids) answer.key("token_ids").integers(log.tokens);
    if (!options_.prompt_token_ids.empty() && !std::exchange(shown_[index].prompt_ids, true)) {
      answer.key("prompt_token_ids")
          .integers(options_.prompt_token_ids[index / options_.choices_per_prompt]);
    }
    answer.end_object();
  }

  // Adds {"tokens": [..], "token_logprobs": [..], "top_logprobs": [{..}, ..], "text_offset": [..]}.
  JsonPieces& add_logprobs(size_t index, JsonPieces& answer) {
    Shown& shown = shown_[index];
    ShownLogprobs list{.log = logs_[index], .first = std::nullopt};
    if (!options_.first_tokens.empty() && !std::exchange(shown.first_token, true)) {
      list.first = options_.first_tokens[index / options_.choices_per_prompt];
    }
    answer.begin_object();
    answer.key("tokens").list(list.size(), [this, list](size_t i, std::string& out) {
      append_json_string(token_text(bytes_of(list.token(i))), out);
    });
    answer.key("token_logprobs").list(list.size(), [list](size_t i, std::string& out) {
      if (list.is_first(i)) {
        out += "null";
        return;
      }
      const auto [log, at] = list.entry(i);
      append_logprob(log.logprob(at), out);
    });
    answer.key("top_logprobs").list(list.size(), [this, list](size_t i, std::string& out) {
      if (list.is_first(i)) {
        out += "null";
        return;
      }
      const auto [log, at] = list.entry(i);
      append_top(log, at, out);
    });
    answer.key("text_offset").list(list.size(), [=, this, &shown](size_t i, std::string& out) {
      const std::string bytes = bytes_of(list.token(i));
      if (i < list.num_prompt()) {
        out += std::to_string(shown.prompt_offset);
        pass_prompt_token(list.token(i), bytes, echo_of(index), shown);
      } else {
        out += std::to_string(shown.logprob_offset);
        shown.logprob_offset += num_characters(bytes);
      }
    });
    return answer.end_object();
  }

  // Advances the offset in the echoed text past a token of the prompt. A token that the text does
  // not show, such as the one that begins every text, has no length.
  void pass_prompt_token(TokenId token, const std::string& bytes, std::string_view echo,
                         Shown& shown) const {
    const std::string_view rest = echo.substr(std::min(shown.prompt_bytes, echo.size()));
    if (!rest.starts_with(bytes) &&
        options_.codec->decode(std::span(&token, 1), /*skip_special_tokens=*/true).empty()) {
      return;
    }
    // A tokenizer may put a blank before every text, which the echoed text does not contain.
    const bool has_blank =
        shown.prompt_bytes == 0 && bytes.starts_with(' ') && !rest.starts_with(' ');
    const size_t num_bytes = bytes.size() - (has_blank ? 1 : 0);
    shown.prompt_bytes += num_bytes;
    shown.prompt_offset += num_characters(rest.substr(0, num_bytes));
  }

  [[nodiscard]] std::string_view echo_of(size_t index) const {
    return options_.echoes[index / options_.choices_per_prompt];
  }

  // Appends {"text": logprob, ..}. If two tokens have the same text, the likelier one is shown; it
  // comes first.
  void append_top(const LogprobLog& log, size_t index, std::string& out) const {
    std::vector<std::string> texts;
    out += '{';
    for (const auto& [token, logprob] : log.top(index)) {
      std::string text = token_text(bytes_of(token));
      if (std::ranges::find(texts, text) != texts.end()) continue;
      if (!texts.empty()) out += ',';
      append_json_string(text, out);
      out += ':';
      append_logprob(logprob, out);
      texts.push_back(std::move(text));
    }
    out += '}';
  }

  [[nodiscard]] std::string bytes_of(TokenId token) const {
    return options_.codec->token_bytes(token);
  }

  [[nodiscard]] nlohmann::ordered_json usage() const {
    return usage_json(logs_, options_.choices_per_prompt, options_.cache_details);
  }

  CompletionAnswerOptions options_;
  std::vector<ChoiceLog> logs_;
  std::vector<Shown> shown_;  // what each choice has shown so far
  JsonPieces rest_;           // remainder of the last message of a stream
};

// ---- The request ----

constexpr int64_t kDefaultMaxTokens = 16;  // default of OpenAI's API for max_tokens

// The text with which each prompt's answers begin: the prompt as sent, or decoded from its ids.
std::vector<std::string> echo_texts(const Json& prompt, const PromptList& list,
                                    const TextCodec& codec) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < list.prompts.size(); ++i) {
    const Json& item = list.batched ? prompt[i] : prompt;
    texts.push_back(item.is_string() ? item.get<std::string>()
                                     : codec.decode(list.prompts[i], /*skip_special_tokens=*/true));
  }
  return texts;
}

// Reads the prompts. With a suffix there must be a single text, so its size is only limited by the
// body.
std::optional<ApiError> read_completion_prompts(const Json& prompt, std::string_view suffix,
                                                const CallContext& context, PromptList& list) {
  if (suffix.empty()) return read_prompts(prompt, "prompt", context, true, true, list);
  if (!prompt.is_string()) return invalid_type("prompt", "a string where there is a `suffix`");
  return encode_infill(prompt.get_ref<const std::string&>(), suffix, context,
                       list.prompts.emplace_back());
}

}  // namespace

std::unique_ptr<ApiAdapter> make_completion_adapter(CompletionAnswerOptions options) {
  return std::make_unique<CompletionAdapter>(std::move(options));
}

PrepareResult prepare_completions(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  PreparedCall call;
  CompletionAnswerOptions answer{read_openai_answer(fields, context, call)};
  refuse_unserved_features(fields);
  refuse_fields(fields, {"max_thinking_tokens", "custom_params"});
  refuse_sessions(fields);
  const std::optional<AnswerForm> form = read_answer_form(fields);
  // With `echo` an answer without output tokens still shows something.
  const bool echo = fields.flag(Body::kCompletions["echo"]);
  const std::string suffix = fields.string_or_preset(Body::kCompletions["suffix"]);
  if (echo && !suffix.empty()) {
    fields.fail(invalid_value("echo",
                              "`echo` cannot be combined with `suffix`: what is drawn "
                              "stands between two texts."));
  }
  SamplingFields sampling = read_sampling_fields(fields, SamplingSpelling::kOpenAi, context.model,
                                                 /*may_draw_nothing=*/echo);
  const auto best_of = fields.integer(Body::kCompletions["best_of"]);
  if (best_of && *best_of < sampling.num_choices) {
    fields.fail(invalid_value("best_of", fmt::format("`best_of` is {}, less than `n` = {}.",
                                                     *best_of, sampling.num_choices)));
  }
  const bool chooses = best_of && *best_of > sampling.num_choices;
  if (chooses && answer.streaming.stream) {
    fields.fail(invalid_value("best_of",
                              "`best_of` above `n` cannot be streamed: which answers "
                              "are the best is known at their end."));
  }
  const auto logprobs = fields.integer(Body::kCompletions["logprobs"]);
  answer.logprobs = logprobs.has_value();
  const SchedulingFields scheduling = read_scheduling_fields(fields, context);
  const Json* prompt = fields.find(Body::kCompletions["prompt"]);
  if (prompt == nullptr) fields.fail(missing_parameter("prompt"));
  if (fields.error()) return *fields.error();

  PromptList list;
  if (auto error = read_completion_prompts(*prompt, suffix, context, list)) return *error;
  const size_t per_prompt = static_cast<size_t>(best_of.value_or(sampling.num_choices));
  if (chooses) answer.shown_per_prompt = static_cast<size_t>(sampling.num_choices);
  call.answers_field = chooses ? "best_of" : per_prompt > 1 ? "n" : "prompt";
  if (auto error =
          check_num_answers(context, list.prompts.size() * per_prompt, call.answers_field)) {
    return *error;
  }
  if (echo) answer.echoes = echo_texts(*prompt, list, context.codec);
  if (echo && logprobs) {
    for (const auto& ids : list.prompts) answer.first_tokens.push_back(ids.front());
  }
  if (answer.return_token_ids) answer.prompt_token_ids = list.prompts;
  if (auto error = StopPatterns().add(sampling)) return *error;
  std::shared_ptr<const Constraint> constraint;
  if (auto error = compile_form(context, form, ReasoningFirst::kNo, constraint)) {
    return *error;
  }
  context.note_unasked(fields);
  const auto fit = [&](const std::vector<TokenId>& ids, SamplingFields& fitted) {
    return fit_to_context(fitted, std::ssize(ids), kDefaultMaxTokens, context.model.context_length,
                          context.answers.max_tokens_overflow, "prompt");
  };
  for (const auto& ids : list.prompts) {
    SamplingFields fitted = sampling;
    if (fit(ids, fitted)) {  // the error is made for the longest prompt, so that the limit it names
                             // suits all prompts
      fitted = sampling;
      return *fit(longest_prompt(list), fitted);
    }
    Request request;
    request.prompt = ids;
    request.role_boundaries = context.codec.role_boundaries(request.prompt);
    scheduling.apply(request);
    request.sampling = fitted.sampling;
    request.stop = fitted.stop;
    request.constraint = constraint;
    request.skip_special_tokens = fitted.skip_special_tokens;
    request.return_logprobs = answer.logprobs || chooses;
    request.top_logprobs = static_cast<int32_t>(logprobs.value_or(0));
    if (echo && logprobs) request.prompt_logprobs = {.from = 0, .top = request.top_logprobs};
    for (size_t i = 0; i < per_prompt; ++i) {
      request.choice_index = static_cast<int32_t>(i);
      call.requests.push_back(request);
    }
  }
  const TokenJsonBytes bytes{.token = answer.return_token_ids ? 13 : 5, .logprob = 35};
  if (auto error =
          answer.streaming.stream
              ? check_prompt_logprobs_size(call.requests, bytes, "echo")
              : check_answer_size(call.requests, bytes, false, sampling.max_tokens_name, "echo")) {
    return *error;
  }
  answer.num_choices = call.requests.size();
  answer.choices_per_prompt = per_prompt;
  call.stream_interval = sampling.stream_interval.value_or(context.answers.stream_interval);
  call.adapter = make_completion_adapter(std::move(answer));
  return call;
}

}  // namespace heddle::server
