// SPDX-License-Identifier: Apache-2.0
#include "scheduler/prefill_budget.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace heddle::scheduler {

namespace {

// SGLang's values, found with public chat traffic; kept so that both schedule alike.
constexpr double kInitial = 0.7;
constexpr double kMinimumFactor = 0.14;
constexpr double kDecaySteps = 600;
// Output tokens per request for which the ratio leaves room after a retraction.
constexpr int64_t kRetractionSteps = 20;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

int64_t kept_output(const PrefillDemand& demand) {
  return std::min(demand.new_tokens_left, kNewTokensClip);
}

}  // namespace

PrefillLimits PrefillLimits::reference() {
  return {.page_size = 1,
          .chunk_grid = 1,
          .max_prefill_tokens = 16384,
          .chunk_tokens = 8192,
          .pages_at_admission = false,
          .round_compute = true};
}

PrefillBudget::PrefillBudget(const PrefillLimits& limits, const PrefillResources& resources)
    : limits_(limits),
      batch_slots_(resources.free_batch_slots),
      state_slots_(resources.free_state_slots),
      scored_rows_(resources.scored_rows) {
  HEDDLE_CHECK_GE(limits.page_size, 1);
  HEDDLE_CHECK_GE(limits.chunk_grid, 1);
  HEDDLE_CHECK_GE(limits.chunk_tokens, 0);
  limits_.chunk_grid = std::lcm(limits.chunk_grid, int64_t{limits.page_size});
  now_ = static_cast<double>(resources.free_tokens - resources.mixed_tokens);
  total_ = now_ - resources.reserved_tokens;
  input_ = limits.max_prefill_tokens - resources.mixed_tokens;
  chunk_ = limits.chunk_tokens == 0 ? kUnlimited : limits.chunk_tokens - resources.mixed_tokens;
}

int64_t PrefillBudget::pages_of(int64_t tokens) const {
  return (tokens + limits_.page_size - 1) / limits_.page_size * limits_.page_size;
}

int64_t PrefillBudget::compute_of(int64_t tokens) const {
  return limits_.round_compute ? pages_of(tokens) : tokens;
}

// The tokens of a chunk if at most `available` may be computed: all pending ones, or as many as end
// on the grid.
int64_t PrefillBudget::cut(const PrefillDemand& demand, int64_t available) const {
  available = std::min({available, demand.most_tokens, demand.most_scored_tokens});
  if (available <= 0) return 0;
  if (compute_of(demand.pending_tokens) <= available) return demand.pending_tokens;
  const int64_t end = demand.context_tokens + available;
  const int64_t on_grid = end - end % limits_.chunk_grid - demand.context_tokens;
  if (on_grid > 0) return std::min(on_grid, demand.pending_tokens);
  return num_admitted_ == 0 ? std::min(available, demand.pending_tokens) : 0;
}

PrefillGrant PrefillBudget::resume(const PrefillDemand& demand) {
  HEDDLE_CHECK_GE(demand.pending_tokens, 1);
  int64_t available = chunk_;
  if (demand.held_tokens < demand.pending_tokens && total_ > 0) {
    available = std::min(available, static_cast<int64_t>(std::floor(total_)));
  }
  if (available == 0) available = chunk_;  // the memory estimate allows no token, so it is ignored
  const int64_t tokens = cut(demand, available);
  if (tokens == 0) return {.verdict = PrefillVerdict::kBudget};
  const PrefillGrant grant{.tokens = tokens, .completes = tokens == demand.pending_tokens};
  take(demand, grant);
  return grant;
}

PrefillGrant PrefillBudget::check(const PrefillDemand& demand) const {
  HEDDLE_CHECK_GE(demand.pending_tokens, 1);
  if (batch_slots_ <= 0) return {.verdict = PrefillVerdict::kNoBatchSlot};
  if (state_slots_ <= 0) return {.verdict = PrefillVerdict::kNoState};
  const int64_t needed = demand.pending_tokens + kept_output(demand) + limits_.page_size;
  if (static_cast<double>(needed) >= total_) return {.verdict = PrefillVerdict::kNoMemory};
  if (num_admitted_ > 0 && compute_of(demand.pending_tokens) >= input_) {
    return {.verdict = PrefillVerdict::kBudget};
  }
  const int64_t tokens = cut(demand, chunk_);
  const bool completes = tokens == demand.pending_tokens;
  if (tokens == 0 || (cut_ && !completes)) return {.verdict = PrefillVerdict::kBudget};
  return {.tokens = tokens, .completes = completes};
}

void PrefillBudget::admit(const PrefillDemand& demand, const PrefillGrant& grant) {
  HEDDLE_CHECK(grant.verdict == PrefillVerdict::kAdmit);
  --batch_slots_;
  --state_slots_;
  take(demand, grant);
}

void PrefillBudget::take(const PrefillDemand& demand, const PrefillGrant& grant) {
  HEDDLE_CHECK(1 <= grant.tokens && grant.tokens <= demand.pending_tokens);
  const int64_t stored = limits_.pages_at_admission ? demand.pending_tokens : grant.tokens;
  const int64_t unpaged = std::max<int64_t>(stored - demand.held_tokens, 0);
  const int64_t memory = unpaged > 0 ? pages_of(unpaged) + limits_.page_size : 0;
  const int64_t kept = grant.completes ? kept_output(demand) : 0;
  total_ -= static_cast<double>(memory + kept);
  now_ -= static_cast<double>(memory);
  input_ -= compute_of(grant.tokens);
  if (chunk_ != kUnlimited) chunk_ -= compute_of(grant.tokens);
  ++num_admitted_;
  cut_ = cut_ || (!grant.completes && demand.most_scored_tokens >= demand.pending_tokens);
}

void PrefillBudget::pin(int64_t tokens) {
  total_ -= static_cast<double>(tokens);
  now_ -= static_cast<double>(tokens);
}

void PrefillBudget::take_scored_rows(int64_t count) {
  HEDDLE_CHECK_LE(count, scored_rows_);
  scored_rows_ -= count;
}

PrefillVerdict PrefillBudget::stop() const {
  if (total_ <= 0 || now_ <= 0) return PrefillVerdict::kNoMemory;
  if (input_ <= 0 || chunk_ <= 0) return PrefillVerdict::kBudget;
  return PrefillVerdict::kAdmit;
}

NewTokenRatio::NewTokenRatio(double conservativeness)
    : initial_(std::min(kInitial * conservativeness, 1.0)),
      minimum_(std::min(kMinimumFactor * initial_, 1.0)),
      step_((initial_ - minimum_) / kDecaySteps),
      value_(initial_) {
  HEDDLE_CHECK_LT(0, conservativeness);
}

void NewTokenRatio::decay() { value_ = std::max(value_ - step_, minimum_); }

double NewTokenRatio::estimate(int64_t sum_output_tokens, int64_t sum_max_new_tokens,
                               int64_t num_running) {
  HEDDLE_CHECK_GE(num_running, 1);
  const auto soon = static_cast<double>(sum_output_tokens + kRetractionSteps * num_running);
  return std::min(1.0, soon / static_cast<double>(sum_max_new_tokens + 1));
}

void NewTokenRatio::after_retraction(int64_t sum_output_tokens, int64_t sum_max_new_tokens,
                                     int64_t num_running) {
  value_ = std::max(value_, estimate(sum_output_tokens, sum_max_new_tokens, num_running));
}

}  // namespace heddle::scheduler
