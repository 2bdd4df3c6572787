// SPDX-License-Identifier: Apache-2.0
// The error of states kept in bf16 or int8: the real model in exact mode through the whole
// engine, its next-token distributions after resuming from a snapshot against those of cold
// runs. The table in docs/numerics.md has what this test records as properties.
//
// The texts are recorded conversations. A prompt of theirs resumes where an earlier answer ended
// (at any token), at a point of the grid (a text that is cut), or at a fork (another end). The cold
// distributions come from fp32 snapshots, which give the bits of cold runs: a sample is
// computed cold to see that, and cache_exactness_test.cpp proves it.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <heddle/engine.h>

#include "engine/engine_loop.h"
#include "integration/on_device.h"
#include "integration/recorded_turns.h"
#include "runner/load/model_runner.h"
#include "support/test_data.h"

namespace heddle {
namespace {

using request::MoveKind;
using Tokens = std::vector<TokenId>;
using Distribution = std::vector<float>;  // log probabilities by token

constexpr int64_t kGrid = 64;

// A runner between the engine and the model, without overlap. It keeps the whole distribution of
// the first draw and puts the tokens of a text in the place of what is drawn.
class DistributionTap final : public runner::Runner {
 public:
  explicit DistributionTap(std::unique_ptr<runner::Runner> model, int64_t vocab_size)
      : model_(std::move(model)), first_(static_cast<size_t>(vocab_size)) {
    vocabulary_.resize(first_.size());
    std::iota(vocabulary_.begin(), vocabulary_.end(), 0);
  }

  [[nodiscard]] const runner::PoolSizes& pool_sizes() const override {
    return model_->pool_sizes();
  }

  [[nodiscard]] const request::StepLimits& step_limits() const override {
    return model_->step_limits();
  }

  // For the next request: the tokens it is to draw, which outlive it.
  void begin(std::span<const TokenId> draws) {
    draws_ = draws;
    num_drawn_ = 0;
  }

  // Sequences that resume start without a state: what would be lost with it.
  void forget_states() { forgets_states_ = true; }

  Status submit(const request::BatchPlan& plan) override {
    request::BatchPlan& copy = plan_;
    copy = plan;
    if (forgets_states_) {
      std::erase_if(copy.moves, [](const auto& move) { return move.kind == MoveKind::kRestore; });
      for (const request::Move& resumed : plan.moves_of(MoveKind::kRestore)) {
        copy.add_move({.kind = MoveKind::kZero, .to = resumed.to});
      }
    }
    num_saves_ += std::ssize(plan.moves_of(MoveKind::kSave));
    for (request::SlotStart& start : copy.starts) {
      start.return_logprobs = true;
      start.logprob_tokens = copy.add_tokens(vocabulary_);
    }
    return model_->submit(copy);
  }

  Result<request::StepOutput> wait() override {
    Result<request::StepOutput> output = model_->wait();
    if (!output.ok()) return output;
    for (request::SampledToken& sampled : output->tokens) {
      if (num_drawn_ == 0) first_ = sampled.logprob.listed;
      sampled.token = draws_[num_drawn_++];
    }
    return output;
  }

  [[nodiscard]] const Distribution& first() const { return first_; }

  [[nodiscard]] int64_t num_saves() const { return num_saves_; }

 private:
  std::unique_ptr<runner::Runner> model_;
  Distribution first_;
  Tokens vocabulary_;
  std::span<const TokenId> draws_;
  size_t num_drawn_ = 0;
  bool forgets_states_ = false;
  request::BatchPlan plan_;
  int64_t num_saves_ = 0;
};

// A prompt and what is put in the place of its answer.
struct Question {
  Tokens prompt;
  Tokens draws;
};

// An engine that has one request at a time.
class TappedEngine {
 public:
  TappedEngine(const std::string& device, bool caches, StateDtype state_dtype) {
    EngineOptions options{.model_dir = testing::repository_path("models/heddle-tiny"),
                          .exact = true,
                          .device = device,
                          .num_threads = 1,
                          .context_length = 2048,
                          .max_running_requests = 2,
                          .max_total_tokens = 32768,
                          .speculative = {.algorithm = DraftAlgorithm::kNone}};
    options.cache.enabled = caches;
    options.cache.state_dtype = state_dtype;
    auto model = runner::load_model(options);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    engine::EngineParts parts;
    auto tap = std::make_unique<DistributionTap>(std::move(model->runner), model->info.vocab_size);
    tap_ = tap.get();
    parts.runner = std::move(tap);
    parts.info = std::move(model->info);
    parts.plan = std::move(model->plan);
    parts.options.cache = options.cache;
    parts.options.scheduling.overlap = false;
    parts.drive = engine::Drive::kManual;
    engine_ = engine::EngineLoop::create(std::move(parts)).value();
  }

  struct Answer {
    Distribution distribution;
    int64_t cached_tokens = 0;
  };

