// SPDX-License-Identifier: Apache-2.0
// BackgroundResponses: answers POST /v1/responses with `background`. Their clients get the answer
// "queued" at once. Later, by its id, they fetch the response, whole or as a stream, or cancel it.
// Also serves the routes by id for stored responses of the foreground.
//
// Threading: confined to the I/O thread; workers write the events of a stream.
// Bounds:    kMaxRecordedBytes of events per running response.
// Cost:      O(1), and copies of a body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/responses/response_store.h"
#include "server/call/api_adapter.h"
#include "server/call/early_aborts.h"
#include "server/call/generation.h"
#include "server/http/exchange.h"

namespace heddle::server {

// Limit for the recorded events of a running response. Beyond it none are kept, and clients that
// ask for the events get them at the end.
inline constexpr size_t kMaxRecordedBytes = size_t{16} << 20;

class BackgroundResponses {
 public:
  // `host` outlives this object. `forget` is called with a request that no longer counts for its
  // key (RequestGate).
  BackgroundResponses(GenerationHost& host, std::shared_ptr<ResponseStore> responses,
                      std::function<void(const HttpRequest&)> forget);

  // Starts a call that has a BackgroundAnswer and answers its client. If the call is streamed, its
  // client reads the events like clients that ask for them later. If the call is refused before it
  // runs, the client gets the error; a later failure is in the stored response.
  void start(const std::shared_ptr<Exchange>& exchange, PreparedCall call,
             const EarlyAborts::Call& arrived);

  // GET and DELETE /v1/responses/ID, POST /v1/responses/ID/cancel; 404 for other methods and ids.
  // GET with `stream=true` streams the response's events after number `starting_after`: as they are
  // made, if the response runs and was requested as a stream, else at its end.
  void answer(const std::shared_ptr<Exchange>& exchange);

 private:
  // A client that streams the events of a running response.
  struct Reader {
    std::shared_ptr<Exchange> exchange;
    int64_t starting_after = -1;
    // True: it has received the events so far; false: it gets them at the end.
    bool is_live = false;
  };

  // The recorded events of a running response.
  struct Recording {
    bool is_live = false;    // `events` contains all events so far
    bool has_begun = false;  // at least one event was recorded
    std::string events;
    std::vector<Reader> readers;
  };

  void record(const std::string& key, std::string_view events);

  void stream(const std::shared_ptr<Exchange>& exchange, const std::string& id,
              std::shared_ptr<const StoredResponse> response);
  void write_events(Reader reader, std::shared_ptr<const StoredResponse> response,
                    std::function<void(std::string events)> then);
  void follow(const std::string& id, const std::string& holder, Reader reader);
  void end_readers(const std::string& id, const std::string& holder, bool is_complete);
  void keep_failure(const std::string& id, const std::string& holder, const HttpResponse& answer);
  [[nodiscard]] HttpResponse cancel(const HttpRequest& request, const std::string& id,
                                    const StoredResponse& response);
  [[nodiscard]] HttpResponse forget_response(const HttpRequest& request, const std::string& id,
                                             const StoredResponse& response);

  GenerationHost& host_;
  const std::shared_ptr<ResponseStore> responses_;
  const std::function<void(const HttpRequest&)> forget_;
  // Recordings of running responses, keyed by holder and id.
  std::map<std::string, Recording> running_;
};

}  // namespace heddle::server
