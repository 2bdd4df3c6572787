// SPDX-License-Identifier: Apache-2.0
#include "cache_exactness_workload.h"

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/mutex.h"
#include "on_device.h"
#include "support/test_data.h"

namespace heddle::testing {

namespace {

using Tokens = std::vector<TokenId>;

void take(const RequestEvent& event, ExactAnswer& answer) {
  answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
  for (const TokenLogprob& logprob : event.logprobs) {
    answer.bits.push_back(static_cast<uint32_t>(logprob.token));
    answer.bits.push_back(std::bit_cast<uint32_t>(logprob.logprob));
    for (const auto& [token, value] : logprob.top) {
      answer.bits.push_back(static_cast<uint32_t>(token));
      answer.bits.push_back(std::bit_cast<uint32_t>(value));
    }
  }
  if (!event.finish) return;
  answer.reason = event.finish->reason;
  answer.error = event.finish->error.message();
  answer.cached_tokens = event.cached_tokens;
  answer.exact_repeats = event.cache.exact_repeat ? 1 : 0;
  answer.drafts = event.drafts;
}

struct Numbers {
  int conversations;
  int turns;
  std::vector<int64_t> systems;  // the lengths of their prompts
  std::vector<int64_t> others;   // of prompts that have nothing to do with conversations
  int again;                     // prompts of a later turn that come again, and as many forks
};

Numbers numbers_of(Extent extent) {
  if (extent == Extent::kWhole) {
    return {.conversations = 8,
            .turns = 4,
            .systems = {64, 100, 193},
            .others = {20, 63, 64, 65, 127, 200, 257, 600, 1500},
            .again = 4};
  }
  return {.conversations = 4,
          .turns = 3,
          .systems = {64, 100},
          .others = {20, 64, 65, 400},
          .again = 1};
}

// Builds the requests wave by wave, from what was answered to the ones before.
class WorkloadMaker {
 public:
  WorkloadMaker(Engine& engine, Extent extent) : engine_(engine), numbers_(numbers_of(extent)) {}

  ExactWorkload make() {
    for (const int64_t length : numbers_.systems) systems_.push_back(letters(length));
    add_first_turns();
    for (int turn = 1; turn < numbers_.turns; ++turn) add_next_turns();
    return std::move(workload_);
  }

 private:
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  Tokens letters(int64_t count) {
    Tokens tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(between(0, 1400)));
    return tokens;
  }

  void append(Tokens& tokens, const Tokens& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
  }

  Request request(Tokens prompt) {
    const int64_t number = num_requests_++;
    Request request{.id = fmt::format("{}", number), .prompt = std::move(prompt)};
    request.sampling.temperature = number % 3 == 0 ? 0.0f : 0.8f;
    request.sampling.seed = static_cast<uint64_t>(100 + number);
    if (number % 5 == 0) request.sampling.repetition_penalty = 1.2f;
    request.stop.max_new_tokens = between(8, 24);
    request.stop.ignore_eos = number % 4 != 0;
    request.return_logprobs = true;
    request.top_logprobs = static_cast<int32_t>(kTopLogprobs);
    workload_.prompt_tokens += std::ssize(request.prompt);
    return request;
  }

  // Answers the wave cold and alone, request by request.
  void close(Wave wave) {
    for (const Request& request : wave) {
      workload_.answers.push_back(answer_together(engine_, {request}, false)[0]);
    }
    workload_.waves.push_back(std::move(wave));
  }

  // Also those that have nothing to do with conversations; one of them is long.
  void add_first_turns() {
    Wave wave;
    for (int i = 0; i < numbers_.conversations; ++i) {
      Tokens prompt = systems_[static_cast<size_t>(i) % systems_.size()];
      request_boundary_ = std::ssize(prompt);
      append(prompt, letters(between(10, 60)));
      wave.push_back(request(std::move(prompt)));
      wave.back().role_boundaries = {request_boundary_};
    }
    for (const int64_t length : numbers_.others) wave.push_back(request(letters(length)));
    for (int i = 0; i < numbers_.conversations; ++i) {
      conversations_.push_back(static_cast<size_t>(i));
    }
    close(std::move(wave));
  }

