// SPDX-License-Identifier: Apache-2.0
// Chooses the draft network: the one that was asked for or, with DraftAlgorithm::kAuto, the
// prediction head of the checkpoint, if there is one and no requested option excludes it. If a
// network that the user named cannot draft, that is an error that names it. A network chosen by the
// runner is left out instead, with a reason for the log.
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
  DraftAlgorithm algorithm = DraftAlgorithm::kNone;  // never kAuto
  std::unique_ptr<const models::DraftModel> model;   // the draft network; null: there is none
  std::string reason;  // why nothing drafts, if the runner decided that
};

// Returns an error only if the user named an algorithm; kAuto falls back to kNone.
Result<ChosenDrafts> choose_drafts(const EngineOptions& options,
                                   const checkpoint::ModelConfig& config);

}  // namespace heddle::runner
