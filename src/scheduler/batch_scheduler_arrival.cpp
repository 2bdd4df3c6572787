// SPDX-License-Identifier: Apache-2.0
// Who may join the queue.
#include <algorithm>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "core/check.h"
#include "request/refusal.h"
#include "scheduler/batch_scheduler.h"
#include "scheduler/priorities.h"

namespace heddle::scheduler {

using request::Sequence;
using request::SequenceStatus;

Status BatchScheduler::check_fits(const Sequence& sequence) const {
  const int64_t needed = sequence.max_stored_tokens();
  const int64_t available = options_.cache.num_pages * options_.cache.page_size;
  if (needed <= available) return {};
  return invalid_argument(fmt::format(
      "the request needs room for {} tokens ({} in the prompt, max_new_tokens = {}), but the KV "
      "pool holds {}; shorten it, or start the engine with more memory or a larger "
      "max_total_tokens",
      needed, sequence.num_prompt_tokens, sequence.request.stop.max_new_tokens, available));
}

Status BatchScheduler::check_call(std::span<const Sequence* const> sequences) const {
  const int64_t most = fair_.max_at_once(options_.max_running);
  if (std::ssize(sequences) <= most) return {};
  std::unordered_map<std::string_view, int64_t> count;
  for (const Sequence* sequence : sequences) {
    const std::string_view tenant = sequence->request.tenant;
    if (++count[tenant] <= most) continue;
    return request::refuse(
        request::kAnswersField,
        fmt::format("{} answers at once are more than are taken of one tenant: {}, of which {} may "
                    "wait (tenant_max_queued); send fewer in one call",
                    sequences.size(), most, options_.scheduling.tenant_max_queued));
  }
  return {};
}

// Whether every tenant of the call has room in its share of the queue. By name: a tenant that
// nobody knows yet has no number before it arrives.
Status BatchScheduler::check_tenants(std::span<Sequence* const> sequences) {
  arriving_tenants_.clear();
  for (const Sequence* sequence : sequences) arriving_tenants_.push_back(sequence->request.tenant);
  std::sort(arriving_tenants_.begin(), arriving_tenants_.end());
  for (auto first = arriving_tenants_.begin(); first != arriving_tenants_.end();) {
    const auto end = std::upper_bound(first, arriving_tenants_.end(), *first);
    HEDDLE_RETURN_IF_ERROR(fair_.check_queue(*first, end - first, num_places()));
    first = end;
  }
  return {};
}

Status BatchScheduler::submit_all(std::span<Sequence* const> sequences) {
  const SchedulingOptions& scheduling = options_.scheduling;
  const PriorityRules priorities{.enabled = choice_.by_priority,
                                 .low_values_first = scheduling.low_values_first,
                                 .default_priority = scheduling.default_priority};
  int64_t last_id = last_id_;
  arriving_requests_.clear();
  for (const Sequence* sequence : sequences) {
    HEDDLE_CHECK(sequence->status == SequenceStatus::kNew);
    HEDDLE_CHECK_LT(last_id, sequence->id);
    last_id = sequence->id;
    HEDDLE_RETURN_IF_ERROR(check_fits(*sequence));
    if (sequence->request.priority && !choice_.by_priority &&
        scheduling.reject_priority_when_disabled) {
      return request::refuse(request::kPriorityField,
                             "the request has a priority, but priority scheduling is off");
    }
    arriving_requests_.push_back({.urgency = urgency_of(sequence->request.priority, priorities),
                                  .arrival = sequence->id,
                                  .tokens = sequence->num_tokens()});
  }
  HEDDLE_RETURN_IF_ERROR(check_tenants(sequences));

  queued_requests_.clear();
  for (const Queued& other : waiting_) {
    queued_requests_.push_back({.urgency = other.urgency,
                                .arrival = other.sequence->id,
                                .tokens = other.sequence->num_tokens() - other.matched_tokens,
                                .returned = other.returned});
  }
  QueueLimits limits{.max_requests = options_.max_queued,
                     .num_places = num_places(),
                     .by_priority = choice_.by_priority};
  if (scheduling.max_queued_tokens > 0) limits.max_tokens = scheduling.max_queued_tokens;
  HEDDLE_RETURN_IF_ERROR(enter_queue(arriving_requests_, queued_requests_, limits, chosen_));

  const size_t first_displaced = displaced_.size();
  for (const int32_t index : chosen_) {
    displaced_.push_back(
        {.sequence = waiting_[static_cast<size_t>(index)].sequence, .reason = displaced_error()});
  }
  last_id_ = last_id;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    const int32_t tenant = fair_.tenant(sequence.request.tenant);
    waiting_.push_back({.sequence = &sequence,
                        .tenant = tenant,
                        .urgency = arriving_requests_[i].urgency,
                        .prefilled_at_arrival = prefilled_tokens_});
    fair_.arrive(tenant);
    sequence.status = SequenceStatus::kWaiting;
    if (sequence.request.deadline_seconds > 0) any_time_limits_ = true;
  }
  for (size_t i = first_displaced; i < displaced_.size(); ++i) {
    release(*displaced_[i].sequence, Ending::kAborted);
  }
  return {};
}

// Who arrives at free rows only waits for the next plan, unless somebody was left waiting for room
// before: then there is none. Waiting for the leader of a prefix, or for one's own tenant, is
// another matter.
int64_t BatchScheduler::num_places() const {
  if (paused_) return 0;
  const bool short_of_room = std::any_of(waiting_.begin(), waiting_.end(),
                                         [](const Queued& entry) { return entry.short_of_room; });
  return short_of_room ? 0 : std::ssize(free_rows_);
}

}  // namespace heddle::scheduler
