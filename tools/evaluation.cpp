// SPDX-License-Identifier: Apache-2.0
#include "tools/evaluation.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/mutex.h"

namespace heddle::tools {
namespace {

// Collects the answers of several concurrent requests.
class Collector {
 public:
  explicit Collector(size_t count) : answers_(count) {}

  void add(size_t index, const RequestEvent& event) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    Answer& answer = answers_[index];
    answer.text += event.text;
    answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
    for (const TokenLogprob& logprob : event.logprobs) {
      answer.margins.push_back(
          logprob.top.size() >= 2 ? logprob.top[0].second - logprob.top[1].second : 0.0f);
    }
    if (!event.finish) return;
    answer.finish = *event.finish;
    answer.prompt_tokens = event.prompt_tokens;
    answer.output_tokens = event.completion_tokens;
    answer.cached_tokens = event.cached_tokens;
    answer.elapsed_seconds = event.elapsed_seconds;
    answer.drafts = event.drafts;
    ++num_done_;
    done_.notify_all();
  }

  // Waits until fewer than `limit` of the `submitted` requests are in flight. Returns the number of
  // finished requests.
  int64_t wait_below(int64_t submitted, int64_t limit) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    done_.wait(mutex_, [&]() HEDDLE_REQUIRES(mutex_) { return submitted - num_done_ < limit; });
    return num_done_;
  }

  // Returns the answers. Called when no request is in flight.
  std::vector<Answer> take() HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return std::move(answers_);
  }

 private:
  Mutex mutex_;
  CondVar done_;
  int64_t num_done_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::vector<Answer> answers_ HEDDLE_GUARDED_BY(mutex_);
};

constexpr float kNearTie = 1e-3f;

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

void compare_with_reference(const Answer& answer, std::vector<TokenId> tokens,
                            const std::vector<TokenId>& reference, EvaluationReport& report) {
  ++report.with_reference;
  const auto [got, want] = std::ranges::mismatch(tokens, reference);
  if (got == tokens.end() && want == reference.end()) {
    ++report.equal_to_reference;
    return;
  }
  const auto index = static_cast<size_t>(got - tokens.begin());
  const bool near_tie = index < answer.margins.size() && answer.margins[index] < kNearTie;
  ++(near_tie ? report.near_ties : report.different);
}

// Number of tokens with which all prompts begin.
int64_t shared_tokens(const std::vector<Request>& requests) {
  if (requests.empty()) return 0;
  const std::vector<TokenId>& first = requests[0].prompt;
  auto end = first.end();
  for (const Request& request : requests) {
    end = std::mismatch(first.begin(), end, request.prompt.begin(), request.prompt.end()).first;
  }
  return end - first.begin();
}

Result<Question> read_question(const nlohmann::ordered_json& line) {
  if (!line.is_object() || !line.contains("messages")) return data_loss("has no \"messages\"");
  Question question{.messages = line["messages"].dump()};
  if (line.contains("answer") && line["answer"].is_string()) {
    question.answer = line["answer"].get<std::string>();
  }
  if (line.contains("reference_token_ids") && line["reference_token_ids"].is_array()) {
    std::vector<TokenId> ids;
    for (const auto& id : line["reference_token_ids"]) {
      if (!id.is_number_integer())
        return data_loss("reference_token_ids holds something that is no id");
      ids.push_back(id.get<TokenId>());
    }
    question.reference = std::move(ids);
  }
  return question;
}

}  // namespace

Result<std::vector<Answer>> ask(Engine& engine, std::vector<Request> requests,
                                const AskOptions& options) {
  Collector collector(requests.size());
  const auto total = static_cast<int64_t>(requests.size());
  const auto report = [&](int64_t done) {
    if (options.progress) options.progress(done, total);
  };
  Status refused;
  int64_t submitted = 0;
  for (Request& request : requests) {
    report(collector.wait_below(submitted, options.parallel));
    const auto index = static_cast<size_t>(submitted);
    request.id = fmt::format("ask-{}", index);
    refused = engine.submit(std::move(request), [&collector, index](const RequestEvent& event) {
      collector.add(index, event);
    });
    if (!refused.ok()) break;
    ++submitted;
  }
  for (int64_t in_flight = std::min(submitted, options.parallel); in_flight > 0; --in_flight) {
    report(collector.wait_below(submitted, in_flight));
  }
  HEDDLE_RETURN_IF_ERROR(refused);
  return collector.take();
}

