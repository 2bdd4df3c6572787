// SPDX-License-Identifier: Apache-2.0
#include "oracle_engine.h"

#include <utility>

#include "scripted_drafter.h"
#include "support/byte_tokenizer.h"

namespace heddle::oracle {

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
    const bool made = scenario.sizes.max_made_drafts > 0;
    if (!made) parts.drafter = std::make_unique<ScriptedDrafter>(scenario);
    parts.options.speculative = {.algorithm = made ? DraftAlgorithm::kMtp : DraftAlgorithm::kNgram,
                                 .num_draft_tokens = static_cast<int32_t>(scenario.max_drafts) + 1};
  }
  parts.clock = &clock;
  parts.drive = engine::Drive::kManual;
  return engine::EngineLoop::create(std::move(parts)).value();
}

}  // namespace heddle::oracle
