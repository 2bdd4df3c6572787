// SPDX-License-Identifier: Apache-2.0
// Which network drafts beside a model: the one that was asked for, or, with DraftAlgorithm::kAuto,
// the prediction head of the checkpoint where there is one and nothing that was asked for rules it
// out. A network that was asked for by name and cannot draft is an error that names it; one that
// the runner would choose by itself is left out, with a reason for the log.
//
// Threading: pure functions.
#pragma once

#include <memory>
#include <string>

#include <heddle/options.h>

#include "checkpoint/model_config.h"
#include "models/drafts/draft_model.h"

namespace heddle::runner {

struct ChosenDrafts {
  DraftAlgorithm algorithm = DraftAlgorithm::kNone;  // not kAuto
  std::unique_ptr<const models::DraftModel> model;   // null: no network beside the model drafts
  std::string reason;  // why nothing drafts, where the choice was the runner's
};

// Errors: only of what was asked for by name.
Result<ChosenDrafts> choose_drafts(const EngineOptions& options,
                                   const checkpoint::ModelConfig& config);

}  // namespace heddle::runner
