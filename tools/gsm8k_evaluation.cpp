// SPDX-License-Identifier: Apache-2.0
#include "gsm8k_evaluation.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gsm8k.h"

namespace heddle::tools {

namespace {

using Json = nlohmann::ordered_json;

struct Gsm8kSet {
  std::vector<Gsm8kExample> shots;
  std::vector<Gsm8kExample> questions;
};

Result<Gsm8kSet> read_set(const std::filesystem::path& path, const Gsm8kOptions& options) {
  if (options.shots < 0 || options.num_questions < 1) {
    return invalid_argument(
        fmt::format("--shots {} must be at least 0 and --num-questions {} at least 1",
                    options.shots, options.num_questions));
  }
  const bool own_shots = options.shots_file.empty();
  Gsm8kSet set;
  HEDDLE_ASSIGN_OR_RETURN(set.questions, read_gsm8k(path));
  if (own_shots) {
    set.shots = set.questions;
  } else {
    HEDDLE_ASSIGN_OR_RETURN(set.shots, read_gsm8k(options.shots_file));
  }
  const int64_t needed = options.shots + (own_shots ? 1 : 0);
  if (std::ssize(set.shots) < needed) {
    return invalid_argument(fmt::format("{} has {} questions: --shots {} needs at least {}",
                                        own_shots ? path.string() : options.shots_file,
                                        set.shots.size(), options.shots, needed));
  }
  set.shots.resize(static_cast<size_t>(options.shots));
  if (own_shots) set.questions.erase(set.questions.begin(), set.questions.begin() + options.shots);
  set.questions.resize(std::min(set.questions.size(), static_cast<size_t>(options.num_questions)));
  return set;
}

Result<std::vector<TokenId>> prompt_tokens(const std::string& prompt, bool chat,
                                           const server::TextCodec& codec) {
  if (!chat) return codec.encode(prompt, /*add_special_tokens=*/true);
  Json messages = Json::array();
  messages.push_back({{"role", "user"}, {"content", prompt}});
  HEDDLE_ASSIGN_OR_RETURN(const std::string text,
                          codec.render_chat(messages, nullptr, true, Json::object()));
  return codec.encode(text, /*add_special_tokens=*/false);
}

// How many tokens all prompts begin with: where they fork, a cache keeps what it needs to go on.
int64_t shared_tokens(const std::vector<Request>& requests) {
  const std::vector<TokenId>& first = requests[0].prompt;
  auto end = first.end();
  for (const Request& request : requests) {
    end = std::mismatch(first.begin(), end, request.prompt.begin(), request.prompt.end()).first;
  }
  return end - first.begin();
}

Result<std::vector<Request>> make_requests(const Gsm8kSet& set, const Gsm8kOptions& gsm8k,
                                           const EvaluationOptions& options, const ModelInfo& model,
                                           const server::TextCodec& codec) {
  std::vector<Request> requests;
  for (const Gsm8kExample& example : set.questions) {
    HEDDLE_ASSIGN_OR_RETURN(
        auto prompt, prompt_tokens(gsm8k_prompt(set.shots, example.question), gsm8k.chat, codec));
    HEDDLE_ASSIGN_OR_RETURN(Request request, evaluation_request(options, model, std::move(prompt)));
    if (!gsm8k.chat) request.stop.texts.emplace_back(kGsm8kStop);
    requests.push_back(std::move(request));
  }
  const int64_t shared = shared_tokens(requests);
  for (Request& request : requests) {
    if (shared > 0 && shared < std::ssize(request.prompt)) request.role_boundaries = {shared};
  }
  return requests;
}

}  // namespace

double Gsm8kReport::share_of_total(int64_t count) const {
  return static_cast<double>(count) / static_cast<double>(total);
}

Result<Gsm8kReport> evaluate_gsm8k(Engine& engine, const server::TextCodec& codec,
                                   const std::filesystem::path& set_path, const Gsm8kOptions& gsm8k,
                                   const EvaluationOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const Gsm8kSet set, read_set(set_path, gsm8k));
  HEDDLE_ASSIGN_OR_RETURN(auto requests,
                          make_requests(set, gsm8k, options, engine.model_info(), codec));
  const auto start = std::chrono::steady_clock::now();
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Answer> answers,
                          ask(engine, std::move(requests), options.ask));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;

  Gsm8kReport report{
      .shots = gsm8k.shots, .total = std::ssize(set.questions), .seconds = elapsed.count()};
  for (size_t i = 0; i < answers.size(); ++i) {
    const Answer& answer = answers[i];
    report.prompt_tokens += answer.prompt_tokens;
    report.cached_tokens += answer.cached_tokens;
    report.output_tokens += std::ssize(answer.tokens);
    report.request_seconds += answer.elapsed_seconds / static_cast<double>(answers.size());
    if (answer.failed()) {
      ++report.failed;
      continue;
    }
    const auto number = final_number(answer.text);
    if (!number) ++report.invalid;
    if (number == final_number(set.questions[i].answer)) ++report.correct;
  }
  return report;
}

}  // namespace heddle::tools
