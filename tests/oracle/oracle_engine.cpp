// SPDX-License-Identifier: Apache-2.0
#include "oracle_engine.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/check.h"
#include "dice.h"
#include "speculative/drafter.h"
#include "support/byte_tokenizer.h"

namespace heddle::oracle {
namespace {

// Knows every answer of a scenario, and tells the truth, lies, or does now this and now that.
// Threading: as Drafter.
class ScriptedDrafter final : public speculative::Drafter {
 public:
  // The scenario outlives it.
  explicit ScriptedDrafter(const Scenario& scenario) : scenario_(scenario), dice_(scenario.seed) {}

  void observe(const request::Sequence& sequence) override;
  void propose(const request::Sequence& sequence, int64_t most,
               speculative::Drafts& drafts) override;
  void forget(const request::Sequence& sequence) override;

 private:
  const Scenario& scenario_;
  Dice dice_;
  std::map<int64_t, int64_t> lengths_;  // by sequence id, as observed last
};

void ScriptedDrafter::observe(const request::Sequence& sequence) {
  lengths_[sequence.id] = sequence.num_tokens();
}

void ScriptedDrafter::forget(const request::Sequence& sequence) { lengths_.erase(sequence.id); }

void ScriptedDrafter::propose(const request::Sequence& sequence, int64_t most,
                              speculative::Drafts& drafts) {
  const auto observed = lengths_.find(sequence.id);
  HEDDLE_CHECK(observed != lengths_.end());
  HEDDLE_CHECK_EQ(observed->second, sequence.num_tokens());
  const auto asked = std::ranges::find_if(scenario_.arrivals, [&](const Arrival& arrival) {
    return arrival.request.id == sequence.request.id;
  });
  HEDDLE_CHECK(asked != scenario_.arrivals.end());
  const auto truth =
      std::span(asked->answer.path).subspan(static_cast<size_t>(sequence.num_output_tokens()));
  const TokenId num_tokens = scenario_.rules.vocabulary.num_tokens;
  std::vector<size_t> depths;  // of each draft
  const int64_t count = dice_.between(0, most);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t parent = scenario_.branches_drafts ? dice_.between(-1, i - 1) : i - 1;
    const size_t depth = parent < 0 ? 0 : depths[static_cast<size_t>(parent)] + 1;
    depths.push_back(depth);
    const TokenId right = depth < truth.size() ? truth[depth] : 0;
    drafts.tokens.push_back(draft_of(scenario_.drafts, right, num_tokens, dice_));
    drafts.parents.push_back(static_cast<int32_t>(parent));
  }
}

}  // namespace

std::unique_ptr<engine::EngineLoop> make_engine(const Scenario& scenario,
                                                std::unique_ptr<runner::Runner> runner,
                                                const Clock& clock) {
  engine::EngineParts parts;
  parts.runner = std::move(runner);
  parts.tokenizer = std::make_unique<testing::ByteTokenizer>();
  parts.info = {.name = "toy",
                .vocab_size = testing::ByteTokenizer::kVocabSize,
                .context_length = scenario.rules.context_length,
                .eos_token_ids = scenario.rules.eos_token_ids};
  parts.options.scheduling = scenario.scheduling;
  parts.options.cache = scenario.cache;
  parts.options.chunked_prefill_tokens = scenario.chunked_prefill_tokens;
  parts.options.max_queued_requests = scenario.max_queued_requests;
  parts.options.random_seed = scenario.seed + 1;
  if (scenario.drafts != Drafts::kNone) {
    const bool made = scenario.limits.max_made_drafts > 0;
    if (!made) parts.drafter = std::make_unique<ScriptedDrafter>(scenario);
    parts.options.speculative = {.algorithm = made ? DraftAlgorithm::kMtp : DraftAlgorithm::kNgram,
                                 .num_draft_tokens = static_cast<int32_t>(scenario.max_drafts) + 1};
  }
  parts.clock = &clock;
  parts.drive = engine::Drive::kManual;
  return engine::EngineLoop::create(std::move(parts)).value();
}

}  // namespace heddle::oracle
