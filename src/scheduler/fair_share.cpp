// SPDX-License-Identifier: Apache-2.0
#include "scheduler/fair_share.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::scheduler {

FairShareOptions FairShareOptions::from(const SchedulingOptions& options) {
  return {.cost_input = options.fair_cost_input,
          .cost_output = options.fair_cost_output,
          .cost_cached = options.fair_cost_cached,
          .max_running = options.tenant_max_running,
          .max_queued = options.tenant_max_queued};
}

FairShare::Tenant& FairShare::at(int32_t tenant) {
  HEDDLE_CHECK(0 <= tenant && static_cast<size_t>(tenant) < tenants_.size());
  Tenant& found = tenants_[static_cast<size_t>(tenant)];
  HEDDLE_CHECK(found.known);
  return found;
}

const FairShare::Tenant& FairShare::at(int32_t tenant) const {
  return const_cast<FairShare*>(this)->at(tenant);
}

int32_t FairShare::tenant(std::string_view name) {
  std::string key(name);
  if (const auto found = numbers_.find(key); found != numbers_.end()) return found->second;
  if (numbers_.size() >= kMaxKnownTenants) forget_one_idle();
  int32_t number = 0;
  if (free_.empty()) {
    number = static_cast<int32_t>(tenants_.size());
    tenants_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  tenants_[static_cast<size_t>(number)] = {.name = key, .known = true};
  numbers_.emplace(std::move(key), number);
  return number;
}

void FairShare::forget_one_idle() {
  int32_t least = -1;
  for (size_t i = 0; i < tenants_.size(); ++i) {
    const Tenant& tenant = tenants_[i];
    const auto number = static_cast<int32_t>(i);
    if (!tenant.known || number == last_active_) continue;
    if (tenant.num_waiting + tenant.num_running > 0) continue;
    if (least < 0 || tenant.counter < tenants_[static_cast<size_t>(least)].counter) least = number;
  }
  if (least < 0)
    return;  // every tenant has requests; the number of requests bounds the number of
             // tenants
  numbers_.erase(at(least).name);
  at(least) = Tenant{};
  free_.push_back(least);
}

int64_t FairShare::num_startable(int64_t num_running, const TenantTerms& terms) const {
  const int32_t most = terms.max_running.value_or(options_.max_running);
  if (most == 0) return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(most - num_running, 0);
}

Status FairShare::check_queue(std::string_view name, int64_t num_arriving, int64_t num_open_slots,
                              const TenantTerms& terms) const {
  const int32_t most = max_queued(terms);
  if (most == 0) return {};
  const auto found = numbers_.find(std::string(name));
  const Tenant unknown{};
  const Tenant& owner = found == numbers_.end() ? unknown : at(found->second);
  int64_t slots = num_open_slots;  // open slots that are left for this tenant
  for (const Tenant& other : tenants_) {
    if (&other == &owner) continue;
    slots -= std::min(other.num_waiting, num_startable(other.num_running, other.terms));
  }
  slots -= owner.num_waiting - owner.num_queued;  // minus the tenant's waiting requests that ran
                                                  // before
  slots = std::clamp<int64_t>(slots, 0, num_startable(owner.num_running, terms));
  if (owner.num_queued + num_arriving <= most + slots) return {};
  const std::string together =
      num_arriving == 1 ? "" : fmt::format(" and {} came at once", num_arriving);
  return resource_exhausted(
      fmt::format("tenant_queue_full: tenant \"{}\" has {} requests waiting{}, tenant_max_queued = "
                  "{}; try again when some of them have run",
                  name, std::max<int64_t>(owner.num_queued - slots, 0), together, most));
}

int64_t FairShare::max_at_once(int64_t num_batch_slots, const TenantTerms& terms) const {
  const int32_t most = max_queued(terms);
  if (most == 0) return std::numeric_limits<int64_t>::max();
  return most + std::min(num_batch_slots, num_startable(0, terms));
}

bool FairShare::may_run(int32_t tenant) const {
  const Tenant& owner = at(tenant);
  return num_startable(owner.num_running, owner.terms) > 0;
}

void FairShare::begin_waiting(int32_t tenant) {
  Tenant& owner = at(tenant);
  if (owner.num_waiting++ > 0) return;
  double floor = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < tenants_.size(); ++i) {
    const Tenant& other = tenants_[i];
    if (static_cast<int32_t>(i) != tenant && other.num_waiting > 0) {
      floor = std::min(floor, other.counter);
    }
  }
  const bool alone = floor == std::numeric_limits<double>::infinity();
  if (alone) floor = last_active_ < 0 ? 0 : at(last_active_).counter;
  owner.counter = std::max(owner.counter, floor);
}

