// SPDX-License-Identifier: Apache-2.0
// FairShare: tenants get equal shares of the machine, however many requests each of them sends.
// Virtual token counters, after Sheng et al., "Fairness in Serving Large Language Models",
// arXiv:2401.00588.
//
// A tenant's counter grows by the cost of its tokens, divided by its weight: prompt tokens at
// admission, output tokens as they are drawn. The waiting tenant with the smallest counter is next.
// When a tenant without waiting requests sends one, its counter is raised to the smallest counter
// of the waiting tenants (or, if none waits, to that of the tenant that waited last): idle time
// earns no credit. Tokens computed again after a retraction or preemption are not charged.
//
// The counters of two tenants that always have requests waiting never differ by more than about 2 *
// max(cost_input * longest prompt, cost_output * tokens in the pool).
//
// A tenant's number stays valid while the tenant has waiting or running requests. When a new tenant
// arrives and kMaxKnownTenants are known, the idle one with the smallest counter is forgotten. That
// loses nothing: its counter would be raised anyway when it returns.
//
// Threading: thread-confined.
// Cost: tenant() one hash; order() O(n log n); check_queue() with a limit, and arrive() of a tenant
// that had nothing waiting, O(tenants); all others O(1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <heddle/options.h>
#include <heddle/request.h>
#include <heddle/status.h>

#include "scheduler/queue_entry.h"

namespace heddle::scheduler {

constexpr size_t kMaxKnownTenants = 1024;

struct FairShareOptions {
  double cost_input = 1;     // cost of a prompt token that is not cached
  double cost_output = 2;    // cost of an output token
  double cost_cached = 0.1;  // cost of a cached prompt token
  int32_t max_running = 0;   // most running requests per tenant; 0: no limit
  int32_t max_queued = 0;    // most waiting requests per tenant; 0: no limit

  [[nodiscard]] static FairShareOptions from(const SchedulingOptions& options);
};

class FairShare {
 public:
  explicit FairShare(const FairShareOptions& options) : options_(options) {}

  // The tenant's number; an unknown name gets a new one. Must be called for every request, before
  // arrive().
  [[nodiscard]] int32_t tenant(std::string_view name);

  // Replaces the tenant's weight and limits.
  void set_terms(int32_t tenant, const TenantTerms& terms) { at(tenant).terms = terms; }

  // Whether `num_arriving` more requests of the tenant may be queued while `num_open_slots` batch
  // slots are open. A request that gets an open slot does not wait and does not count; waiting
  // requests of other tenants get slots first. Only for arriving requests: returned ones are always
  // taken back. Error: kResourceExhausted, "tenant_queue_full: ...", when more than max_queued
  // requests that never ran would wait. `terms` are the tenant's weight and limits after the
  // arrival.
  [[nodiscard]] Status check_queue(std::string_view name, int64_t num_arriving,
                                   int64_t num_open_slots, const TenantTerms& terms = {}) const;

  // How many requests of one tenant are accepted when none runs or waits and there are
  // `num_batch_slots` batch slots.
  [[nodiscard]] int64_t max_at_once(int64_t num_batch_slots, const TenantTerms& terms = {}) const;

  // Whether one more of the tenant's requests may run.
  [[nodiscard]] bool may_run(int32_t tenant) const;

  // The life of a request: arrive() once; then admit() and give_back() alternate; one of the leave
  // functions at the end.
  void arrive(int32_t tenant);
  void admit(int32_t tenant, int64_t uncached_tokens, int64_t cached_tokens, bool returned);
  void give_back(int32_t tenant);  // the request was retracted or preempted: it waits again and is
                                   // not charged again
  void leave_waiting(int32_t tenant, bool returned);
  void leave_running(int32_t tenant);

  // Charges the tenant for output tokens that were drawn.
  void charge_output(int32_t tenant, int64_t tokens);

  [[nodiscard]] double counter(int32_t tenant) const;

  [[nodiscard]] double admission_cost(int64_t uncached_tokens, int64_t cached_tokens) const;

  // State that order() carries from one class of entries to the next, and its scratch memory.
  struct OrderScratch {
    struct Turn {
      double counter = 0;
      size_t next = 0;  // index in `sorted` of the tenant's next request
      size_t end = 0;   // end of the tenant's requests in `sorted`
    };

    std::vector<double> counters;  // by tenant: its counter if the requests ordered so far were
                                   // admitted
    std::vector<QueueEntry> sorted;
    std::vector<Turn> turns;  // a heap; the tenant with the smallest counter is on top
  };

  void begin_order(OrderScratch& scratch) const;

  // Sorts entries of one class. It repeatedly picks the tenant with the smallest counter (ties: the
  // smaller arrival of its next request) and places that tenant's next request (the smallest slack,
  // then the smallest arrival). The request's admission cost is added to a copy of the counter,
  // which is used until the next begin_order(). The tenants' own counters do not change.
  void order(std::span<QueueEntry> entries, OrderScratch& scratch) const;

 private:
  struct Tenant {
    std::string name;
    double counter = 0;
    int64_t num_waiting = 0;  // waiting requests, retracted and preempted ones included
    int64_t num_queued = 0;   // waiting requests that never ran
    int64_t num_running = 0;
    TenantTerms terms = {};
    bool known = false;  // false: the number is free for another tenant
  };

  [[nodiscard]] Tenant& at(int32_t tenant);
  [[nodiscard]] const Tenant& at(int32_t tenant) const;
  void forget_one_idle();
  // How many more requests of a tenant may run if `num_running` run now.
  [[nodiscard]] int64_t num_startable(int64_t num_running, const TenantTerms& terms) const;

  [[nodiscard]] int32_t max_queued(const TenantTerms& terms) const {
    return terms.max_queued.value_or(options_.max_queued);
  }

  void begin_waiting(int32_t tenant);
  void end_waiting(int32_t tenant);

  FairShareOptions options_;
  std::vector<Tenant> tenants_;
  std::vector<int32_t> free_;
  std::unordered_map<std::string, int32_t> numbers_;
  int32_t last_active_ = -1;  // the tenant that last stopped waiting; never forgotten
};

}  // namespace heddle::scheduler
