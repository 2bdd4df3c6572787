// SPDX-License-Identifier: Apache-2.0
#include "runner/step/kept_drafts.h"

#include <fmt/format.h>

namespace heddle::runner {

namespace {

bool are_kept(std::span<const TokenId> drafts) {
  return !drafts.empty() && drafts.front() == request::kKeptDraft;
}

}  // namespace

Status KeptDrafts::check(const request::BatchPlan& plan,
                         const request::PlannedSequence& sequence) const {
  if (!are_kept(plan.drafts(sequence))) return {};
  const Slot& slot = slot_of(sequence);
  const int64_t kept = slot.sequence_id == sequence.sequence_id ? std::ssize(slot.tokens) : 0;
  if (sequence.drafts.count <= kept) return {};
  return invalid_argument(
      fmt::format("verifies {} drafts that were kept, of {}", sequence.drafts.count, kept));
}

std::span<const TokenId> KeptDrafts::tokens(const request::BatchPlan& plan,
                                            const request::PlannedSequence& sequence) const {
  const std::span<const TokenId> drafts = plan.drafts(sequence);
  if (!are_kept(drafts)) return drafts;
  return std::span(slot_of(sequence).tokens).first(drafts.size());
}

std::span<const int32_t> KeptDrafts::places(const request::BatchPlan& plan,
                                            const request::PlannedSequence& sequence) const {
  const std::span<const TokenId> drafts = plan.drafts(sequence);
  const std::vector<int32_t>& places = slot_of(sequence).places;
  if (!are_kept(drafts) || places.empty()) return {};
  return std::span(places).first(drafts.size());
}

}  // namespace heddle::runner
