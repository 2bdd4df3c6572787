// SPDX-License-Identifier: Apache-2.0
// Pages and states that share one budget much smaller than the work: rounds that want states follow
// rounds that want pages, so that the border between the two moves and memory goes back to the
// system and is taken again. No bit of an answer changes for it.
#include <algorithm>
#include <memory>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cache_exactness_workload.h"
#include "device/available_memory.h"
#include "engine/engine_loop.h"
#include "runner/load/model_runner.h"
#include "support/test_data.h"

namespace heddle {
namespace {

using request::BatchPlan;
using request::PlannedSequence;
using testing::answer_together;
using testing::ExactAnswer;
using testing::Wave;

constexpr double kMebibyte = 1024.0 * 1024.0;

// The ids of one kind of memory, as plans tell of them.
class WatchedIds {
 public:
  void give_back(int32_t id) {
    if (held_.erase(id) == 0) return;  // taken for a step that was not planned after all
    gone_.insert(id);
    ++num_given_back_;
  }

  void take(int32_t id) {
    if (id == 0) return;
    held_.insert(id);
    if (gone_.erase(id) == 1) ++num_taken_again_;
  }

  [[nodiscard]] int64_t num_pinned() const { return std::ssize(held_); }

  [[nodiscard]] int64_t num_given_back() const { return num_given_back_; }

  [[nodiscard]] int64_t num_taken_again() const { return num_taken_again_; }

 private:
  std::set<int32_t> held_;  // have memory
  std::set<int32_t> gone_;  // had some
  int64_t num_given_back_ = 0;
  int64_t num_taken_again_ = 0;
};

// Memory as the plans that went to the runner count it.
struct Memory {
  WatchedIds pages;
  WatchedIds states;
  int64_t most_pages = 0;
  int64_t most_states = 0;
};

class MemoryWatcher final : public runner::Runner {
 public:
  MemoryWatcher(std::unique_ptr<Runner> device, Memory& memory)
      : device_(std::move(device)), memory_(memory) {}

  [[nodiscard]] const runner::PoolSizes& pool_sizes() const override {
    return device_->pool_sizes();
  }

  [[nodiscard]] const request::StepLimits& step_limits() const override {
    return device_->step_limits();
  }

  Status submit(const BatchPlan& plan) override {
    watch(plan);
    return device_->submit(plan);
  }

  Result<request::StepOutput> wait() override { return device_->wait(); }

  void recycle(request::StepOutput output) override { device_->recycle(std::move(output)); }

 private:
  void watch(const BatchPlan& plan) {
    using request::MoveKind;
    for (const auto& move : plan.moves_of(MoveKind::kReleasePage)) {
      memory_.pages.give_back(move.from);
    }
    for (const auto& move : plan.moves_of(MoveKind::kReleaseState)) {
      memory_.states.give_back(move.from);
    }
    for (const int32_t page : plan.pages) memory_.pages.take(page);
    for (const PlannedSequence& sequence : plan.sequences) {
      memory_.states.take(sequence.state_slot);
      for (const auto& snapshot : plan.snapshots_of(sequence)) memory_.states.take(snapshot.slot);
    }
    memory_.most_pages = std::max(memory_.most_pages, memory_.pages.num_pinned());
    memory_.most_states = std::max(memory_.most_states, memory_.states.num_pinned());
    EXPECT_LE(memory_.pages.num_pinned() * pool_sizes().page_bytes +
                  memory_.states.num_pinned() * pool_sizes().state_slot_bytes,
              pool_sizes().shared_bytes);
  }

  std::unique_ptr<Runner> device_;
  Memory& memory_;
};

struct BudgetSetting {
  std::string name;
  int64_t budget_mib = 16;
  int32_t page_size = 16;
  int32_t batch = 8;
  int64_t chunk_tokens = 192;
  bool overlap = true;

  friend std::ostream& operator<<(std::ostream& out, const BudgetSetting& setting) {
    return out << setting.name;
  }

  [[nodiscard]] EngineOptions options() const {
    EngineOptions options{
        .model_dir = testing::repository_path("models/heddle-tiny"),
        .exact = true,
        .device = "cpu",  // a GPU's pools share nothing
        .num_threads = 2,
        .max_running_requests = batch,
        .chunked_prefill_tokens = chunk_tokens,
        .page_size = page_size,
        .memory_fraction = static_cast<double>(budget_mib) * kMebibyte /
                           static_cast<double>(device::available_host_memory_bytes()),
        .speculative = {.algorithm = DraftAlgorithm::kNone}};
    options.scheduling.overlap = overlap;
    return options;
  }
};

struct AnsweredWave {
  Wave requests;
  std::vector<ExactAnswer>
      answers;  // with all the memory that is wanted, alone and without a cache
};

// Many short prompts want states, few long ones pages. After either some of them come back: the
// short ones go on behind their answers, the long ones fork in the middle.
class RoundMaker {
 public:
  explicit RoundMaker(Engine& engine) : engine_(engine) {}

  std::vector<AnsweredWave> make() {
    for (int i = 0; i < 3; ++i) {
      ask(letters_of(14, 3, 28));
      ask({continued(1), continued(2), continued(4), continued(7)});
      ask(letters_of(2, 350, 600));
      ask({forked(1), forked(2)});
    }
    return std::move(rounds_);
  }

 private:
  using Tokens = std::vector<TokenId>;

  struct Asked {
    Tokens prompt;
    Tokens answer;
  };

  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  Tokens with_letters(Tokens tokens, int64_t count) {
    for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(between(0, 1400)));
    return tokens;
  }

