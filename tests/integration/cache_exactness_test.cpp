// SPDX-License-Identifier: Apache-2.0
// The real model with every way to keep and reuse what was computed. In exact mode, whatever a
// request resumes from, in whatever chunks, company and order it is computed, its tokens and the
// bits of all its logprobs are those of the cold run on its own, with drafts as without. With the
// kernels of the default mode in fp32 its tokens are, up to near ties, which are counted.
//
// Settings in which any two values meet run always; with HEDDLE_TEST_FULL=1 every exact setting
// answers 20 requests besides. On a GPU decode steps are launched as graphs, those of the cold runs
// kernel by kernel.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <heddle/engine.h>

#include "cache_exactness_workload.h"
#include "knowing_drafter.h"
#include "on_device.h"
#include "support/exposition.h"
#include "support/test_data.h"

namespace heddle {
namespace {

using testing::answer_together;
using testing::exact_workload;
using testing::ExactAnswer;
using testing::ExactWorkload;
using testing::Extent;
using testing::Kernels;
using testing::Wave;

struct CacheSetting {
  std::string policy;  // of the state snapshots; "off": no cache
  int64_t chunk_tokens = 64;
  int32_t batch = 1;
  int32_t page_size = 16;
  bool preempted = false;  // urgent requests come late, one of which wants nearly every page
  bool overlap = true;
  bool fp8_kv = false;
  bool paced = false;        // streams that run keep prompts to small chunks
  int32_t draft_tokens = 0;  // SpeculativeOptions::num_draft_tokens; 0: no drafts
  bool head_drafts = false;  // the model's prediction head makes them
  bool tree_drafts = false;  // they branch
  bool own_drafts = false;   // the model itself makes them, as a small model would
  Extent extent = Extent::kWhole;
  std::string device = "cpu";

  friend std::ostream& operator<<(std::ostream& out, const CacheSetting& setting) {
    return out << setting.name();
  }

  [[nodiscard]] std::string name() const {
    return fmt::format("{}_chunk{}_batch{}_page{}{}{}{}{}{}{}{}{}{}", policy, chunk_tokens, batch,
                       page_size, preempted ? "_preempted" : "", overlap ? "_overlap" : "",
                       fp8_kv ? "_fp8" : "", paced ? "_paced" : "",
                       draft_tokens > 0 ? fmt::format("_drafts{}", draft_tokens) : "",
                       head_drafts ? "_head" : "", tree_drafts ? "_trees" : "",
                       own_drafts ? "_own" : "", is_whole() ? "" : "_twenty");
  }

  [[nodiscard]] bool is_whole() const { return extent == Extent::kWhole; }

  [[nodiscard]] Kernels exact_kernels() const {
    return fp8_kv ? Kernels::kExactFp8 : Kernels::kExact;
  }

  [[nodiscard]] EngineOptions options(Kernels kernels) const {
    EngineOptions options{.model_dir = testing::repository_path("models/heddle-tiny"),
                          .device = device,
                          .num_threads = 2,
                          .max_running_requests = batch,
                          .chunked_prefill_tokens = chunk_tokens,
                          .page_size = page_size,
                          .max_total_tokens = !preempted   ? 32768
                                              : is_whole() ? 1600
                                                           : 480};
    if (device == "cuda") options.memory_fraction = testing::kShareOfGpu;
    choose_kernels(options, kernels);
    options.cache.enabled = policy != "off";
    if (options.cache.enabled) {
      options.cache.state_snapshots = parse_snapshot_policy(policy).value();
    }
    options.scheduling.overlap = overlap;
    if (paced) options.scheduling.target_itl_ms = 1;
    options.scheduling.enable_priority = preempted;
    options.scheduling.preemption_threshold = 0;
    options.scheduling.preemption_min_run_seconds = 0;
    options.speculative.algorithm = DraftAlgorithm::kNone;
    if (draft_tokens > 0) {
      options.speculative = {
          .algorithm = head_drafts ? DraftAlgorithm::kMtp : DraftAlgorithm::kNgram,
          .num_draft_tokens = draft_tokens};
      if (head_drafts && tree_drafts) {
        options.speculative.num_steps = draft_tokens > 2 ? 4 : 1;
        options.speculative.eagle_topk = 3;
      }
      if (own_drafts) {
        options.speculative.algorithm = DraftAlgorithm::kStandalone;
        options.speculative.draft_model_dir = options.model_dir;
      }
      options.skip_tokenizer = true;
    }
    return options;
  }

