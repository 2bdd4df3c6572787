// SPDX-License-Identifier: Apache-2.0
// FairShare: tenants get equal shares of the machine, however many requests each of them sends.
// Virtual token counters, after Sheng et al., "Fairness in Serving Large Language Models",
// arXiv:2401.00588.
//
// A tenant's counter grows by what it is given, over its weight: prompt tokens at admission, output
// tokens as they are drawn. The waiting tenant with the smallest counter is next. A tenant that had
// nothing waiting comes back with at least the smallest counter of those that wait (or, if none
// waits, that of the last that did): idle time earns no credit. Tokens that are computed again
// after a retraction or preemption are not charged.
//
// Two tenants that always have requests waiting differ by at most about
// 2 * max(cost_input * longest prompt, cost_output * tokens in the pool), for ever.
//
// Tenants are numbers here. A number stays valid while the tenant has waiting or running requests.
// When a new tenant comes and kMaxKnownTenants are known, the idle one with the smallest counter is
// forgotten: if it comes back it is lifted anyway.
//
// Threading: thread-confined.
// Cost: tenant() one hash, order() O(n log n), all others O(1) except check_queue() with a limit
// and arrive() of a tenant that had nothing waiting: O(tenants).
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
  double cost_input = 1;     // per uncached prompt token
  double cost_output = 2;    // per output token
  double cost_cached = 0.1;  // per cached prompt token
  int32_t max_running = 0;   // per tenant; 0: no limit
  int32_t max_queued = 0;    // per tenant; 0: no limit

  [[nodiscard]] static FairShareOptions from(const SchedulingOptions& options);
};

class FairShare {
 public:
  explicit FairShare(const FairShareOptions& options) : options_(options) {}

  // The tenant's number; a new one for a new name. Ask again for every request, before arrive().
  [[nodiscard]] int32_t tenant(std::string_view name);

  // From now on the tenant has these terms.
  void set_terms(int32_t tenant, const TenantTerms& terms) { at(tenant).terms = terms; }

  // Whether `num_arriving` more requests of the tenant may be queued while `num_open_slots` batch
  // slots are open. A request that gets one of them does not wait and does not count; other
  // tenants' requests that wait come first. For arriving requests only: returned ones are always
  // taken back. Error: kResourceExhausted, "tenant_queue_full: ...", when more than max_queued that
  // never ran would wait. `terms` are those that the tenant will have.
  [[nodiscard]] Status check_queue(std::string_view name, int64_t num_arriving,
                                   int64_t num_open_slots, const TenantTerms& terms = {}) const;

  // How many requests of one tenant are taken when none runs or waits and there are
  // `num_batch_slots`.
  [[nodiscard]] int64_t max_at_once(int64_t num_batch_slots, const TenantTerms& terms = {}) const;

  // Whether one more of the tenant's requests may run.
  [[nodiscard]] bool may_run(int32_t tenant) const;

  // The life of a request. arrive() once; then admit() and give_back() in turn; at the end leave().
  void arrive(int32_t tenant);
  void admit(int32_t tenant, int64_t uncached_tokens, int64_t cached_tokens, bool returned);
  void give_back(int32_t tenant);  // retracted or preempted: waits again, pays nothing again
  void leave_waiting(int32_t tenant, bool returned);
  void leave_running(int32_t tenant);

  // Output tokens that were drawn.
  void charge_output(int32_t tenant, int64_t tokens);

  [[nodiscard]] double counter(int32_t tenant) const;

  [[nodiscard]] double admission_cost(int64_t uncached_tokens, int64_t cached_tokens) const;

  // Carried by order() from one class to the next, and its scratch.
  struct OrderScratch {
    struct Turn {
      double counter = 0;
      size_t next = 0;  // in `sorted`
      size_t end = 0;
    };

    std::vector<double> counters;  // by tenant, as they would be after the requests ordered so far
    std::vector<QueueEntry> sorted;
    std::vector<Turn> turns;  // a heap: the next tenant on top
  };

  void begin_order(OrderScratch& scratch) const;

  // Sorts entries of one class: again and again the tenant with the smallest counter (ties: the
  // smaller arrival of its next request) gives its next request (the smallest slack, then the
  // smallest arrival), and what its admission costs counts for the rest of this order and for
  // further calls until begin_order(). The tenants' own counters do not change.
  void order(std::span<QueueEntry> entries, OrderScratch& scratch) const;

 private:
  struct Tenant {
    std::string name;
    double counter = 0;
    int64_t num_waiting = 0;  // returned ones included
    int64_t num_queued = 0;   // waiting and never ran
    int64_t num_running = 0;
    TenantTerms terms = {};
    bool known = false;  // false: the number is free
  };

  [[nodiscard]] Tenant& at(int32_t tenant);
  [[nodiscard]] const Tenant& at(int32_t tenant) const;
  void forget_one_idle();
  // How many more requests may run of a tenant that has `num_running`.
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
