// SPDX-License-Identifier: Apache-2.0
#include "integration/knowing_drafter.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_loop.h"
#include "runner/load/model_runner.h"

namespace heddle::testing {

namespace {

constexpr int64_t kGuesses = 300;  // tokens that every model here has

}  // namespace

void KnowingDrafter::observe(const request::Sequence&) {}

void KnowingDrafter::forget(const request::Sequence&) {}

void KnowingDrafter::propose(const request::Sequence& sequence, int64_t most,
                             speculative::Drafts& drafts) {
  const auto number = static_cast<size_t>(std::stoul(sequence.request.id));
  const std::vector<TokenId>& answer = workload_.answers.at(number).tokens;
  const auto begin = static_cast<size_t>(sequence.num_output_tokens());
  const int64_t count = below(most + 1);
  if (trees_) {
    propose_tree(std::span(answer).subspan(std::min(begin, answer.size())), count, drafts);
    return;
  }
  for (size_t i = begin; i < begin + static_cast<size_t>(count); ++i) {
    drafts.tokens.push_back(i < answer.size() ? answer[i] : static_cast<TokenId>(below(kGuesses)));
  }
  if (count > 0 && below(2) == 0) {
    TokenId& wrong = drafts.tokens[static_cast<size_t>(below(count))];
    wrong = (wrong + 1) % static_cast<TokenId>(kGuesses);
  }
}

// Most nodes follow the answer as far as it is in the tree, half of those go on with it.
void KnowingDrafter::propose_tree(std::span<const TokenId> answer, int64_t count,
                                  speculative::Drafts& drafts) {
  int64_t held = 0;        // of the answer, in the tree
  int32_t last_held = -1;  // the draft with the last of these
  for (int64_t i = 0; i < count; ++i) {
    const bool follows = below(3) > 0;
    const auto parent = follows ? last_held : static_cast<int32_t>(below(i + 1) - 1);
    const bool goes_on = follows && held < std::ssize(answer) && below(2) == 0;
    drafts.parents.push_back(parent);
    drafts.tokens.push_back(goes_on ? answer[static_cast<size_t>(held)]
                                    : static_cast<TokenId>(below(kGuesses)));
    if (!goes_on) continue;
    ++held;
    last_held = static_cast<int32_t>(i);
  }
}

Result<std::unique_ptr<Engine>> create_drafting_engine(const EngineOptions& options,
                                                       const ExactWorkload& workload, bool trees) {
  HEDDLE_ASSIGN_OR_RETURN(runner::LoadedModel model, runner::load_model(options));
  engine::EngineParts parts;
  parts.runner = std::move(model.runner);
  parts.info = std::move(model.info);
  parts.plan = model.plan;
  parts.options = std::move(model.options);
  parts.drafter = std::make_unique<KnowingDrafter>(workload, trees);
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> loop,
                          engine::EngineLoop::create(std::move(parts)));
  return loop;
}

}  // namespace heddle::testing
