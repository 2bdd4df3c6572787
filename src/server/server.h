// SPDX-License-Identifier: Apache-2.0
// Server: an engine behind HTTP. Start here.
//
//   HEDDLE_ASSIGN_OR_RETURN(auto server, Server::listen({.http = {.port = 30000}}));
//   ... load the model; meanwhile clients get 503 `loading` ...
//   server->start_serving(std::move(engine), std::move(codec), configuration);
//   ... until the process is asked to stop ...
//   server->shutdown();
//
// Threading: start_serving(), announce_shutdown() and shutdown() belong to one thread, the rest is
//            thread-safe. Inside: one I/O thread and a few workers; the engine has threads of its
//            own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <heddle/engine.h>
#include <heddle/status.h>

#include "server/call/served_adapters.h"
#include "server/call/text_codec.h"
#include "server/server_options.h"

namespace heddle::server {

class Server {
 public:
  // Binds the port and answers requests from now on, with 503 until start_serving(). Error: the
  // port is in use.
  static Result<std::unique_ptr<Server>> listen(ServerOptions options);

  // Shuts down without waiting for requests, unless shutdown() was called.
  virtual ~Server() = default;

  [[nodiscard]] virtual uint16_t port() const = 0;
  [[nodiscard]] virtual std::string address() const = 0;  // "http://127.0.0.1:30000"

  // Sets the progress that /health shows while loading.
  virtual void set_load_progress(int64_t done_bytes, int64_t total_bytes) = 0;

  // Takes ownership of the engine and the codec (which may refer to the engine's tokenizer), serves
  // them, and logs that the server is ready. Called once. `configuration` is an object of all
  // settings without secrets, which /get_server_info shows to every client with a key. `adapters`:
  // those of the engine that requests may name from the start.
  virtual void start_serving(std::unique_ptr<Engine> engine, std::unique_ptr<TextCodec> codec,
                             nlohmann::ordered_json configuration,
                             std::vector<ServedAdapter> adapters = {}) = 0;

  // Whether the options name a file of API keys.
  [[nodiscard]] virtual bool reads_keys_again() const = 0;

  // Reads the file of API keys again; running requests continue. Error: the file is invalid, and
  // the keys are unchanged.
  [[nodiscard]] virtual Status reload_keys() = 0;

  // Answers 503 to readiness probes for `seconds` while serving continues, so that load balancers
  // switch to another server. Called before shutdown().
  virtual void announce_shutdown(double seconds) = 0;

  // Drains the server: refuses new requests with 503 `shutting_down`, lets running ones finish
  // within the time limit of the options, then closes every connection. Returns the number of
  // requests that were aborted.
  virtual int64_t shutdown() = 0;
};

}  // namespace heddle::server
