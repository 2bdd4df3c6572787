// SPDX-License-Identifier: Apache-2.0
// Generation: one running API call. Submits its engine requests, passes their events to the adapter
// and the adapter's bytes to the exchange, and cancels the remaining requests when the client
// disconnects or a choice fails.
//
// Threading: confined to the I/O thread. Engine callbacks only append to the EventInbox.
// Lifetime:  kept alive by the engine's callbacks until each request has had its final event.
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

// Some of a generation's requests: those from index `begin` to `end` - 1.
struct LiveRequests {
  std::weak_ptr<Generation> generation;
  size_t begin = 0;
  size_t end = 0;
};

// Objects and functions that all generations share. It outlives them.
struct GenerationHost {
  Engine* engine = nullptr;
  EventInbox* inbox = nullptr;
  RequestLog* request_log = nullptr;
  BodyThreads threads;  // threads on which long answers are written
  // The calls whose requests still run, by every id that their clients know. Calls whose id came
  // from a header, and calls of different holders of keys, may share an id.
  std::unordered_multimap<std::string, LiveRequests> live;
  EarlyAborts early_aborts;
  // Called with the number of tokens that a request of a named key used.
  std::function<void(const ApiKey& key, int64_t num_tokens)> on_tokens;
  // Returns the name of the weights after this many updates.
  std::function<std::string(int64_t num_weight_updates)> weight_version_after;
  int64_t num_renamed = 0;  // calls that got another id because theirs was in use
  // True when the server is stopping: an abort that no client requested then becomes an error. Set
  // before the engine aborts anything, and directly: if it was posted to the I/O thread, it could
  // arrive after the aborts.
  std::atomic<bool> draining = false;
};

// Seconds after which a refused request may be sent again: until the waiting prompts are computed,
// from 1 to 60 s, or 4 s while the engine's rate is not known.
[[nodiscard]] int retry_after_seconds(const EngineStats& stats);

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // Submits the call's requests, or answers why it cannot. Requests that were aborted after the
  // call arrived end at once.
  static void start(GenerationHost& host, std::shared_ptr<Exchange> exchange, PreparedCall call,
                    const EarlyAborts::Call& arrived);

  // Ends the call, the prompt of a batch or the single answer with this id as if it had stopped:
  // its client gets the finish reason "abort". With a `holder` only that holder's (holder_of()). An
  // unknown id is ignored. Returns false if nothing that runs has the id, a call that is not parsed
  // yet may have it, and there is no space to remember the abort.
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
      pending_;  // with a stream interval: for each choice, the part not delivered yet

  // An event of a stream that waits until the client has read the bytes written before.
  struct WaitingEvent {
    size_t choice;
    RequestEvent event;
  };

  // Remainder of the message that is being written; refers to data in the adapter.
  JsonPieces rest_;
  std::deque<WaitingEvent> waiting_;
  // Sent after the waiting events; later events are dropped.
  std::optional<ApiError> waiting_error_;
  std::vector<bool> finished_;  // for each choice: it has finished
  std::vector<bool> aborted_;   // for each choice: a client requested its abort
  CallSpeed speed_;
  size_t num_unfinished_ = 0;
  const std::shared_ptr<const ApiKey> key_;  // API key of the client; may be null
  // For each choice: it is the first to its prompt and is charged for it.
  std::vector<bool> charges_prompt_;
  std::string engine_name_;  // the call's id, made unique among running calls
  bool answered_ = false;
};

}  // namespace heddle::server
