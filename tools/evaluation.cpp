// SPDX-License-Identifier: Apache-2.0
#include "evaluation.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tokenizer/tokenizer.h"

namespace heddle::tools {

namespace {

constexpr float kNearTie = 1e-3f;

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

struct Answer {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<float> margins;  // between the two best logits, per token
  std::optional<Finish> finish;
};

// Waits for the answers of several requests at once.
class Collector {
 public:
  explicit Collector(size_t count) : answers_(count) {}

  void add(size_t index, const RequestEvent& event) {
    const std::scoped_lock lock(mutex_);
    Answer& answer = answers_[index];
    answer.text += event.text;
    answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
    for (const TokenLogprob& logprob : event.logprobs) {
      answer.margins.push_back(
          logprob.top.size() >= 2 ? logprob.top[0].second - logprob.top[1].second : 0.0f);
    }
    if (event.finish) {
      answer.finish = event.finish;
      ++num_done_;
      done_.notify_all();
    }
  }

  // Until fewer than `limit` of the `submitted` requests are in flight. Returns how many are done.
  int64_t wait_below(int64_t submitted, int64_t limit) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return submitted - num_done_ < limit; });
    return num_done_;
  }

  const std::vector<Answer>& answers() const { return answers_; }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  int64_t num_done_ = 0;
  std::vector<Answer> answers_;
};

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

Result<Question> read_question(const nlohmann::ordered_json& line, const Engine& engine,
                               const chat::ChatTemplate& chat_template) {
  if (!line.is_object() || !line.contains("messages")) return data_loss("has no \"messages\"");
  HEDDLE_ASSIGN_OR_RETURN(const std::string text,
                          chat_template.render(line["messages"], nullptr, true, nullptr));
  Question question;
  HEDDLE_ASSIGN_OR_RETURN(question.prompt,
                          engine.tokenizer()->encode(text, {.add_special_tokens = false}));
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

bool answers(const std::string& output, const std::string& answer) {
  const size_t mark = output.rfind("####");
  return trimmed(mark == std::string::npos ? output : output.substr(mark + 4)) == trimmed(answer);
}

Result<std::vector<Question>> read_questions(const std::filesystem::path& path,
                                             const Engine& engine,
                                             const chat::ChatTemplate& chat_template) {
  std::ifstream file(path);
  if (!file) return not_found(fmt::format("{}: cannot be read", path.string()));
  std::vector<Question> questions;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (trimmed(line).empty()) continue;
    const auto where = fmt::format("{}:{}", path.string(), number);
    const auto json = nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) return data_loss(where + ": not JSON");
    Result<Question> question = read_question(json, engine, chat_template);
    if (!question.ok()) return question.status().with_context(where);
    questions.push_back(std::move(*question));
  }
  if (questions.empty()) return data_loss(fmt::format("{}: has no questions", path.string()));
  return questions;
}

Result<EvaluationReport> evaluate(Engine& engine, const std::vector<Question>& questions,
                                  const EvaluationOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Collector collector(questions.size());
  const auto total = static_cast<int64_t>(questions.size());
  Status refused;
  int64_t submitted = 0;
  for (const Question& question : questions) {
    const int64_t done = collector.wait_below(submitted, options.parallel);
    if (options.progress) options.progress(done, total);
    const auto index = static_cast<size_t>(submitted);
    Request request{.id = fmt::format("eval-{}", index), .prompt = question.prompt};
    request.sampling.temperature = 0;
    request.stop.max_new_tokens =
        std::min(options.max_new_tokens,
                 engine.model_info().context_length - static_cast<int64_t>(question.prompt.size()));
    request.return_logprobs = true;
    request.top_logprobs = 2;
    refused = engine.submit(std::move(request), [&collector, index](const RequestEvent& event) {
      collector.add(index, event);
    });
    if (!refused.ok()) break;
    ++submitted;
  }
  collector.wait_below(submitted, 1);
  if (options.progress) options.progress(submitted, total);
  HEDDLE_RETURN_IF_ERROR(refused);

  EvaluationReport report{.total = total};
  const std::vector<TokenId>& eos = engine.model_info().eos_token_ids;
  for (size_t i = 0; i < questions.size(); ++i) {
    const Answer& answer = collector.answers()[i];
    report.output_tokens += static_cast<int64_t>(answer.tokens.size());
    if (answer.finish->reason == FinishReason::kError) ++report.failed;
    if (questions[i].answer) {
      ++report.with_answer;
      if (answers(answer.text, *questions[i].answer)) ++report.correct;
    }
    if (questions[i].reference) {
      std::vector<TokenId> tokens = answer.tokens;
      if (!tokens.empty() && std::ranges::find(eos, tokens.back()) != eos.end()) tokens.pop_back();
      compare_with_reference(answer, std::move(tokens), *questions[i].reference, report);
    }
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace heddle::tools
