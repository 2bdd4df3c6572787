// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/replay.h"

#include <algorithm>
#include <chrono>
#include <set>

#include <fmt/format.h>

#include "tools/cli/event_queue.h"

namespace heddle::tools {
namespace {

int64_t common_prefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const auto [end, ignored] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return end - a.begin();
}

class Replayer {
 public:
  Replayer(Engine& engine, const Workload& workload, int64_t concurrency)
      : engine_(engine),
        workload_(workload),
        concurrency_(concurrency),
        prompts_(workload.requests.size()),
        done_(workload.requests.size(), false) {
    replay_.requests.resize(workload.requests.size());
    for (size_t i = 0; i < workload.requests.size(); ++i) waiting_.push_back(i);
  }

  Result<Replay> run() {
    const auto start = std::chrono::steady_clock::now();
    while (num_running_ > 0 || !waiting_.empty()) {
      const auto ready = std::find_if(waiting_.begin(), waiting_.end(), [this](size_t index) {
        const WorkloadRequest& request = workload_.requests[index];
        return (!request.follows || done_[*request.follows]) &&
               (!request.after || done_[*request.after]);
      });
      if (status_.ok() && num_running_ < concurrency_ && ready != waiting_.end()) {
        const size_t index = *ready;
        waiting_.erase(ready);
        status_ = submit(index);
        continue;
      }
      if (num_running_ == 0) break;
      take_event();
    }
    HEDDLE_RETURN_IF_ERROR(status_);
    replay_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(replay_);
  }

 private:
  Status submit(size_t index) {
    const WorkloadRequest& wanted = workload_.requests[index];
    std::vector<TokenId>& prompt = prompts_[index];
    if (wanted.follows) {
      prompt = prompts_[*wanted.follows];
      const auto& answer = replay_.requests[*wanted.follows].output;
      prompt.insert(prompt.end(), answer.begin(), answer.end());
    }
    prompt.insert(prompt.end(), wanted.tokens.begin(), wanted.tokens.end());

    Replayed& result = replay_.requests[index];
    result.shared_tokens = longest_known(prompt);
    known_.insert(prompt);
    Request request;
    request.id = fmt::format("{}-{}", workload_.name, index);
    request.prompt = prompt;
    request.sampling.temperature = 0;
    request.stop.max_new_tokens = wanted.max_new_tokens;
    request.stop.ignore_eos = true;
    HEDDLE_RETURN_IF_ERROR(engine_.submit(std::move(request), [this, index](RequestEvent&& event) {
      events_.push(index, std::move(event));
    }));
    ++num_running_;
    return {};
  }

  void take_event() {
    const auto [index, event] = events_.pop();
    Replayed& result = replay_.requests[index];
    result.output.insert(result.output.end(), event.tokens.begin(), event.tokens.end());
    if (!event.finish) return;
    --num_running_;
    done_[index] = true;
    if (event.finish->reason == FinishReason::kError && status_.ok()) {
      status_ = event.finish->error;
    }
    std::vector<TokenId> sequence = prompts_[index];
    sequence.insert(sequence.end(), result.output.begin(), result.output.end());
    known_.insert(std::move(sequence));
    result.prompt_tokens = event.prompt_tokens;
    result.cache = event.cache;
    result.first_token_seconds = event.first_token_seconds;
    const double decode_seconds = event.elapsed_seconds - event.first_token_seconds;
    if (event.completion_tokens > 1 && decode_seconds > 0) {
      result.decode_tokens_per_second =
          static_cast<double>(event.completion_tokens - 1) / decode_seconds;
    }
  }

  // Length of the longest prefix shared with an earlier sequence. In sorted order one of the two
  // neighbours shares it.
  [[nodiscard]] int64_t longest_known(const std::vector<TokenId>& prompt) const {
    const auto after = known_.lower_bound(prompt);
    int64_t longest = after == known_.end() ? 0 : common_prefix(prompt, *after);
    if (after != known_.begin()) longest = std::max(longest, common_prefix(prompt, *prev(after)));
    return longest;
  }

  Engine& engine_;
  const Workload& workload_;
  const int64_t concurrency_;
  std::vector<std::vector<TokenId>> prompts_;
  std::vector<bool> done_;
  std::vector<size_t> waiting_;
  std::set<std::vector<TokenId>> known_;
  EventQueue events_;
  int64_t num_running_ = 0;
  Status status_;
  Replay replay_;
};

}  // namespace

Result<Replay> replay(Engine& engine, const Workload& workload, int64_t concurrency) {
  return Replayer(engine, workload, concurrency).run();
}

}  // namespace heddle::tools
