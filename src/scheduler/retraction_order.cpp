// SPDX-License-Identifier: Apache-2.0
#include "scheduler/retraction_order.h"

#include <algorithm>
#include <tuple>

#include "core/check.h"

namespace heddle::scheduler {

namespace {

auto reference_key(const RetractionCandidate& candidate) {
  return std::tuple(candidate.output_tokens, -candidate.prompt_tokens, -candidate.arrival);
}

auto our_key(const RetractionCandidate& candidate) {
  return std::tuple(candidate.num_retractions >= kMaxRetractions, candidate.urgency,
                    candidate.num_retractions, reference_key(candidate));
}

}  // namespace

std::optional<int32_t> choose_retraction(std::span<const RetractionCandidate> running,
                                         RetractionRule rule) {
  if (running.size() < 2) return std::nullopt;
  const auto found =
      std::min_element(running.begin(), running.end(), [rule](const auto& a, const auto& b) {
        return rule == RetractionRule::kOurs ? our_key(a) < our_key(b)
                                             : reference_key(a) < reference_key(b);
      });
  return static_cast<int32_t>(found - running.begin());
}

}  // namespace heddle::scheduler
