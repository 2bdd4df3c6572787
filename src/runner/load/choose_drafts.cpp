// SPDX-License-Identifier: Apache-2.0
#include "runner/load/choose_drafts.h"

#include <utility>

#include <fmt/format.h>

#include "models/drafts/eagle.h"
#include "models/drafts/eagle3.h"
#include "models/registry.h"
#include "runner/program/model_constants.h"

namespace heddle::runner {

namespace {

ChosenDrafts none(std::string reason) {
  return {.algorithm = DraftAlgorithm::kNone, .model = nullptr, .reason = std::move(reason)};
}

ChosenDrafts choose_head(const EngineOptions& options, const checkpoint::ModelConfig& config) {
  if (options.load_format == LoadFormat::kDummy)
    return none("random weights draft nothing that holds");
  if (options.cache.enabled && options.cache.state_dtype != StateDtype::kFloat32) {
    return none(fmt::format("it needs kept states in float32; state_dtype is \"{}\"",
                            to_string(options.cache.state_dtype)));
  }
  auto head = models::create_prediction_head(config);
  if (!head.ok()) return none(head.status().message());
  const auto source = open_weights(options.model_dir, /*dummy_weights=*/false);
  if (!source.ok()) return none(source.status().message());
  if (!models::has_weights_of(**head, **source))
    return none("the checkpoint has no prediction head");
  return {.algorithm = DraftAlgorithm::kMtp, .model = std::move(*head), .reason = {}};
}

}  // namespace

Result<ChosenDrafts> choose_drafts(const EngineOptions& options,
                                   const checkpoint::ModelConfig& config) {
  ChosenDrafts chosen;
  chosen.algorithm = options.speculative.algorithm;
  const bool by_texts =
      chosen.algorithm == DraftAlgorithm::kNone || chosen.algorithm == DraftAlgorithm::kNgram;
  if (options.num_ranks > 1 && !by_texts) {
    if (chosen.algorithm == DraftAlgorithm::kAuto) {
      return none("ranks share no network that drafts");
    }
    return unimplemented(
        fmt::format("speculative_algorithm \"{}\": {} ranks share no network that drafts yet; "
                    "legal: auto, none, ngram",
                    to_string(chosen.algorithm), options.num_ranks));
  }
  switch (chosen.algorithm) {
    case DraftAlgorithm::kNone:
    case DraftAlgorithm::kNgram:
    case DraftAlgorithm::kStandalone:
      break;
    case DraftAlgorithm::kAuto:
      return choose_head(options, config);
    case DraftAlgorithm::kMtp: {
      HEDDLE_ASSIGN_OR_RETURN(chosen.model, models::create_prediction_head(config));
      break;
    }
    case DraftAlgorithm::kEagle: {
      HEDDLE_ASSIGN_OR_RETURN(chosen.model,
                              models::load_eagle(options.speculative.draft_model_dir, config));
      break;
    }
    case DraftAlgorithm::kEagle3: {
      HEDDLE_ASSIGN_OR_RETURN(chosen.model,
                              models::load_eagle3(options.speculative.draft_model_dir, config));
      break;
    }
  }
  return chosen;
}

}  // namespace heddle::runner
