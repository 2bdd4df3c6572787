// SPDX-License-Identifier: Apache-2.0
// Steps keep as many drafts as a measurement says, whatever the model draws.
#include <future>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <heddle/engine.h>

#include "integration/on_device.h"
#include "support/test_data.h"

namespace heddle {
namespace {

EngineOptions options_of(double simulated_acceptance, const std::string& device = "cpu") {
  return {.model_dir = testing::repository_path("models/heddle-tiny"),
          .load_format = LoadFormat::kDummy,
          .device = device,
          .num_threads = 1,
          .max_total_tokens = 2048,
          .speculative = {.algorithm = DraftAlgorithm::kMtp,
                          .num_draft_tokens = 4,
                          .simulated_acceptance = simulated_acceptance},
          .skip_tokenizer = true};
}

// Of one answer of 400 tokens with three drafts a step.
DraftReport drafts_of(double simulated_acceptance, const std::string& device) {
  auto engine = Engine::create(options_of(simulated_acceptance, device));
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  if (!engine.ok()) return {};
  std::promise<RequestEvent> last;
  Request request{.id = "one", .prompt = {5, 6, 7}};
  request.sampling.temperature = 0;
  request.stop.max_new_tokens = 400;
  request.stop.ignore_eos = true;
  const Status status = (*engine)->submit(std::move(request), [&](const RequestEvent& event) {
    if (event.finish) last.set_value(event);
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  if (!status.ok()) return {};
  const RequestEvent event = last.get_future().get();
  EXPECT_EQ(event.finish->reason, FinishReason::kLength);
  return event.drafts;
}

class SimulatedAcceptanceOn : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Cpu, SimulatedAcceptanceOn, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Cuda, SimulatedAcceptanceOn, ::testing::Values("cuda"));

TEST_P(SimulatedAcceptanceOn, StepsYieldThatManyTokens) {
  HEDDLE_DEVICE_OR_SKIP(std::string(GetParam()));
  for (const double wanted : {1.0, 2.5, 4.0}) {
    SCOPED_TRACE(wanted);
    const DraftReport drafts = drafts_of(wanted, GetParam());
    ASSERT_GT(drafts.verify_steps, 50);
    EXPECT_NEAR(
        1 + static_cast<double>(drafts.accepted_tokens) / static_cast<double>(drafts.verify_steps),
        wanted, 0.15);
  }
}

TEST(SimulatedAcceptanceTest, IsForChainsAndAtLeastTheNextToken) {
  EXPECT_EQ(Engine::create(options_of(0.5)).status().code(), StatusCode::kInvalidArgument);
  EngineOptions tree = options_of(2);
  tree.speculative.num_steps = 3;
  tree.speculative.eagle_topk = 4;
  const Status status = Engine::create(tree).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("simulated_acceptance"), std::string::npos) << status.to_string();
}

}  // namespace
}  // namespace heddle
