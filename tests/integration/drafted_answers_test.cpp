// SPDX-License-Identifier: Apache-2.0
// The recorded questions, answered greedily and drawn with every drafter that the small model has:
// in exact mode the answers are those of plain decoding, token for token and with the bits of their
// logprobs. Every run asks some questions of each set, of each drafter in one way to serve them;
// HEDDLE_TEST_FULL=1 asks all 590, draws 200 of them again, and serves them in four ways.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "cache_exactness_workload.h"
#include "on_device.h"
#include "server/call/text_codec.h"
#include "support/exposition.h"
#include "support/test_data.h"
#include "tokenizer/tokenizer.h"

namespace heddle {
namespace {

using testing::answer_together;
using testing::ExactAnswer;
using testing::Wave;

struct DraftWay {
  const char* name;
  DraftAlgorithm algorithm;
  int32_t num_draft_tokens;
  int32_t num_steps = 0;
  int32_t eagle_topk = 1;
};

constexpr std::array kDraftWays = {
    DraftWay{"Ngram", DraftAlgorithm::kNgram, 8},
    DraftWay{"NgramTree", DraftAlgorithm::kNgram, 8, 0, 3},
    DraftWay{"Mtp1", DraftAlgorithm::kMtp, 2},
    DraftWay{"Mtp2", DraftAlgorithm::kMtp, 3},
    DraftWay{"Mtp3", DraftAlgorithm::kMtp, 4},
    DraftWay{"Mtp4", DraftAlgorithm::kMtp, 5},
    DraftWay{"MtpTree3x4x8", DraftAlgorithm::kMtp, 8, 3, 4},
    DraftWay{"Eagle3Chain3", DraftAlgorithm::kEagle3, 4},
    DraftWay{"Eagle3Chain5", DraftAlgorithm::kEagle3, 6},
    DraftWay{"Eagle3Tree3x4x8", DraftAlgorithm::kEagle3, 8, 3, 4},
    DraftWay{"Standalone", DraftAlgorithm::kStandalone, 5},
};

struct ServeWay {
  const char* name;
  const char* policy;  // of the state snapshots; "off": no cache
  int64_t chunk_tokens;
  int32_t batch;
  int32_t page_size;
  bool preempted = false;
  bool overlap = true;
};

constexpr std::array kServeWays = {
    ServeWay{"Uncached", "off", 512, 8, 16},
    ServeWay{"Preempted", "multi", 64, 32, 1, /*preempted=*/true},
    ServeWay{"OneByOne", "extra_buffer", 192, 1, 16, /*preempted=*/false, /*overlap=*/false},
    ServeWay{"LargePages", "multi", 192, 32, 64},
};

struct DraftedSetting {
  DraftWay drafts;
  ServeWay serve;
  std::string device = "cpu";

  friend std::ostream& operator<<(std::ostream& out, const DraftedSetting& setting) {
    return out << setting.name();
  }