  Answer ask(const Question& question) {
    Answer answer;
    Request request{.id = "one", .prompt = question.prompt};
    request.sampling.temperature = 0;
    request.stop.max_new_tokens = std::ssize(question.draws);
    request.stop.ignore_eos = true;
    tap_->begin(question.draws);
    const Status status = engine_->submit(std::move(request), [&](const RequestEvent& event) {
      if (!event.finish) return;
      EXPECT_TRUE(event.finish->error.ok()) << event.finish->error.to_string();
      answer.cached_tokens = event.cached_tokens;
    });
    EXPECT_TRUE(status.ok()) << status.to_string();
    while (engine_->step()) {
    }
    engine_->check_invariants();
    answer.distribution = tap_->first();
    return answer;
  }

  [[nodiscard]] DistributionTap& tap() const { return *tap_; }

  [[nodiscard]] const MemoryPlan& plan() const { return engine_->memory_plan(); }

 private:
  DistributionTap* tap_ = nullptr;
  std::unique_ptr<engine::EngineLoop> engine_;
};

// In the order in which they are asked.
std::vector<Question> make_questions() {
  const std::vector<std::vector<Tokens>> turns = testing::recorded_turns(30);
  std::mt19937_64 random(3);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const auto any_turn = [&] {
    const auto& of_file = turns[static_cast<size_t>(below(std::ssize(turns)))];
    return of_file[static_cast<size_t>(below(std::ssize(of_file)))];
  };
  const auto first = [](const Tokens& tokens, int64_t count) {
    return Tokens(tokens.begin(), tokens.begin() + std::min(count, std::ssize(tokens)));
  };
  std::vector<Question> questions;
  for (int conversation = 0; conversation < 6; ++conversation) {
    Tokens text;
    for (int turn = 0; turn < 5; ++turn) {
      const Tokens more = any_turn();
      text.insert(text.end(), more.begin(), more.end());
    }
    const int64_t length = std::ssize(text);
    // It grows: each time a few tokens are drawn, and the next prompt goes on behind them.
    constexpr int64_t kDraws = 3;
    // Where few tokens follow, nothing but the state and the rows says what came before.
    const auto gap = [&] { return kDraws + 1 + below(below(2) == 0 ? 6 : 80); };
    for (int64_t end = 20 + gap(); end + kDraws < length; end += gap()) {
      questions.push_back(
          {first(text, end), Tokens(text.begin() + end, text.begin() + end + kDraws)});
    }
    for (int i = 0; i < 20; ++i) {
      const int64_t any = kGrid + 1 + below(length - kGrid - 1);
      const int64_t behind_grid = any - any % kGrid + 1 + below(6);
      Tokens prompt = first(text, i % 4 < 2 ? behind_grid : any);
      if (i % 2 == 1) {  // a fork, within another turn
        const Tokens other = any_turn();
        prompt.insert(prompt.end(), other.begin() + 4, other.begin() + 4 + 1 + below(15));
      }
      questions.push_back({std::move(prompt), {0}});
    }
  }
  return questions;
}

// The questions and what comes of them with fp32 snapshots.
struct Workload {
  std::vector<Question> questions = make_questions();
  std::vector<TappedEngine::Answer> answers;
  int64_t state_bytes = 0;
};

const Workload& workload_on(const std::string& device) {
  static std::map<std::string, Workload> made;
  if (const auto known = made.find(device); known != made.end()) return known->second;
  Workload& workload = made[device];
  TappedEngine engine(device, true, StateDtype::kFloat32);
  for (const Question& question : workload.questions) {
    workload.answers.push_back(engine.ask(question));
  }
  workload.state_bytes = engine.tap().pool_sizes().state_slot_bytes;
  return workload;
}

// Sum of p log(p / q), as a sum of terms p (d + exp(-d) - 1), d = log(p / q), which are not
// negative and feel no rounding of what both distributions add up to.
double kl_divergence(const Distribution& p, const Distribution& q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double d = double{p[i]} - double{q[i]};
    sum += std::exp(double{p[i]}) * (d + std::expm1(-d));
  }
  return sum;
}

double entropy(const Distribution& p) {
  double sum = 0;
  for (const float logprob : p) sum -= std::exp(double{logprob}) * double{logprob};
  return sum;
}

int64_t top(const Distribution& p) { return std::max_element(p.begin(), p.end()) - p.begin(); }

struct Losses {
  int64_t resumed = 0;
  int64_t on_grid = 0;
  double entropy_sum = 0;
  double kl_sum = 0;
  double kl_max = 0;
  int64_t same_top = 0;

  void add(const Distribution& cold, const Distribution& resumed_distribution) {
    ++resumed;
    const double kl = kl_divergence(cold, resumed_distribution);
    kl_sum += kl;
    kl_max = std::max(kl_max, kl);
    entropy_sum += entropy(cold);
    same_top += top(cold) == top(resumed_distribution) ? 1 : 0;
  }

