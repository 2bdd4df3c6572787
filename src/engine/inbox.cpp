// SPDX-License-Identifier: Apache-2.0
#include "engine/inbox.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "ops/sampling/uniform_draw.h"

namespace heddle::engine {
namespace {

constexpr int64_t kMaxClears = 64;  // limit of clear calls not answered yet
constexpr int64_t kMaxPauses = 64;  // limit of pauses that the engine thread has not taken yet
// Limit of inspections that the engine thread has not taken yet.
constexpr int64_t kMaxInspections = 16;
constexpr size_t kMaxDescribed = 32;

// While nothing runs, the time limits of waiting requests are checked this often.
constexpr std::chrono::milliseconds kShortSleep{50};

// Longest timeout, s, that the arithmetic of std::chrono can represent.
constexpr double kMaxTimeoutSeconds = 1e6;

template <typename Element>
void append(std::vector<Element>& to, std::vector<Element>& from) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
  from.clear();
}

}  // namespace

Inbox::Inbox(const Clock& clock, const InboxLimits& limits, uint64_t random_seed)
    : clock_(clock),
      limits_(limits),
      num_free_slots_(limits.num_batch_slots),
      seed_state_(random_seed) {
  mail_.arrivals.reserve(static_cast<size_t>(limits.max_queued + limits.num_batch_slots));
}

Status Inbox::submit(Arrivals arrivals) {
  const double now = clock_.now_seconds();
  const MutexLock lock(mutex_);
  HEDDLE_RETURN_IF_ERROR(refusal());
  HEDDLE_RETURN_IF_ERROR(check_room(std::ssize(arrivals)));
  HEDDLE_RETURN_IF_ERROR(claim_ids(arrivals, now));  // this call may throw; the lines below do not
  if (num_unfinished_ == 0) busy_since_ = now;
  num_unfinished_ += std::ssize(arrivals);
  const int64_t call = next_sequence_id_;
  for (std::unique_ptr<LiveRequest>& live : arrivals) {
    live->call = call;
    request::Sequence& sequence = live->sequence;
    sequence.timings.submit_seconds = now;
    sequence.id = next_sequence_id_++;
    seed_state_ += 0x9e3779b97f4a7c15u;
    sequence.seed = sequence.request.sampling.seed.value_or(ops::mix64(seed_state_));
    mail_.arrivals.push_back(std::move(live));  // fits the capacity reserved in the constructor
  }
  mail_came_.notify_one();
  return {};
}

Status Inbox::refusal() const {
  if (!failure_.ok()) {
    return unavailable(fmt::format("the engine has stopped: {}", failure_.message()));
  }
  if (refusing_) return unavailable("the engine is shutting down");
  return {};
}

Status Inbox::check_room(int64_t num_arrivals) const {
  const int64_t waiting = std::ssize(mail_.arrivals) + (limits_.by_priority ? 0 : num_queued_);
  const int64_t slots = limits_.by_priority ? limits_.num_batch_slots : num_free_slots_;
  if (waiting + num_arrivals <= limits_.max_queued + slots) return {};
  const std::string call =
      num_arrivals == 1 ? "" : fmt::format(" and {} came at once", num_arrivals);
  return resource_exhausted(
      fmt::format("{} requests are waiting{}, max_queued_requests = {}; try again later",
                  std::max<int64_t>(waiting - slots, 0), call, limits_.max_queued));
}

// Adds all arrivals to open_, or none.
Status Inbox::claim_ids(const Arrivals& arrivals, double now) {
  size_t num_claimed = 0;
  const auto undo = [&]() HEDDLE_REQUIRES(mutex_) {
    for (size_t i = 0; i < num_claimed; ++i) open_.erase(arrivals[i]->sequence.request.id);
  };
  try {
    int64_t sequence_id = next_sequence_id_;
    for (const std::unique_ptr<LiveRequest>& live : arrivals) {
      const request::Sequence& sequence = live->sequence;
      const OpenRequest open = {.sequence_id = sequence_id++,
                                .prompt_tokens = sequence.num_prompt_tokens,
                                .max_new_tokens = sequence.request.stop.max_new_tokens,
                                .submit_seconds = now};
      if (!open_.emplace(sequence.request.id, open).second) {
        undo();
        return invalid_argument(
            fmt::format("a request with the id \"{}\" is still running", sequence.request.id));
      }
      ++num_claimed;
    }
  } catch (...) {
    undo();
    throw;
  }
  return {};
}

