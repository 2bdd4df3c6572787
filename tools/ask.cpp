// SPDX-License-Identifier: Apache-2.0
#include "ask.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/mutex.h"

namespace heddle::tools {

namespace {

// Waits for the answers of several requests at once.
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
    answer.cached_tokens = event.cached_tokens;
    answer.elapsed_seconds = event.elapsed_seconds;
    ++num_done_;
    done_.notify_all();
  }

  // Waits until fewer than `limit` of the `submitted` requests are in flight. Returns how many are
  // done.
  int64_t wait_below(int64_t submitted, int64_t limit) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    done_.wait(mutex_, [&]() HEDDLE_REQUIRES(mutex_) { return submitted - num_done_ < limit; });
    return num_done_;
  }

  // Call it when nothing is in flight.
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

}  // namespace heddle::tools
