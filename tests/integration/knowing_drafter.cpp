// SPDX-License-Identifier: Apache-2.0
#include "integration/knowing_drafter.h"

#include <string>
#include <utility>

#include "engine/engine_loop.h"
#include "runner/model_runner.h"

namespace heddle::testing {

void KnowingDrafter::observe(const request::Sequence&) {}

void KnowingDrafter::forget(const request::Sequence&) {}

void KnowingDrafter::propose(const request::Sequence& sequence, int64_t most,
                             std::vector<TokenId>& drafts) {
  drafts.clear();
  const auto number = static_cast<size_t>(std::stoul(sequence.request.id));
  const std::vector<TokenId>& answer = workload_.answers.at(number).tokens;
  const auto below = [this](int64_t count) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(count));
  };
  const auto begin = static_cast<size_t>(sequence.num_output_tokens());
  const int64_t count = below(most + 1);
  for (size_t i = begin; i < begin + static_cast<size_t>(count); ++i) {
    drafts.push_back(i < answer.size() ? answer[i] : static_cast<TokenId>(below(1000)));
  }
  if (count > 0 && below(2) == 0) {
    TokenId& wrong = drafts[static_cast<size_t>(below(count))];
    wrong = (wrong + 1) % 1000;
  }
}

Result<std::unique_ptr<Engine>> create_drafting_engine(const EngineOptions& options,
                                                       const ExactWorkload& workload) {
  HEDDLE_ASSIGN_OR_RETURN(runner::LoadedModel model, runner::load_model(options));
  engine::EngineParts parts;
  parts.runner = std::move(model.runner);
  parts.info = std::move(model.info);
  parts.plan = model.plan;
  parts.options = std::move(model.options);
  parts.drafter = std::make_unique<KnowingDrafter>(workload);
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> loop,
                          engine::EngineLoop::create(std::move(parts)));
  return loop;
}

}  // namespace heddle::testing
