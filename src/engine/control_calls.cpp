// SPDX-License-Identifier: Apache-2.0
#include "engine/control_calls.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "cache/cache_view.h"

namespace heddle::engine {

namespace {

template <typename Call>
void move_all(std::vector<Call>& from, std::vector<Call>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  from.clear();
}

// Answers the calls of a list. Each call leaves the list before its callback runs, so that none is
// called twice.
template <typename Call, typename Answer>
void answer_all(std::vector<Call>& calls, const Answer& answer) {
  for (const Call& call : std::exchange(calls, {})) call.on_done(answer);
}

}  // namespace

ControlCalls::ControlCalls(Stepper& stepper, Inbox& inbox, const Clock& clock)
    : stepper_(stepper),
      inbox_(inbox),
      clock_(clock),
      out_of_memory_(resource_exhausted("there is no host memory for a copy of the state")) {}

void ControlCalls::add(Mail& mail) {
  move_all(mail.pauses, pauses_);
  move_all(mail.clears, clears_);
  move_all(mail.inspections, inspections_);
}

void ControlCalls::run() {
  run_pauses();
  run_clears();
  run_inspections();
}

void ControlCalls::refuse(const Status& status) {
  answer_clears(status);
  answer_all(pauses_, status);
  answer_all(inspections_, status);
}

// Carries out the pauses. A call that fails or throws stays in the list; the failure of the engine
// then answers it.
void ControlCalls::run_pauses() {
  while (!stepper_.failed() && !pauses_.empty()) {
    stepper_.set_paused(pauses_.front().mode);
    if (stepper_.failed()) break;
    const PauseCall call = std::move(pauses_.front());
    pauses_.erase(pauses_.begin());
    call.on_done({});
  }
  if (stepper_.failed()) answer_all(pauses_, inbox_.closed());
}

void ControlCalls::run_clears() {
  if (clears_.empty()) return;
  if (stepper_.clear_cache()) return answer_clears({});
  const double now = clock_.now_seconds();
  const auto late = std::stable_partition(
      clears_.begin(), clears_.end(), [now](const ClearCall& call) { return now < call.deadline; });
  const std::vector<ClearCall> expired(std::make_move_iterator(late),
                                       std::make_move_iterator(clears_.end()));
  clears_.erase(late, clears_.end());
  inbox_.on_clears_answered(std::ssize(expired));
  for (const ClearCall& call : expired) {
    call.on_done(timed_out(fmt::format(
        "the cache is in use: {} requests run or wait; send it again when they are done, or with a "
        "longer timeout than {} s",
        stepper_.num_live(), call.timeout_seconds)));
  }
}

void ControlCalls::answer_clears(const Status& status) {
  inbox_.on_clears_answered(std::ssize(clears_));
  answer_all(clears_, status);
}

void ControlCalls::run_inspections() {
  if (stepper_.failed()) return answer_all(inspections_, inbox_.closed());
  for (const InspectionCall& call : std::exchange(inspections_, {})) call.on_done(look(call));
}

// Copies the engine's state. Running out of memory for the copy must not end requests.
Result<Inspection> ControlCalls::look(const InspectionCall& call) const {
  try {
    Inspection inspection;
    stepper_.view_requests(call.options.max_requests, inspection);
    if (const cache::PrefixCache* const cache = stepper_.scheduler().prefix_cache();
        cache != nullptr) {
      if (call.prompt) call.prompt->choose_rope(stepper_.runner().step_limits().short_rope_tokens);
      cache::view_cache(*cache, call.options, call.prompt.get(), inspection);
    }
    return inspection;
  } catch (const std::bad_alloc&) {
    return out_of_memory_;
  }
}

}  // namespace heddle::engine