void Inbox::cancel(const std::string& request_id) {
  const MutexLock lock(mutex_);
  const auto found = open_.find(request_id);
  if (found == open_.end() || found->second.cancelled) return;
  mail_.cancelled.push_back(found->second.sequence_id);
  found->second.cancelled = true;
  mail_came_.notify_one();
}

void Inbox::pause(PauseCall call) {
  Status refused;
  {
    const MutexLock lock(mutex_);
    refused = refusal();
    if (refused.ok() && std::ssize(mail_.pauses) >= kMaxPauses) {
      refused = resource_exhausted(
          fmt::format("control_queue_full: {} pauses and resumptions wait already", kMaxPauses));
    }
    if (refused.ok()) {
      mail_.pauses.push_back(std::move(call));
      mail_came_.notify_one();
      return;
    }
  }
  call.on_done(std::move(refused));
}

void Inbox::clear_cache(ClearCall call) {
  Status refused;
  {
    const MutexLock lock(mutex_);
    refused = refusal();
    if (refused.ok() && num_open_clears_ >= kMaxClears) {
      refused = resource_exhausted(fmt::format(
          "control_queue_full: {} requests to clear the cache wait already", kMaxClears));
    }
    if (refused.ok()) {
      mail_.clears.push_back(std::move(call));
      ++num_open_clears_;
      mail_came_.notify_one();
      return;
    }
  }
  call.on_done(std::move(refused));
}

void Inbox::update_weights(UpdateCall call) {
  Status refused;
  {
    const MutexLock lock(mutex_);
    refused = refusal();
    if (refused.ok() && update_open_) {
      refused = resource_exhausted("another update of the weights goes on; wait for its answer");
    }
    if (refused.ok()) {
      mail_.update = std::move(call);
      update_open_ = true;
      mail_came_.notify_one();
      return;
    }
  }
  call.on_done(std::move(refused));
}

void Inbox::wake() {
  const MutexLock lock(mutex_);
  woken_ = true;
  mail_came_.notify_one();
}

void Inbox::inspect(InspectionCall call) {
  Status refused;
  {
    const MutexLock lock(mutex_);
    // An engine that drains can be inspected; one that has failed or stops cannot.
    if (!failure_.ok() || stopping_) refused = refusal();
    if (refused.ok() && std::ssize(mail_.inspections) >= kMaxInspections) {
      refused = resource_exhausted(
          fmt::format("control_queue_full: {} inspections wait already", kMaxInspections));
    }
    if (refused.ok()) {
      mail_.inspections.push_back(std::move(call));
      mail_came_.notify_one();
      return;
    }
  }
  call.on_done(std::move(refused));
}

void Inbox::begin_drain() {
  const MutexLock lock(mutex_);
  refusing_ = true;
  mail_.pauses.push_back({.mode = std::nullopt, .on_done = [](const Status&) {}});
  mail_came_.notify_one();
}

int64_t Inbox::finish_drain(double timeout_seconds) {
  const MutexLock lock(mutex_);
  const auto finished = [this]() HEDDLE_REQUIRES(mutex_) { return num_unfinished_ == 0; };
  const std::chrono::duration<double> timeout(std::clamp(timeout_seconds, 0.0, kMaxTimeoutSeconds));
  if (became_idle_.wait_for(mutex_, timeout, finished)) return 0;
  const int64_t aborted_before = num_aborted_by_drain_;
  abort_requested_ = true;
  mail_came_.notify_one();
  became_idle_.wait(mutex_, finished);  // waits at most for the step in flight
  return num_aborted_by_drain_ - aborted_before;
}

void Inbox::stop() {
  const MutexLock lock(mutex_);
  refusing_ = true;
  stopping_ = true;
  mail_came_.notify_one();
}

Inbox::Load Inbox::load() const {
  const MutexLock lock(mutex_);
  return {.num_arrivals = std::ssize(mail_.arrivals),
          .num_unfinished = num_unfinished_,
          .busy_since = busy_since_};
}

