// SPDX-License-Identifier: Apache-2.0
#include "tools/served_evaluation.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "core/mutex.h"
#include "tools/load/server_call.h"
#include "tools/served_chat.h"

namespace heddle::tools {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// Interval between checks for calls beyond their time limit.
constexpr auto kLimitCheck = std::chrono::milliseconds(50);

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

// Reads the text and the token counts of a completion. Returns false if the body is none.
bool read_answer(const std::string& body, Answer& answer) {
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  const auto text_at = [&json](const char* where) -> const std::string* {
    const Json::json_pointer pointer(where);
    return json.contains(pointer) ? json[pointer].get_ptr<const std::string*>() : nullptr;
  };
  const std::string* text = text_at("/choices/0/message/content");
  if (text == nullptr) text = text_at("/choices/0/text");
  const bool is_empty = json.contains("/choices/0/message"_json_pointer) &&
                        text == nullptr;  // the answer contains only reasoning
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

// Asks all questions of one set, several at a time.
class ServedRun {
 public:
  ServedRun(const ServerAddress& address, const ServedSettings& served,
            const std::vector<Question>& questions, const EvaluationOptions& options)
      : address_(address),
        served_(served),
        questions_(questions),
        options_(options),
        answers_(questions.size()) {}

  Result<std::vector<Answer>> run() HEDDLE_EXCLUDES(mutex_) {
    const int64_t num_threads = std::min(options_.ask.parallel, std::ssize(questions_));
    const auto tls = make_tls_context(address_);
    for (int64_t i = 0; i < num_threads; ++i) {
      workers_.push_back(std::make_unique<Worker>(address_, served_.api_key, tls));
    }
    std::vector<std::thread> threads;
    HEDDLE_RETURN_IF_ERROR(start(threads));
    end_late_calls(threads.size());
    for (std::thread& thread : threads) thread.join();
    const MutexLock lock(mutex_);
    if (num_failed_ == std::ssize(questions_)) return first_failure_;
    if (num_failed_ > 0) {
      log_warning(fmt::format("{} of {} questions failed; the first: {}", num_failed_,
                              questions_.size(), first_failure_.message()));
    }
    return std::move(answers_);
  }

 private:
  // One thread and its current call.
  struct Worker {
    Worker(const ServerAddress& address, const std::string& api_key,
           std::shared_ptr<TlsContext> tls)
        : call(address, api_key, "heddle-eval", std::move(tls)) {}

    ServerCall call;
    std::optional<Clock::time_point> deadline;  // deadline of the current call; guarded by mutex_
  };

  // Starts the threads. Fewer than one per worker are enough. Error: no thread can be started.
  Status start(std::vector<std::thread>& threads) {
    threads.reserve(workers_.size());
    try {
      for (const auto& worker : workers_) threads.emplace_back([&] { work(*worker); });
    } catch (const std::system_error& error) {
      if (threads.empty()) {
        return resource_exhausted(fmt::format("no thread can be started: {}", error.what()));
      }
      log_warning(
          fmt::format("{} questions at a time instead of {}: no more threads can be started",
                      threads.size(), workers_.size()));
    }
    return ok_status();
  }

  // Ends calls beyond their time limit, until all threads have ended.
  void end_late_calls(size_t num_threads) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto have_ended = [&]() HEDDLE_REQUIRES(mutex_) { return num_ended_ == num_threads; };
    while (!ended_.wait_for(mutex_, kLimitCheck, have_ended)) {
      const auto now = Clock::now();
      for (const auto& worker : workers_) {
        if (worker->deadline && now >= *worker->deadline) worker->call.cancel();
      }
    }
  }

  void work(Worker& worker) HEDDLE_EXCLUDES(mutex_) {
    for (size_t i = next_++; i < questions_.size(); i = next_++) {
      Status status = ask_in_time(worker, questions_[i], answers_[i]);
      if (!status.ok()) answers_[i].finish = {.reason = FinishReason::kError, .error = status};
      const MutexLock lock(mutex_);
      if (!status.ok() && num_failed_++ == 0) first_failure_ = std::move(status);
      ++num_done_;
      if (options_.ask.progress) options_.ask.progress(num_done_, std::ssize(questions_));
    }
    const MutexLock lock(mutex_);
    ++num_ended_;
    ended_.notify_one();
  }

  Status ask_in_time(Worker& worker, const Question& question, Answer& answer)
      HEDDLE_EXCLUDES(mutex_) {
    set_deadline(worker,
                 Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double>(served_.timeout_seconds)));
    Status status;
    try {
      status = ask_one(worker.call, question, answer);
    } catch (const std::exception& error) {  // thrown by the network library, for example if no
                                             // file descriptor is left
      status = unavailable(fmt::format("{}: {}", address_.url(), error.what()));
    }
    set_deadline(worker, std::nullopt);
    return status;
  }

  void set_deadline(Worker& worker, std::optional<Clock::time_point> deadline)
      HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    worker.deadline = deadline;
  }

  Status ask_one(ServerCall& call, const Question& question, Answer& answer) const {
    const auto start = Clock::now();
    const char* const path = question.messages.empty() ? "/v1/completions" : "/v1/chat/completions";
    HEDDLE_ASSIGN_OR_RETURN(
        const ServerReply reply,
        call.post(path, body_of(question, served_.model, options_), [](std::string_view) {}));
    answer.elapsed_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (reply.was_cancelled) {
      return unavailable(fmt::format("{}{} has not answered in {} s; --timeout sets the limit",
                                     address_.url(), path, served_.timeout_seconds));
    }
    if (reply.status != 200) return unavailable(refusal_text(address_, reply));
    if (!read_answer(reply.body, answer)) {
      return unavailable(fmt::format("{}{} answers with no completion", address_.url(), path));
    }
    return ok_status();
  }

  const ServerAddress& address_;
  const ServedSettings& served_;
  const std::vector<Question>& questions_;
  const EvaluationOptions& options_;
  // Indexed by question; each is written by the thread that asks the question.
  std::vector<Answer> answers_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<size_t> next_ = 0;
  Mutex mutex_;
  CondVar ended_;
  size_t num_ended_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t num_done_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t num_failed_ HEDDLE_GUARDED_BY(mutex_) = 0;
  Status first_failure_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace

Result<AskQuestions> ask_server(ServedSettings served) {
  HEDDLE_ASSIGN_OR_RETURN(ServerAddress address, address_of(served));
  HEDDLE_RETURN_IF_ERROR(choose_served_model(address, served));
  return AskQuestions(
      [address = std::move(address), served = std::move(served)](
          const std::vector<Question>& questions, const EvaluationOptions& options) {
        return ServedRun(address, served, questions, options).run();
      });
}

}  // namespace heddle::tools
