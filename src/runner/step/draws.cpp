// SPDX-License-Identifier: Apache-2.0
#include "runner/step/draws.h"

#include <algorithm>

namespace heddle::runner {

using Part = StepSequence::Part;

Draws::Draws(ForwardPass& pass, LogitRows logit_rows, double simulated_acceptance)
    : pass_(&pass), logit_rows_(logit_rows), host_(pass.config().vocab_size) {
  if (simulated_acceptance > 0) simulated_.emplace(simulated_acceptance);
}

Status Draws::prepare(int64_t num_batch_slots) {
  const bool host_reads = pass_->device().kind() == device::DeviceKind::kCpu;
  if (host_reads || logit_rows_ == LogitRows::kAll) return {};
  HEDDLE_ASSIGN_OR_RETURN(device_, DeviceDraws::create(*pass_, num_batch_slots));
  return {};
}

Status Draws::draw(RunningStep& step, Results& results) {
  results.settlement.begin();
  for (StepSequence& sequence : step.sequences) {
    HEDDLE_RETURN_IF_ERROR(draw(step, sequence, results));
  }
  return {};
}

Status Draws::draw(RunningStep& step, StepSequence& sequence, Results& results) {
  const request::PlannedSequence& planned = *sequence.planned;
  const bool was_fed_ahead = sequence.fed_from >= 0;
  const bool has_ended = sequence.part == Part::kSkipped ||
                         (was_fed_ahead && device_->has_ended(step, sequence.logit_row));
  if (planned.sample && has_ended) {
    results.output.tokens.push_back({.sequence_id = planned.sequence_id, .skipped = true});
    return {};
  }
  if (sequence.is_computed()) {
    results.slots.computed(
        planned, step.plan->new_tokens(planned),
        was_fed_ahead ? results.tokens.known(planned.batch_slot) : sequence.fed_token);
  }
  if (!planned.scored.empty()) score(step, sequence, results.output);
  if (!planned.sample) return {};
  HEDDLE_RETURN_IF_ERROR(draw_span(step, sequence, results));
  results.kept.drop(planned.batch_slot);
  const request::SampledToken& last = results.output.tokens.back();
  const bool ends =
      !last.error.ok() || std::ranges::binary_search(sequence.slot->ending_tokens, last.token);
  results.tokens.drew(planned.batch_slot, step.number,
                      last.error.ok() ? last.token : sampling::kNoToken, ends);
  if (step.end == StepEnd::kDeviceSettles) {
    device_->expect_missing(planned.drafts.count - (sequence.path.count - 1));
  } else {
    results.settlement.add(*step.plan, sequence, path_);
  }
  return {};
}

void Draws::score(const RunningStep& step, const StepSequence& sequence,
                  request::StepOutput& output) {
  const request::PlannedSequence& planned = *sequence.planned;
  const size_t first = output.scored.size();  // index of the first of its scored tokens
  for (int32_t i = 0; i < planned.scored.count; ++i) {
    request::ScoredToken& scored = output.scored.emplace_back();
    scored.sequence_id = planned.sequence_id;
    if (device_ != nullptr) {
      device_->score(step, first + static_cast<size_t>(i), scored);
    } else {
      host_.score(sequence, sequence.scored_position(i), step.plan->scored_token(planned, i),
                  pass_->logits().row<float>(sequence.scored_row + i), scored);
    }
  }
}

// Draws tokens along the path of drafts as long as they are accepted.
Status Draws::draw_span(RunningStep& step, StepSequence& sequence, Results& results) {
  const request::PlannedSequence& planned = *sequence.planned;
  std::vector<request::SampledToken>& tokens = results.output.tokens;
  HEDDLE_RETURN_IF_ERROR(tree_.assign(results.kept.tokens(*step.plan, planned),
                                      step.plan->parents_of_drafts(planned)));
  sequence.drawn.begin = static_cast<int32_t>(tokens.size());
  const auto draw_at = [&](int32_t node) -> std::optional<TokenId> {
    if (node > 0) results.slots.accepted(planned, tree_.token(node));
    request::SampledToken& sampled = tokens.emplace_back();
    sampled.sequence_id = planned.sequence_id;
    draw_behind(step, sequence, node, sampled);
    if (simulated_) simulate(sequence, node, sampled);
    const bool ends = !sampled.error.ok() ||
                      std::ranges::binary_search(sequence.slot->ending_tokens, sampled.token);
    return ends ? std::optional<TokenId>() : sampled.token;
  };
  tree_.walk(draw_at, path_);
  sequence.drawn.count = static_cast<int32_t>(tokens.size()) - sequence.drawn.begin;
  sequence.path = {.begin = static_cast<int32_t>(step.paths.size()),
                   .count = static_cast<int32_t>(path_.size())};
  step.paths.insert(step.paths.end(), path_.begin(), path_.end());
  return {};
}

void Draws::draw_behind(const RunningStep& step, const StepSequence& sequence, int32_t node,
                        request::SampledToken& sampled) {
  const int32_t row = sequence.logit_row + node;
  if (sequence.is_computed() && device_ != nullptr) {
    device_->token(step, row, sampled);
    return;
  }
  const MutableTensorView logits =
      sequence.part == Part::kHidden ? pass_->head_logits() : pass_->logits();
  const int64_t position = sequence.draw_position() + tree_.depths()[static_cast<size_t>(node)];
  host_.draw(sequence, position, step.plan->mask_of(*sequence.planned, node),
             logits.row<float>(row), sampled);
}

// Replaces the token drawn after a node: by the draft there if it should be accepted, else by
// another token.
void Draws::simulate(const StepSequence& sequence, int32_t node,
                     request::SampledToken& sampled) const {
  const int32_t next = tree_.next_token()[static_cast<size_t>(node)];
  if (next == speculative::DraftTree::kNone) return;
  const TokenId draft = tree_.token(next);
  if (simulated_->holds(sequence.planned->sequence_id, sequence.draw_position(), node)) {
    sampled.token = draft;
    sampled.error = {};
  } else if (sampled.token == draft) {
    sampled.token = draft == 0 ? 1 : draft - 1;
  }
}

}  // namespace heddle::runner