  [[nodiscard]] double mean(double sum) const { return sum / static_cast<double>(resumed); }
};

Losses measure(TappedEngine& engine, const Workload& workload) {
  Losses losses;
  for (size_t i = 0; i < workload.questions.size(); ++i) {
    const TappedEngine::Answer answer = engine.ask(workload.questions[i]);
    const TappedEngine::Answer& cold = workload.answers[i];
    EXPECT_EQ(answer.cached_tokens, cold.cached_tokens) << "question " << i;
    if (answer.cached_tokens == 0) {
      EXPECT_EQ(answer.distribution, cold.distribution) << "question " << i;
      continue;
    }
    losses.add(cold.distribution, answer.distribution);
    losses.on_grid += answer.cached_tokens % kGrid == 0 ? 1 : 0;
  }
  return losses;
}

class Snapshots : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { HEDDLE_DEVICE_OR_SKIP(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Cpu, Snapshots, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Cuda, Snapshots, ::testing::Values("cuda"));

TEST_P(Snapshots, InFp32GiveTheBitsOfColdRuns) {
  const Workload& workload = workload_on(GetParam());
  TappedEngine cold(GetParam(), false, StateDtype::kFloat32);
  for (size_t i = 7; i < workload.questions.size(); i += 23) {
    const Question question{workload.questions[i].prompt, {0}};
    EXPECT_EQ(cold.ask(question).distribution, workload.answers[i].distribution);
  }
}

// The bounds below are small against these errors.
TEST_P(Snapshots, AreMissedWhenTheyAreForgotten) {
  TappedEngine engine(GetParam(), true, StateDtype::kFloat32);
  engine.tap().forget_states();
  const Losses losses = measure(engine, workload_on(GetParam()));
  RecordProperty("mean_kl", fmt::format("{:.4g}", losses.mean(losses.kl_sum)));
  EXPECT_GE(losses.mean(losses.kl_sum), 0.05);
}

struct Format {
  StateDtype dtype;
  double least_mean_kl;  // what rounding must show
  double most_mean_kl;
  double most_kl;
  double least_same_top_percent;
  double least_capacity;  // snapshots in the memory of one in fp32
};

class SnapshotLosses : public ::testing::TestWithParam<std::tuple<std::string, Format>> {};

TEST_P(SnapshotLosses, StayWithinTheirBounds) {
  const auto& [device, format] = GetParam();
  HEDDLE_DEVICE_OR_SKIP(device);
  const Workload& workload = workload_on(device);
  TappedEngine engine(device, true, format.dtype);
  const Losses losses = measure(engine, workload);
  const double capacity = static_cast<double>(workload.state_bytes) /
                          static_cast<double>(engine.tap().pool_sizes().snapshot_slot_bytes);
  const double same_top_percent = 100 * losses.mean(static_cast<double>(losses.same_top));
  const auto record = [&](const char* name, double value) {
    RecordProperty(name, fmt::format("{:.4g}", value));
  };
  record("resumed", static_cast<double>(losses.resumed));
  record("resumed_on_grid", static_cast<double>(losses.on_grid));
  record("mean_entropy", losses.mean(losses.entropy_sum));
  record("mean_kl", losses.mean(losses.kl_sum));
  record("largest_kl", losses.kl_max);
  record("same_top_percent", same_top_percent);
  record("capacity", capacity);
  EXPECT_GE(losses.resumed, 200);
  EXPECT_GE(losses.on_grid, 50);
  EXPECT_GE(losses.resumed - losses.on_grid, 50);
  EXPECT_GE(engine.tap().num_saves(), 50);
  EXPECT_GE(losses.mean(losses.entropy_sum), 0.3) << "texts that are no test";
  EXPECT_GT(losses.mean(losses.kl_sum), format.least_mean_kl) << "is the format in use?";
  EXPECT_LE(losses.mean(losses.kl_sum), format.most_mean_kl);
  EXPECT_LE(losses.kl_max, format.most_kl);
  EXPECT_GE(same_top_percent, format.least_same_top_percent);
  EXPECT_GE(capacity, format.least_capacity);
  EXPECT_EQ(engine.plan().snapshot_dtype, to_string(format.dtype));
}

constexpr Format kFormats[] = {{StateDtype::kBfloat16, 1e-13, 5e-4, 1e-2, 99, 1.9},
                               {StateDtype::kInt8, 1e-11, 1e-3, 2e-2, 99, 3.4}};

std::string loss_name(const ::testing::TestParamInfo<SnapshotLosses::ParamType>& info) {
  return std::string(to_string(std::get<1>(info.param).dtype));
}

INSTANTIATE_TEST_SUITE_P(Cpu, SnapshotLosses,
                         ::testing::Combine(::testing::Values("cpu"),
                                            ::testing::ValuesIn(kFormats)),
                         loss_name);
INSTANTIATE_TEST_SUITE_P(Cuda, SnapshotLosses,
                         ::testing::Combine(::testing::Values("cuda"),
                                            ::testing::ValuesIn(kFormats)),
                         loss_name);

}  // namespace
}  // namespace heddle
