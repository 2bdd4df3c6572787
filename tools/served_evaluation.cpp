// SPDX-License-Identifier: Apache-2.0
#include "served_evaluation.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "core/mutex.h"
#include "served_chat.h"
#include "server_call.h"

namespace heddle::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string body_of(const Question& question, const std::string& model,
                    const EvaluationOptions& options) {
  SamplingSettings sampling = options.sampling;
  if (!sampling.temperature) sampling.temperature = 0.0F;
  if (!sampling.max_tokens) sampling.max_tokens = kDefaultAnswerTokens;
  if (!question.stop.empty()) sampling.stop.push_back(question.stop);
  Json body = {{"model", model}};
  if (question.messages.empty()) {
    body["prompt"] = question.text;
  } else {
    body["messages"] = Json::parse(question.messages);
  }
  add_sampling(sampling, body);
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The text and the counts of a completion; false where it is none.
bool read_answer(const std::string& body, Answer& answer) {
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  const auto text_at = [&json](const char* where) -> const std::string* {
    const Json::json_pointer pointer(where);
    return json.contains(pointer) ? json[pointer].get_ptr<const std::string*>() : nullptr;
  };
  const std::string* text = text_at("/choices/0/message/content");
  if (text == nullptr) text = text_at("/choices/0/text");
  const bool is_empty =
      json.contains("/choices/0/message"_json_pointer) && text == nullptr;  // it only reasoned
  if (text == nullptr && !is_empty) return false;
  if (text != nullptr) answer.text = *text;
  const auto count_at = [&json](const char* where) {
    const Json::json_pointer pointer(where);
    return json.contains(pointer) && json[pointer].is_number_unsigned()
               ? json[pointer].get<int64_t>()
               : int64_t{0};
  };
  answer.prompt_tokens = count_at("/usage/prompt_tokens");
  answer.output_tokens = count_at("/usage/completion_tokens");
  answer.cached_tokens = count_at("/usage/prompt_tokens_details/cached_tokens");
  return true;
}

Status ask_one(const ServerAddress& address, const ServedSettings& served, const Question& question,
               const EvaluationOptions& options, Answer& answer) {
  const auto start = std::chrono::steady_clock::now();
  ServerCall call(address, served.api_key, "heddle-eval");
  const char* const path = question.messages.empty() ? "/v1/completions" : "/v1/chat/completions";
  HEDDLE_ASSIGN_OR_RETURN(
      const ServerReply reply,
      call.post(path, body_of(question, served.model, options), [](std::string_view) {}));
  answer.elapsed_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (reply.status != 200) return unavailable(refusal_text(address, reply));
  if (!read_answer(reply.body, answer)) {
    return unavailable(fmt::format("{}{} answers with no completion", address.url(), path));
  }
  return ok_status();
}

// Counts and the first failure, shared by the threads.
struct Progress {
  Mutex mutex;
  int64_t num_done HEDDLE_GUARDED_BY(mutex) = 0;
  int64_t num_failed HEDDLE_GUARDED_BY(mutex) = 0;
  Status first_failure HEDDLE_GUARDED_BY(mutex);
};

Result<std::vector<Answer>> ask_all(const ServerAddress& address, const ServedSettings& served,
                                    const std::vector<Question>& questions,
                                    const EvaluationOptions& options) {
  std::vector<Answer> answers(questions.size());
  std::atomic<size_t> next = 0;
  Progress progress;
  const auto work = [&] {
    for (size_t i = next++; i < questions.size(); i = next++) {
      Status status = ask_one(address, served, questions[i], options, answers[i]);
      if (!status.ok()) answers[i].finish = {.reason = FinishReason::kError, .error = status};
      const MutexLock lock(progress.mutex);
      if (!status.ok() && progress.num_failed++ == 0) progress.first_failure = std::move(status);
      ++progress.num_done;
      if (options.ask.progress) options.ask.progress(progress.num_done, std::ssize(questions));
    }
  };
  std::vector<std::thread> threads;
  const int64_t num_threads = std::min(options.ask.parallel, std::ssize(questions));
  for (int64_t i = 0; i < num_threads; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  const MutexLock lock(progress.mutex);
  if (progress.num_failed == std::ssize(questions)) return progress.first_failure;
  if (progress.num_failed > 0) {
    log_warning(fmt::format("{} of {} questions failed; the first: {}", progress.num_failed,
                            questions.size(), progress.first_failure.message()));
  }
  return answers;
}

}  // namespace

Result<AskQuestions> ask_server(ServedSettings served) {
  HEDDLE_ASSIGN_OR_RETURN(ServerAddress address, address_of(served));
  HEDDLE_RETURN_IF_ERROR(choose_served_model(address, served));
  return AskQuestions(
      [address = std::move(address), served = std::move(served)](
          const std::vector<Question>& questions, const EvaluationOptions& options) {
        return ask_all(address, served, questions, options);
      });
}

}  // namespace heddle::tools