Result<Request> evaluation_request(const EvaluationOptions& options, const ModelInfo& model,
                                   std::vector<TokenId> prompt) {
  ModelInfo plain = model;
  plain.default_sampling = {};
  SamplingSettings sampling = options.sampling;
  const int64_t limit = sampling.max_tokens.value_or(kDefaultAnswerTokens);
  sampling.max_tokens.reset();  // unset, so that the rest of the context is the limit
  if (!sampling.temperature) sampling.temperature = 0.0f;
  return make_request(sampling, plain, std::move(prompt), limit);
}

bool answers(const std::string& output, const std::string& answer) {
  const size_t mark = output.rfind("####");
  return trimmed(mark == std::string::npos ? output : output.substr(mark + 4)) == trimmed(answer);
}

Result<std::vector<Question>> read_questions(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return not_found(fmt::format("{}: cannot be read", path.string()));
  std::vector<Question> questions;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (trimmed(line).empty()) continue;
    const auto where = fmt::format("{}:{}", path.string(), number);
    const auto json = nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded())
      return data_loss(where + ": not JSON; a line is {\"messages\": [...], \"answer\": ...}");
    Result<Question> question = read_question(json);
    if (!question.ok()) return question.status().with_context(where);
    questions.push_back(std::move(*question));
  }
  if (questions.empty()) return data_loss(fmt::format("{}: has no questions", path.string()));
  return questions;
}

Result<std::vector<TokenId>> prompt_of(const Question& question, const server::TextCodec& codec) {
  if (question.messages.empty()) return codec.encode(question.text, /*add_special_tokens=*/true);
  const auto messages = nlohmann::ordered_json::parse(question.messages);
  HEDDLE_ASSIGN_OR_RETURN(
      const std::string text,
      codec.render_chat(messages, nullptr, true, nlohmann::ordered_json::object()));
  return codec.encode(text, /*add_special_tokens=*/false);
}

AskQuestions ask_engine(Engine& engine, const server::TextCodec& codec) {
  return [&engine, &codec](const std::vector<Question>& questions,
                           const EvaluationOptions& options) -> Result<std::vector<Answer>> {
    std::vector<Request> requests;
    for (const Question& question : questions) {
      HEDDLE_ASSIGN_OR_RETURN(auto prompt, prompt_of(question, codec));
      HEDDLE_ASSIGN_OR_RETURN(Request request,
                              evaluation_request(options, engine.model_info(), std::move(prompt)));
      if (!question.stop.empty()) request.stop.texts.push_back(question.stop);
      // The two best logits show whether a difference from a recorded output is a near tie.
      request.return_logprobs = question.reference.has_value();
      request.top_logprobs = question.reference ? 2 : 0;
      requests.push_back(std::move(request));
    }
    // Tells the cache where all prompts fork, so that it stores a state there. Not with recorded
    // outputs, which were computed without one.
    const bool is_recorded = std::ranges::any_of(
        questions, [](const Question& question) { return question.reference.has_value(); });
    const int64_t shared = is_recorded ? 0 : shared_tokens(requests);
    for (Request& request : requests) {
      if (shared > 0 && shared < std::ssize(request.prompt)) request.role_boundaries = {shared};
    }
    return ask(engine, std::move(requests), options.ask);
  };
}

Result<EvaluationReport> evaluate(const AskQuestions& ask, const std::vector<Question>& questions,
                                  const std::vector<TokenId>& end_tokens,
                                  const EvaluationOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Answer> answers_given, ask(questions, options));

  EvaluationReport report{.total = std::ssize(questions)};
  for (size_t i = 0; i < questions.size(); ++i) {
    const Answer& answer = answers_given[i];
    report.output_tokens += answer.output_tokens;
    if (answer.failed()) ++report.failed;
    if (questions[i].answer) {
      ++report.with_answer;
      if (answers(answer.text, *questions[i].answer)) ++report.correct;
    }
    if (questions[i].reference) {
      std::vector<TokenId> tokens = answer.tokens;
      if (!tokens.empty() && std::ranges::find(end_tokens, tokens.back()) != end_tokens.end()) {
        tokens.pop_back();
      }
      compare_with_reference(answer, std::move(tokens), *questions[i].reference, report);
    }
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace heddle::tools