  [[nodiscard]] std::string name() const { return fmt::format("{}{}", drafts.name, serve.name); }
};

EngineOptions plain_options(const std::string& device) {
  EngineOptions options{.model_dir = testing::repository_path("models/heddle-tiny"),
                        .exact = true,
                        .device = device,
                        .num_threads = 2,
                        .max_running_requests = 1,
                        .max_total_tokens = 4096,
                        .max_queued_requests = 1024,
                        .speculative = {.algorithm = DraftAlgorithm::kNone}};
  if (device == "cuda") options.memory_fraction = testing::kShareOfGpu;
  options.cache.enabled = false;
  options.scheduling.overlap = false;
  return options;
}

EngineOptions options_of(const DraftedSetting& setting) {
  EngineOptions options = plain_options(setting.device);
  options.max_running_requests = setting.serve.batch;
  options.chunked_prefill_tokens = setting.serve.chunk_tokens;
  options.page_size = setting.serve.page_size;
  options.max_total_tokens = setting.serve.preempted ? 800 : 32768;
  options.cache.enabled = setting.serve.policy != std::string("off");
  if (options.cache.enabled) {
    options.cache.state_snapshots = parse_snapshot_policy(setting.serve.policy).value();
  }
  options.scheduling.overlap = setting.serve.overlap;
  options.scheduling.enable_priority = setting.serve.preempted;
  options.scheduling.preemption_threshold = 0;
  options.scheduling.preemption_min_run_seconds = 0;
  options.speculative = {.algorithm = setting.drafts.algorithm,
                         .num_draft_tokens = setting.drafts.num_draft_tokens,
                         .num_steps = setting.drafts.num_steps,
                         .eagle_topk = setting.drafts.eagle_topk};
  if (setting.drafts.algorithm == DraftAlgorithm::kEagle3) {
    options.speculative.draft_model_dir = testing::shared_path("models/eagle-tiny").value();
  }
  if (setting.drafts.algorithm == DraftAlgorithm::kStandalone) {
    options.speculative.draft_model_dir = options.model_dir;
  }
  return options;
}

// The questions of one set, as the chat template writes them; some of them, or all.
std::vector<std::vector<TokenId>> questions(const std::string& set,
                                            const server::TextCodec& codec) {
  constexpr size_t kSample = 5;
  const auto all = testing::shared_path(fmt::format("golden-tiny/{}.jsonl", set));
  const bool whole = testing::wants_everything() && all;
  std::ifstream lines(
      whole ? *all
            : testing::repository_path(fmt::format("tests/golden/heddle_tiny/{}.jsonl", set)));
  std::vector<std::vector<TokenId>> questions;
  for (std::string line; (whole || questions.size() < kSample) && std::getline(lines, line);) {
    const auto entry = nlohmann::ordered_json::parse(line);
    const std::string text =
        codec.render_chat(entry.at("messages"), nullptr, true, nlohmann::ordered_json::object())
            .value();
    questions.push_back(codec.encode(text, false).value());
  }
  return questions;
}

// Every question greedily, and again 20 of 59, drawn with other settings; by length.
Wave make_requests() {
  const std::string model_dir = testing::repository_path("models/heddle-tiny");
  const auto tokenizer = tokenizer::load_tokenizer(model_dir).value();
  const auto codec = server::make_model_codec(model_dir, *tokenizer, {}).value();
  Wave wave;
  Wave drawn;
  for (const char* set : {"skill", "math", "recall", "story"}) {
    for (std::vector<TokenId>& question : questions(set, *codec)) {
      Request request{.id = fmt::format("{}", wave.size()), .prompt = std::move(question)};
      request.sampling.temperature = 0;
      request.stop.max_new_tokens = 260;
      request.return_logprobs = true;
      request.top_logprobs = static_cast<int32_t>(testing::kTopLogprobs);
      const size_t number = wave.size();
      wave.push_back(request);
      if (number % 59 % 3 != 0) continue;
      const size_t way = drawn.size();
      request.id = fmt::format("drawn{}", way);
      request.sampling.temperature = std::array{0.3f, 0.7f, 1.0f, 1.2f}[way % 4];
      request.sampling.top_p = std::array{1.0f, 0.8f, 0.95f}[way % 3];
      request.sampling.seed = 1000 + way;
      if (way % 5 == 1) request.sampling.repetition_penalty = 1.2f;
      if (way % 5 == 2) request.sampling.presence_penalty = 0.7f;
      if (way % 5 == 3) request.sampling.frequency_penalty = 0.4f;
      if (way % 7 == 0) request.stop.min_new_tokens = 12;
      drawn.push_back(std::move(request));
    }
  }
  std::ranges::move(drawn, std::back_inserter(wave));
  // The longest last: where some are urgent, it comes first of these and wants most pages.
  std::ranges::stable_sort(wave, {}, [](const Request& request) { return request.prompt.size(); });
  return wave;
}

struct Answered {
  Wave requests;
  std::vector<ExactAnswer> answers;  // by plain decoding, one at a time
};

// Computed once on each device.
const Answered& plain_answers(const std::string& device) {
  static std::map<std::string, Answered> all;
  const auto known = all.find(device);
  if (known != all.end()) return known->second;
  auto engine = Engine::create(plain_options(device));
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  Answered& answered = all[device];
  answered.requests = make_requests();
  answered.answers = answer_together(**engine, answered.requests, /*preempted=*/false);
  return answered;
}

std::vector<DraftedSetting> settings_on(const std::string& device) {
  std::vector<DraftedSetting> settings;
  for (size_t i = 0; i < kDraftWays.size(); ++i) {
    for (size_t k = 0; k < kServeWays.size(); ++k) {
      if (!testing::wants_everything() && k != i % kServeWays.size()) continue;
      settings.push_back({kDraftWays[i], kServeWays[k], device});
    }
  }
  return settings;
}

class DraftedAnswers : public ::testing::TestWithParam<DraftedSetting> {};

TEST_P(DraftedAnswers, AreThoseOfPlainDecoding) {
  const DraftedSetting& setting = GetParam();
  HEDDLE_DEVICE_OR_SKIP(setting.device);
  if (setting.drafts.algorithm == DraftAlgorithm::kEagle3 &&
      !testing::shared_path("models/eagle-tiny")) {
    GTEST_SKIP() << "needs models/eagle-tiny below the folder named by HEDDLE_SHARED";
  }
  const Answered& plain = plain_answers(setting.device);
  auto engine = Engine::create(options_of(setting));
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  const auto answers = answer_together(**engine, plain.requests, setting.serve.preempted);
  DraftReport drafts;
  for (size_t i = 0; i < answers.size(); ++i) {
    SCOPED_TRACE(fmt::format("request {}", plain.requests[i].id));
    EXPECT_EQ(answers[i].tokens, plain.answers[i].tokens);
    EXPECT_TRUE(answers[i] == plain.answers[i])
        << "differs in its logprobs or its end: " << answers[i].error;
    drafts.accepted_tokens += answers[i].drafts.accepted_tokens;
    drafts.rejected_tokens += answers[i].drafts.rejected_tokens;
  }
  EXPECT_GT(drafts.accepted_tokens, 50);
  EXPECT_GT(drafts.rejected_tokens, 50);
  const auto metrics = testing::parse_exposition((*engine)->metrics_text());
  const double preemptions = metrics.value("heddle_preemptions_total");
  RecordProperty("preemptions", static_cast<int>(preemptions));
  EXPECT_TRUE(!setting.serve.preempted || preemptions > 0);
}

std::string setting_name_of(const ::testing::TestParamInfo<DraftedSetting>& setting) {
  return setting.param.name();
}

INSTANTIATE_TEST_SUITE_P(Cpu, DraftedAnswers, ::testing::ValuesIn(settings_on("cpu")),
                         setting_name_of);
INSTANTIATE_TEST_SUITE_P(Cuda, DraftedAnswers, ::testing::ValuesIn(settings_on("cuda")),
                         setting_name_of);

// The requests themselves.
TEST(DraftedAnswersWorkload, HasEverySetAndDrawnOnes) {
  const Wave requests = make_requests();
  const auto drawn = std::ranges::count_if(
      requests, [](const Request& request) { return request.sampling.temperature > 0; });
  if (testing::wants_everything() && testing::shared_path("golden-tiny")) {
    EXPECT_EQ(requests.size(), 790u);
    EXPECT_EQ(drawn, 200);
  } else {
    EXPECT_EQ(requests.size(), 27u);
    EXPECT_EQ(drawn, 7);
  }
}

}  // namespace
}  // namespace heddle
