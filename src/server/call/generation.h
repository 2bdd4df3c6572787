// SPDX-License-Identifier: Apache-2.0
// Generation: one running API call. Submits its engine requests, feeds their events to the adapter
// and the adapter's bytes to the exchange, and cancels what is left when the client goes away or a
// choice fails.
//
// Threading: confined to the I/O thread. Engine callbacks only append to the EventInbox.
// Lifetime:  kept alive by the engine's callbacks until each request had its final event.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <heddle/engine.h>

#include "server/call/api_adapter.h"
#include "server/call/early_aborts.h"
#include "server/call/event_inbox.h"
#include "server/call/speed_log.h"
#include "server/http/body_sender.h"
#include "server/http/exchange.h"

namespace heddle::server {

class Generation;
class RequestLog;

// Some of a generation's requests: those from `begin` to before `end`.
struct LiveRequests {
  std::weak_ptr<Generation> generation;
  size_t begin = 0;
  size_t end = 0;
};

// Shared by all generations; outlives them.
struct GenerationHost {
  Engine* engine = nullptr;
  EventInbox* inbox = nullptr;
  RequestLog* request_log = nullptr;
  BodyThreads threads;  // where long answers are written
  // The calls whose requests still run, by every id that their clients know. Calls that a
  // header named, and those of different holders of keys, may share one.
  std::unordered_multimap<std::string, LiveRequests> live;
  EarlyAborts early_aborts;
  // Called with how many tokens a request of a named key took.
  std::function<void(const ApiKey& key, int64_t num_tokens)> on_tokens;
  // The name of the weights after so many updates.
  std::function<std::string(int64_t num_weight_updates)> weight_version_after;
  int64_t num_renamed = 0;  // calls whose id was taken
  // The server is stopping: an abort that no client asked for becomes an error. Set before the
  // engine aborts anything, and directly: posted to the loop, it could arrive after the aborts.
  std::atomic<bool> draining = false;
};

// When a refused request may come again: once the prompts that wait are computed, from 1 to 60 s;
// 4 s while the engine's rate is not known.
[[nodiscard]] int retry_after_seconds(const EngineStats& stats);

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // Submits the call's requests, or answers why not. Requests aborted since the call arrived
  // end at once.
  static void start(GenerationHost& host, std::shared_ptr<Exchange> exchange, PreparedCall call,
                    const EarlyAborts::Call& arrived);

  // Ends what goes by this id, a call, a prompt of a batch or one of several answers, as if it had
  // stopped: its client gets the finish reason "abort". With a `holder` only that one's
  // (holder_of()). An unknown id is ignored. False when nothing that runs goes by it, a call that
  // is not understood yet may be meant and there is no room to remember that.
  [[nodiscard]] static bool abort(GenerationHost& host, const std::string& id,
                                  const std::optional<std::string>& holder);
  static void abort_all(GenerationHost& host);

  Generation(GenerationHost& host, std::shared_ptr<Exchange> exchange, PreparedCall call);

 private:
  friend class EventInbox;

  [[nodiscard]] static bool is_live(const GenerationHost& host, const std::string& id,
                                    const std::string& holder);
  bool aborted_early(const EarlyAborts::Call& arrived);
  void submit_all(const EarlyAborts::Call& arrived);
  void on_event(size_t choice, RequestEvent&& event);
  void deliver(size_t choice, RequestEvent&& event);
  void write_event(size_t choice, const RequestEvent& event);
  void write_stream(std::string bytes);
  void write_waiting();
  [[nodiscard]] bool is_at_end() const;
  void write_error(const ApiError& error);
  void complete();
  void fail(const Status& status);
  void fail(const ApiError& error);
  void cancel_rest();
  void cancel(size_t choice);
  void abort(size_t begin, size_t end);
  void forget_ids();
  [[nodiscard]] std::string engine_id(size_t choice) const;

  GenerationHost& host_;
  std::shared_ptr<Exchange> exchange_;  // reset when the answer is complete
  PreparedCall call_;
  std::vector<RequestEvent>
      pending_;  // with a stream interval: what is not delivered yet, per choice

  // Of a stream whose client has not read what was written to it: events that are to follow.
  struct WaitingEvent {
    size_t choice;
    RequestEvent event;
  };

  JsonPieces rest_;  // of the message that is being written; views of the adapter
  std::deque<WaitingEvent> waiting_;
  std::optional<ApiError> waiting_error_;  // follows them; later events are dropped
  std::vector<bool> finished_;             // per choice
  std::vector<bool> aborted_;              // per choice: at the request of a client
  CallSpeed speed_;
  size_t num_unfinished_ = 0;
  const std::shared_ptr<const ApiKey> key_;  // of the client; may be null
  std::vector<bool> charges_prompt_;         // per choice: the first answer to a prompt does
  std::string engine_name_;                  // the call's id, made unique among the live ones
  bool answered_ = false;
};

}  // namespace heddle::server
