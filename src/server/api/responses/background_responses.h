// SPDX-License-Identifier: Apache-2.0
// BackgroundResponses: the answers to POST /v1/responses with `background`, whose clients have
// theirs ("queued") before the model's: they fetch what it has come to, whole or as a stream, or
// cancel it, by its id. Also answers what of the ResponseStore's is asked for by id: those of the
// foreground are kept there too.
//
// Threading: confined to the I/O thread; the events of a stream are written on workers.
// Bounds:    kMaxRecordedBytes of events of each response that runs.
// Cost:      O(1) and copies of a body.
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

// The events of longer responses are not kept while these run: whoever asks for them waits for the
// end.
inline constexpr size_t kMaxRecordedBytes = size_t{16} << 20;

class BackgroundResponses {
 public:
  // `host` outlives this. `forget` is called with a request that no longer counts for its key
  // (RequestGate).
  BackgroundResponses(GenerationHost& host, std::shared_ptr<ResponseStore> responses,
                      std::function<void(const HttpRequest&)> forget);

  // Starts a call that has a BackgroundAnswer and answers its client, who reads the events of one
  // that is streamed as others do who ask for them later. A call refused before it runs is the
  // client's answer; a later failure is in the kept response.
  void start(const std::shared_ptr<Exchange>& exchange, PreparedCall call,
             const EarlyAborts::Call& arrived);

  // GET and DELETE /v1/responses/ID, POST /v1/responses/ID/cancel. 404 for other methods and ids.
  // GET with `stream=true` is a stream of the response's events after number `starting_after`. Of
  // one that runs and was asked for as a stream they come as they are made, of another at its end.
  void answer(const std::shared_ptr<Exchange>& exchange);

 private:
  // A client that streams a response that runs.
  struct Reader {
    std::shared_ptr<Exchange> exchange;
    int64_t starting_after = -1;
    bool is_live = false;  // has the events so far; others get them at the end
  };

  // The events of a response that runs.
  struct Recording {
    bool is_live = false;    // `events` has all of them so far
    bool has_begun = false;  // there were some
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
  std::map<std::string, Recording> running_;  // by holder and id
};

}  // namespace heddle::server