Status Inbox::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

Status Inbox::closed() const {
  const MutexLock lock(mutex_);
  return refusal();
}

std::string Inbox::describe() const {
  using Entry = std::pair<const std::string, OpenRequest>;
  const double now = clock_.now_seconds();
  const MutexLock lock(mutex_);
  std::vector<const Entry*> entries;
  for (const Entry& entry : open_) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(), [](const Entry* a, const Entry* b) {
    return a->second.sequence_id < b->second.sequence_id;
  });
  std::string text =
      fmt::format("\n  {} requests have arrived and were not taken yet", mail_.arrivals.size());
  if (abort_requested_) text += "\n  a drain ran out of time and waits for the rest to be aborted";
  for (size_t i = 0; i < std::min(entries.size(), kMaxDescribed); ++i) {
    const auto& [id, open] = *entries[i];
    text +=
        fmt::format("\n  request \"{}\": {} prompt tokens, at most {} new ones, came {:.1f} s ago",
                    id, open.prompt_tokens, open.max_new_tokens, now - open.submit_seconds);
  }
  if (entries.size() > kMaxDescribed) {
    text += fmt::format("\n  and {} more", entries.size() - kMaxDescribed);
  }
  return text;
}

// ---- The engine thread ----

bool Inbox::has_mail() const {
  return stopping_ || abort_requested_ || !mail_.arrivals.empty() || !mail_.cancelled.empty() ||
         !mail_.pauses.empty() || !mail_.clears.empty() || mail_.update || woken_ ||
         !mail_.inspections.empty();
}

Inbox::Orders Inbox::wait(Sleep sleep) {
  const MutexLock lock(mutex_);
  const auto ready = [this]() HEDDLE_REQUIRES(mutex_) { return has_mail(); };
  if (sleep == Sleep::kShort) (void)mail_came_.wait_for(mutex_, kShortSleep, ready);
  if (sleep == Sleep::kLong) mail_came_.wait(mutex_, ready);
  return {.stop = stopping_, .abort_all = std::exchange(abort_requested_, false)};
}

void Inbox::take(Mail& mail) {
  mail.arrivals.reserve(static_cast<size_t>(limits_.max_queued + limits_.num_batch_slots));
  const MutexLock lock(mutex_);
  if (mail.arrivals.empty() && mail.cancelled.empty()) {
    std::swap(mail.arrivals, mail_.arrivals);
    std::swap(mail.cancelled, mail_.cancelled);
    num_queued_ += std::ssize(mail.arrivals);
  }
  append(mail.pauses, mail_.pauses);
  append(mail.clears, mail_.clears);
  if (mail_.update) mail.update = std::exchange(mail_.update, std::nullopt);
  woken_ = false;
  // One inspection per round, so that many of them delay no step by much. The others stay in the
  // inbox, and the engine thread does not sleep while there are any.
  while (!mail_.inspections.empty() && (stopping_ || mail.inspections.empty())) {
    mail.inspections.push_back(std::move(mail_.inspections.front()));
    mail_.inspections.erase(mail_.inspections.begin());
  }
}

void Inbox::release_id(const std::string& request_id) {
  const MutexLock lock(mutex_);
  open_.erase(request_id);
}

void Inbox::on_ended(int64_t count, int64_t num_aborted_by_drain) {
  const MutexLock lock(mutex_);
  num_unfinished_ -= count;
  num_aborted_by_drain_ += num_aborted_by_drain;
  if (num_unfinished_ == 0) became_idle_.notify_all();
}

void Inbox::on_clears_answered(int64_t count) {
  const MutexLock lock(mutex_);
  num_open_clears_ -= count;
}

void Inbox::on_update_answered() {
  const MutexLock lock(mutex_);
  update_open_ = false;
}

void Inbox::show_queue(int64_t num_queued, int64_t num_free_slots) {
  const MutexLock lock(mutex_);
  num_queued_ = num_queued;
  num_free_slots_ = num_free_slots;
}

void Inbox::fail(const Status& reason) {
  const MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = reason;
}

}  // namespace heddle::engine