  std::vector<Tokens> letters_of(int count, int64_t shortest, int64_t longest) {
    std::vector<Tokens> prompts;
    for (int i = 0; i < count; ++i) prompts.push_back(with_letters({}, between(shortest, longest)));
    return prompts;
  }

  // Of the one that was asked so many before.
  Tokens continued(size_t ago) {
    const Asked& asked = asked_[asked_.size() - ago];
    Tokens prompt = asked.prompt;
    prompt.insert(prompt.end(), asked.answer.begin(), asked.answer.end());
    return with_letters(std::move(prompt), 5);
  }

  Tokens forked(size_t ago) {
    const Tokens& prompt = asked_[asked_.size() - ago].prompt;
    return with_letters({prompt.begin(), prompt.begin() + std::ssize(prompt) / 2}, 20);
  }

  void ask(std::vector<Tokens> prompts) {
    AnsweredWave& round = rounds_.emplace_back();
    for (Tokens& prompt : prompts) {
      const auto number = static_cast<int64_t>(asked_.size());
      Request request{.id = fmt::format("{}", number), .prompt = prompt};
      request.sampling.temperature = number % 3 == 0 ? 0.0f : 0.8f;
      request.sampling.seed = static_cast<uint64_t>(500 + number);
      request.stop.max_new_tokens = between(4, 12);
      request.stop.ignore_eos = true;
      request.return_logprobs = true;
      request.top_logprobs = 5;
      round.answers.push_back(answer_together(engine_, {request}, false)[0]);
      round.requests.push_back(std::move(request));
      asked_.push_back({std::move(prompt), round.answers.back().tokens});
    }
  }

  Engine& engine_;
  std::mt19937_64 random_{77};
  std::vector<AnsweredWave> rounds_;
  std::vector<Asked> asked_;
};

const std::vector<AnsweredWave>& rounds() {
  static const std::vector<AnsweredWave> made = [] {
    EngineOptions options{.model_dir = testing::repository_path("models/heddle-tiny"),
                          .exact = true,
                          .device = "cpu",
                          .num_threads = 2,
                          .max_running_requests = 1,
                          .max_total_tokens = 4096,
                          .speculative = {.algorithm = DraftAlgorithm::kNone},
                          .skip_tokenizer = true};
    options.cache.enabled = false;
    auto engine = Engine::create(options);
    EXPECT_TRUE(engine.ok()) << engine.status().to_string();
    return RoundMaker(**engine).make();
  }();
  return made;
}

class SharedMemoryExactness : public ::testing::TestWithParam<BudgetSetting> {
 protected:
  static void SetUpTestSuite() { rounds(); }

  // Free memory changes while other programs use the machine: asked again until the budget is about
  // right.
  static Result<runner::LoadedModel> load(const BudgetSetting& setting) {
    const double wanted = static_cast<double>(setting.budget_mib) * kMebibyte;
    for (int attempt = 0; attempt < 100; ++attempt) {
      Result<runner::LoadedModel> model = runner::load_model(setting.options());
      if (!model.ok()) {
        if (model.status().code() != StatusCode::kResourceExhausted) return model;
        continue;
      }
      const auto got = static_cast<double>(model->plan.shared_pool_bytes);
      if (got > 0.75 * wanted && got < 1.15 * wanted) return model;
    }
    return resource_exhausted("free memory did not hold still for as long as a model loads");
  }
};

TEST_P(SharedMemoryExactness, ChangesNoBitWhileTheBorderMoves) {
  Result<runner::LoadedModel> model = load(GetParam());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const runner::PoolSizes sizes = model->runner->pool_sizes();
  Memory memory;
  engine::EngineParts parts;
  parts.runner = std::make_unique<MemoryWatcher>(std::move(model->runner), memory);
  parts.info = model->info;
  parts.plan = model->plan;
  parts.options = GetParam().options();
  auto engine = engine::EngineLoop::create(std::move(parts));
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();

  int64_t cached_tokens = 0;
  for (const AnsweredWave& round : rounds()) {
    const std::vector<ExactAnswer> answers = answer_together(**engine, round.requests, false);
    for (size_t i = 0; i < answers.size(); ++i) {
      const Request& request = round.requests[i];
      EXPECT_TRUE(answers[i] == round.answers[i])
          << "request " << request.id << " of " << request.prompt.size() << " tokens, "
          << answers[i].cached_tokens << " of them cached: " << answers[i].error;
      cached_tokens += answers[i].cached_tokens;
    }
  }
  engine->reset();  // its thread plans no more
  EXPECT_GT(cached_tokens, 0);
  EXPECT_GT(memory.pages.num_given_back(), 0);
  EXPECT_GT(memory.pages.num_taken_again(), 0);
  EXPECT_GT(memory.states.num_given_back(), 0);
  EXPECT_GT(memory.states.num_taken_again(), 0);
  EXPECT_GT(memory.most_pages * sizes.page_bytes + memory.most_states * sizes.state_slot_bytes,
            sizes.shared_bytes)
      << "each had what the other had at another time";
}

INSTANTIATE_TEST_SUITE_P(
    Budgets, SharedMemoryExactness,
    ::testing::Values(BudgetSetting{.name = "SmallPages"},
                      BudgetSetting{.name = "LargePages", .budget_mib = 24, .page_size = 64},
                      BudgetSetting{.name = "FewAtATimeWithoutOverlap",
                                    .budget_mib = 20,
                                    .page_size = 32,
                                    .batch = 3,
                                    .chunk_tokens = 64,
                                    .overlap = false}),
    [](const auto& setting) { return setting.param.name; });

}  // namespace
}  // namespace heddle