void FairShare::end_waiting(int32_t tenant) {
  Tenant& owner = at(tenant);
  HEDDLE_CHECK_LT(0, owner.num_waiting);
  if (--owner.num_waiting == 0) last_active_ = tenant;
}

void FairShare::arrive(int32_t tenant) {
  begin_waiting(tenant);
  ++at(tenant).num_queued;
}

void FairShare::admit(int32_t tenant, int64_t uncached_tokens, int64_t cached_tokens,
                      bool returned) {
  leave_waiting(tenant, returned);
  Tenant& owner = at(tenant);
  ++owner.num_running;
  if (returned) return;
  owner.counter += admission_cost(uncached_tokens, cached_tokens) / owner.terms.weight;
}

void FairShare::give_back(int32_t tenant) {
  leave_running(tenant);
  begin_waiting(tenant);
}

void FairShare::leave_waiting(int32_t tenant, bool returned) {
  end_waiting(tenant);
  if (returned) return;
  HEDDLE_CHECK_LT(0, at(tenant).num_queued);
  --at(tenant).num_queued;
}

void FairShare::leave_running(int32_t tenant) {
  HEDDLE_CHECK_LT(0, at(tenant).num_running);
  --at(tenant).num_running;
}

void FairShare::charge_output(int32_t tenant, int64_t tokens) {
  Tenant& owner = at(tenant);
  owner.counter += options_.cost_output * static_cast<double>(tokens) / owner.terms.weight;
}

double FairShare::counter(int32_t tenant) const { return at(tenant).counter; }

double FairShare::admission_cost(int64_t uncached_tokens, int64_t cached_tokens) const {
  return options_.cost_input * static_cast<double>(uncached_tokens) +
         options_.cost_cached * static_cast<double>(cached_tokens);
}

void FairShare::begin_order(OrderScratch& scratch) const {
  scratch.counters.clear();
  for (const Tenant& tenant : tenants_) scratch.counters.push_back(tenant.counter);
}

void FairShare::order(std::span<QueueEntry> entries, OrderScratch& scratch) const {
  std::vector<QueueEntry>& sorted = scratch.sorted;
  sorted.assign(entries.begin(), entries.end());
  std::sort(sorted.begin(), sorted.end(), [](const QueueEntry& a, const QueueEntry& b) {
    return std::tuple(a.tenant, a.slack_seconds, a.arrival) <
           std::tuple(b.tenant, b.slack_seconds, b.arrival);
  });

  using Turn = OrderScratch::Turn;
  const auto later = [&sorted](const Turn& a, const Turn& b) {
    return a.counter != b.counter ? a.counter > b.counter
                                  : sorted[a.next].arrival > sorted[b.next].arrival;
  };
  std::vector<Turn>& turns = scratch.turns;
  turns.clear();
  for (size_t i = 0; i < sorted.size(); ++i) {
    const auto tenant = static_cast<size_t>(sorted[i].tenant);
    HEDDLE_CHECK_LT(tenant, scratch.counters.size());
    if (i == 0 || sorted[i].tenant != sorted[i - 1].tenant) {
      turns.push_back({.counter = scratch.counters[tenant], .next = i, .end = i});
    }
    ++turns.back().end;
  }
  std::make_heap(turns.begin(), turns.end(), later);
  for (QueueEntry& next : entries) {
    std::pop_heap(turns.begin(), turns.end(), later);
    Turn& turn = turns.back();
    next = sorted[turn.next++];
    turn.counter += admission_cost(next.uncached_tokens, next.matched_tokens) /
                    tenants_[static_cast<size_t>(next.tenant)].terms.weight;
    scratch.counters[static_cast<size_t>(next.tenant)] = turn.counter;
    if (turn.next == turn.end) {
      turns.pop_back();
    } else {
      std::push_heap(turns.begin(), turns.end(), later);
    }
  }
}

}  // namespace heddle::scheduler