  [[nodiscard]] Result<std::unique_ptr<Engine>> create(Kernels kernels,
                                                       const ExactWorkload& workload) const {
    return draft_tokens > 0 && !head_drafts && !own_drafts
               ? testing::create_drafting_engine(options(kernels), workload, tree_drafts)
               : Engine::create(options(kernels));
  }

  // The part of all prompt tokens that must come from the cache, in percent. The most possible
  // depends on who runs at the same time; extra_buffer keeps the fewest states, and no_buffer may
  // lose all of its own in the few pages of twenty requests.
  [[nodiscard]] int64_t least_reuse_percent() const {
    if (policy == "off" || (policy == "no_buffer" && preempted && !is_whole())) return 0;
    if (policy == "multi") return preempted ? 8 : 25;
    if (policy == "no_buffer") return preempted ? 6 : 20;
    return preempted ? 3 : 8;
  }
};

std::vector<CacheSetting> all_settings() {
  std::vector<CacheSetting> settings;
  for (const char* policy : {"off", "multi", "extra_buffer", "no_buffer"}) {
    for (const int64_t chunk_tokens : {64, 192, 512}) {
      for (const int32_t batch : {1, 8, 32}) {
        for (const int32_t page_size : {1, 16, 64}) {
          if (page_size > 1 && std::string(policy) == "no_buffer") continue;
          for (const bool preempted : {false, true}) {
            for (const bool overlap : {false, true}) {
              for (const bool fp8_kv : {false, true}) {
                settings.push_back(
                    {policy, chunk_tokens, batch, page_size, preempted, overlap, fp8_kv});
                if (overlap == (chunk_tokens == 192)) continue;
                for (const int32_t draft_tokens : {2, 9}) {
                  for (const bool head_drafts : {false, true}) {
                    for (const bool tree_drafts : {false, true}) {
                      if (tree_drafts && draft_tokens == 2) continue;  // one draft branches nowhere
                      settings.push_back(settings.back());
                      settings.back().draft_tokens = draft_tokens;
                      settings.back().head_drafts = head_drafts;
                      settings.back().tree_drafts = tree_drafts;
                    }
                  }
                }
                settings.push_back(settings.back());
                settings.back().draft_tokens = 5;
                settings.back().head_drafts = false;
                settings.back().tree_drafts = false;
                settings.back().own_drafts = true;
              }
            }
          }
        }
      }
    }
  }
  for (const bool preempted : {false, true}) {  // the scheduler alone knows of it
    settings.push_back({"multi", 512, 8, 16, preempted, true, false, /*paced=*/true});
  }
  return settings;
}

// The value that a setting has on each axis of the matrix.
std::array<int64_t, 12> values_of(const CacheSetting& setting) {
  return {static_cast<int64_t>(setting.policy.size()),  // all different
          setting.chunk_tokens,
          setting.batch,
          setting.page_size,
          setting.preempted,
          setting.overlap,
          setting.fp8_kv,
          setting.paced,
          setting.draft_tokens,
          setting.head_drafts,
          setting.tree_drafts,
          setting.own_drafts};
}

// So few settings that still any two values of any two axes meet in one of them: always the setting
// in which the most pairs meet that have not met yet.
std::vector<CacheSetting> covering(const std::vector<CacheSetting>& all) {
  const auto pairs_of = [](const CacheSetting& setting) {
    const auto values = values_of(setting);
    std::vector<std::array<int64_t, 4>> pairs;
    for (size_t a = 0; a < values.size(); ++a) {
      for (size_t b = a + 1; b < values.size(); ++b) {
        pairs.push_back({static_cast<int64_t>(a), values[a], static_cast<int64_t>(b), values[b]});
      }
    }
    return pairs;
  };
  std::set<std::array<int64_t, 4>> left;
  for (const CacheSetting& setting : all) {
    for (const auto& pair : pairs_of(setting)) left.insert(pair);
  }
  std::vector<CacheSetting> chosen;
  while (!left.empty()) {
    const auto gain = [&](const CacheSetting& setting) {
      const auto pairs = pairs_of(setting);
      return std::count_if(pairs.begin(), pairs.end(),
                           [&](const auto& pair) { return left.count(pair) != 0; });
    };
    chosen.push_back(*std::max_element(
        all.begin(), all.end(),
        [&](const CacheSetting& a, const CacheSetting& b) { return gain(a) < gain(b); }));
    for (const auto& pair : pairs_of(chosen.back())) left.erase(pair);
  }
  return chosen;
}

// A covering part with the whole workload and, if everything is wanted, every setting with twenty
// requests. Of those that draft only what their number would double is left to the covering part:
// the format of the pages, and the policy that branches from no snapshot while it decodes.
std::vector<CacheSetting> settings_to_run() {
  const std::vector<CacheSetting> all = all_settings();
  std::vector<CacheSetting> chosen = covering(all);
  if (!testing::wants_everything()) return chosen;
  for (const CacheSetting& setting : all) {
    if (setting.draft_tokens > 0 && (setting.fp8_kv || setting.policy == "no_buffer")) continue;
    chosen.push_back(setting);
    chosen.back().extent = Extent::kTwenty;
  }
  return chosen;
}

// A covering part alone with the default kernels: rounded keys and values would turn the last bit
// of a sum into a step of FP8.
std::vector<CacheSetting> settings_in_float32() {
  std::vector<CacheSetting> settings = all_settings();
  std::erase_if(settings, [](const CacheSetting& setting) { return setting.fp8_kv; });
  return covering(settings);
}

std::vector<CacheSetting> on_cuda(std::vector<CacheSetting> settings) {
  for (CacheSetting& setting : settings) setting.device = "cuda";
  return settings;
}

std::string name_of(const ::testing::TestParamInfo<CacheSetting>& setting) {
  return setting.param.name();
}

class CacheExactness : public ::testing::TestWithParam<CacheSetting> {};

TEST_P(CacheExactness, GivesTheBitsOfTheColdRunAlone) {
  const CacheSetting& setting = GetParam();
  HEDDLE_DEVICE_OR_SKIP(setting.device);
  const ExactWorkload& workload =
      exact_workload(setting.device, setting.exact_kernels(), setting.extent);
  auto engine = setting.create(setting.exact_kernels(), workload);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  size_t next = 0;
  int64_t cached_tokens = 0;
  int64_t exact_repeats = 0;
  DraftReport drafts;
  for (const Wave& wave : workload.waves) {
    const std::vector<ExactAnswer> answers = answer_together(**engine, wave, setting.preempted);
    for (size_t i = 0; i < wave.size(); ++i) {
      const ExactAnswer& cold = workload.answers[next++];
      EXPECT_EQ(answers[i].tokens, cold.tokens) << "request " << wave[i].id;
      EXPECT_TRUE(answers[i] == cold)
          << "request " << wave[i].id << " of " << wave[i].prompt.size() << " tokens, "
          << answers[i].cached_tokens
          << " of them cached, differs in its logprobs or its end: " << answers[i].error;
      cached_tokens += answers[i].cached_tokens;
      exact_repeats += answers[i].exact_repeats;
      drafts.accepted_tokens += answers[i].drafts.accepted_tokens;
      drafts.rejected_tokens += answers[i].drafts.rejected_tokens;
    }
  }
  const auto metrics = testing::parse_exposition((*engine)->metrics_text());
  const double gave_way = metrics.value("heddle_preemptions_total");
  RecordProperty("preemptions", static_cast<int>(gave_way));
  if (setting.preempted) {
    EXPECT_GT(gave_way, 0);
  }
  const double mixed_steps = metrics.value("heddle_step_seconds_count", {"mixed"});
  RecordProperty("mixed_steps", static_cast<int>(mixed_steps));
  if (setting.paced) {
    EXPECT_GT(mixed_steps, 0) << "how many follows the time of steps";
  }
  const int64_t percent = cached_tokens * 100 / workload.prompt_tokens;
  RecordProperty("cached_percent", static_cast<int>(percent));
  RecordProperty("exact_repeats", static_cast<int>(exact_repeats));
  EXPECT_GE(percent, setting.least_reuse_percent());
  if (setting.policy == "off") {
    EXPECT_EQ(cached_tokens, 0);
  }
  if (setting.draft_tokens > 0) {
    EXPECT_GT(drafts.accepted_tokens, setting.is_whole() ? 50 : 10);
    EXPECT_GT(drafts.rejected_tokens, setting.is_whole() ? 50 : 10);
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, CacheExactness, ::testing::ValuesIn(settings_to_run()), name_of);
INSTANTIATE_TEST_SUITE_P(Cuda, CacheExactness, ::testing::ValuesIn(on_cuda(settings_to_run())),
                         name_of);

// Whether logprobs of one token of two answers are those of the same distribution, but for the
// order in which the default kernels sum.
bool is_close(const ExactAnswer& a, const ExactAnswer& b, size_t token) {
  constexpr float kTolerance = 1e-3f;
  std::map<uint32_t, float> of_a;
  const size_t begin = token * ExactAnswer::kWordsPerToken;
  const auto logprob = [begin](const ExactAnswer& answer, size_t alternative) {
    return std::bit_cast<float>(answer.bits[begin + 2 * alternative + 1]);
  };
  for (size_t i = 1; i <= testing::kTopLogprobs; ++i) {
    of_a[a.bits[begin + 2 * i]] = logprob(a, i);
  }
  const float last = logprob(a, testing::kTopLogprobs);  // less likely ones are not reported
  for (size_t i = 1; i <= testing::kTopLogprobs; ++i) {
    const auto known = of_a.find(b.bits[begin + 2 * i]);
    const float expected = known == of_a.end() ? last : known->second;
    if (std::abs(logprob(b, i) - expected) > kTolerance) return false;
  }
  return true;
}

class FastKernels : public ::testing::TestWithParam<CacheSetting> {};

TEST_P(FastKernels, GiveTheTokensOfTheColdRunAloneButForNearTies) {
  const CacheSetting& setting = GetParam();
  HEDDLE_DEVICE_OR_SKIP(setting.device);
  const ExactWorkload& workload = exact_workload(setting.device, Kernels::kFast);
  auto engine = setting.create(Kernels::kFast, workload);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  size_t next = 0;
  int64_t cached_tokens = 0;
  int near_ties = 0;
  for (const Wave& wave : workload.waves) {
    const std::vector<ExactAnswer> answers = answer_together(**engine, wave, setting.preempted);
    for (size_t i = 0; i < wave.size(); ++i) {
      const ExactAnswer& cold = workload.answers[next++];
      SCOPED_TRACE(fmt::format("request {}", wave[i].id));
      cached_tokens += answers[i].cached_tokens;
      const auto [here, there] = std::ranges::mismatch(answers[i].tokens, cold.tokens);
      const auto same = static_cast<size_t>(here - answers[i].tokens.begin());
      for (size_t token = 0; token < same; ++token) {
        EXPECT_TRUE(is_close(answers[i], cold, token)) << "token " << token;
      }
      if (here == answers[i].tokens.end() && there == cold.tokens.end()) continue;
      ++near_ties;  // the same distribution, and another token drawn from it
      ASSERT_TRUE(here != answers[i].tokens.end() && there != cold.tokens.end())
          << answers[i].error;
      EXPECT_TRUE(is_close(answers[i], cold, same)) << "token " << same;
    }
  }
  RecordProperty("near_ties", near_ties);
  EXPECT_LE(near_ties, 2) << "of " << next << " requests";
  EXPECT_GE(cached_tokens * 100 / workload.prompt_tokens, setting.least_reuse_percent());
}

INSTANTIATE_TEST_SUITE_P(Cpu, FastKernels, ::testing::ValuesIn(settings_in_float32()), name_of);
INSTANTIATE_TEST_SUITE_P(Cuda, FastKernels, ::testing::ValuesIn(on_cuda(settings_in_float32())),
                         name_of);

// The workload itself: as many requests as it should have, answered.
TEST(CacheExactnessWorkload, IsWhatItSays) {
  const ExactWorkload& workload = exact_workload("cpu", Kernels::kExact);
  size_t num_requests = 0;
  for (const Wave& wave : workload.waves) num_requests += wave.size();
  EXPECT_GE(num_requests, 60u);
  ASSERT_EQ(workload.answers.size(), num_requests);
  for (const ExactAnswer& answer : workload.answers) {
    EXPECT_TRUE(answer.error.empty()) << answer.error;
    EXPECT_GE(answer.tokens.size(), 1u);
    EXPECT_EQ(answer.bits.size(), answer.tokens.size() * ExactAnswer::kWordsPerToken);
  }
  EXPECT_EQ(exact_workload("cpu", Kernels::kExact, Extent::kTwenty).answers.size(), 20u);
  EXPECT_NE(exact_workload("cpu", Kernels::kExactFp8).answers, workload.answers)
      << "is it rounded?";
}

}  // namespace
}  // namespace heddle