  // Every conversation goes on; some prompts come again, some fork off in the middle.
  void add_next_turns() {
    Wave wave;
    std::vector<Tokens> prompts;
    for (const Wave& earlier : workload_.waves) {
      for (const Request& one : earlier) prompts.push_back(one.prompt);
    }
    const size_t first = prompts.size();
    for (size_t& conversation : conversations_) {
      Tokens prompt = prompts[conversation];
      append(prompt, workload_.answers[conversation].tokens);
      request_boundary_ = std::ssize(prompt);
      append(prompt, letters(between(5, 40)));
      conversation = first + wave.size();
      wave.push_back(request(std::move(prompt)));
      wave.back().role_boundaries = {request_boundary_};
    }
    const auto any = [&]() -> const Tokens& {
      for (;;) {  // the long ones come once
        const auto& prompt = prompts[static_cast<size_t>(between(0, std::ssize(prompts) - 1))];
        if (prompt.size() < 400) return prompt;
      }
    };
    for (int i = 0; i < numbers_.again; ++i) wave.push_back(request(any()));
    for (int i = 0; i < numbers_.again; ++i) {
      Tokens prompt = any();
      prompt.resize(static_cast<size_t>(between(1, std::ssize(prompt))));
      append(prompt, letters(between(1, 80)));
      wave.push_back(request(std::move(prompt)));
    }
    close(std::move(wave));
  }

  Engine& engine_;
  Numbers numbers_;
  ExactWorkload workload_;
  std::mt19937_64 random_{20};
  std::vector<Tokens> systems_;
  std::vector<size_t> conversations_;  // the newest turn of each: its place in the whole workload
  int64_t request_boundary_ = 0;
  int64_t num_requests_ = 0;
};

// How far a wave is: shared by the callbacks of its requests and the thread that sends them.
struct WaveProgress {
  Mutex mutex;
  CondVar changed;
  size_t num_finished HEDDLE_GUARDED_BY(mutex) = 0;
  bool has_begun HEDDLE_GUARDED_BY(mutex) = false;
  bool all_sent HEDDLE_GUARDED_BY(mutex) = false;
};

}  // namespace

std::vector<ExactAnswer> answer_together(Engine& engine, const Wave& wave, bool preempted) {
  std::vector<ExactAnswer> answers(wave.size());
  WaveProgress progress;
  const size_t num_patient = preempted ? wave.size() / 2 : wave.size();
  for (size_t place = 0; place < wave.size(); ++place) {
    const bool urgent = place >= num_patient;
    const size_t i = urgent ? wave.size() - 1 - (place - num_patient) : place;
    Request request = wave[i];
    if (preempted) request.priority = urgent ? 10 : 0;
    if (urgent) {
      const MutexLock lock(progress.mutex);
      progress.changed.wait(progress.mutex,
                            [&]() HEDDLE_REQUIRES(progress.mutex) { return progress.has_begun; });
    }
    const Status status = engine.submit(std::move(request), [&, i](const RequestEvent& event) {
      const MutexLock lock(progress.mutex);
      take(event, answers[i]);
      progress.has_begun = true;
      if (event.finish) ++progress.num_finished;
      progress.changed.notify_all();
      if (!preempted) return;
      // The engine stands still until the urgent ones are there, however long that takes.
      progress.changed.wait(progress.mutex,
                            [&]() HEDDLE_REQUIRES(progress.mutex) { return progress.all_sent; });
    });
    if (!status.ok()) {
      ADD_FAILURE() << status.to_string();
      const MutexLock lock(progress.mutex);
      progress.has_begun = true;
      ++progress.num_finished;
    }
  }
  const MutexLock lock(progress.mutex);
  progress.all_sent = true;
  progress.changed.notify_all();
  progress.changed.wait(progress.mutex, [&]() HEDDLE_REQUIRES(progress.mutex) {
    return progress.num_finished == wave.size();
  });
  return answers;
}

void choose_kernels(EngineOptions& options, Kernels kernels) {
  options.exact = kernels != Kernels::kFast;
  if (kernels == Kernels::kFast) options.dtype = RunDtype::kFloat32;
  if (kernels == Kernels::kExactFp8) options.kv_cache_dtype = KvCacheDtype::kFp8E4m3;
}

const ExactWorkload& exact_workload(const std::string& device, Kernels kernels, Extent extent) {
  static std::map<std::tuple<std::string, Kernels, Extent>, ExactWorkload> workloads;
  const auto known = workloads.find({device, kernels, extent});
  if (known != workloads.end()) return known->second;
  EngineOptions options{.model_dir = repository_path("models/heddle-tiny"),
                        .device = device,
                        .disable_cuda_graph = true,
                        .num_threads = 2,
                        .max_running_requests = 1,
                        .max_total_tokens = 4096};
  if (device == "cuda") options.memory_fraction = kShareOfGpu;
  choose_kernels(options, kernels);
  options.cache.enabled = false;
  options.scheduling.overlap = false;
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return workloads[{device, kernels, extent}] = WorkloadMaker(**engine, extent).make();
}

}  // namespace heddle::testing
