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

#include <nlohmann/json_fwd.hpp>

#include <heddle/engine.h>
#include <heddle/status.h>

#include "server/call/text_codec.h"
#include "server/server_options.h"

namespace heddle::server {

class Server {
 public:
  // Binds the port and answers from now on: 503 until start_serving(). Error: the port is in use.
  static Result<std::unique_ptr<Server>> listen(ServerOptions options);

  // Shuts down without waiting, if that has not happened yet.
  virtual ~Server() = default;

  [[nodiscard]] virtual uint16_t port() const = 0;
  [[nodiscard]] virtual std::string address() const = 0;  // "http://127.0.0.1:30000"

  // Shown by /health while loading.
  virtual void set_load_progress(int64_t done_bytes, int64_t total_bytes) = 0;

  // Takes the engine and the codec (which may refer to the engine's tokenizer) and serves them.
  // Logs the ready line. Once. `configuration` is an object of all settings, without secrets,
  // which /get_server_info shows to every client with a key.
  virtual void start_serving(std::unique_ptr<Engine> engine, std::unique_ptr<TextCodec> codec,
                             nlohmann::ordered_json configuration) = 0;

  // Whether there is a file of API keys.
  [[nodiscard]] virtual bool reads_keys_again() const = 0;

  // Reads it again; requests that are under way go on. Error: the file is wrong, and the keys stay
  // as they are.
  [[nodiscard]] virtual Status reload_keys() = 0;

  // Says 503 to probes of readiness for `seconds`, and serves on, so that load
  // balancers move to another server meanwhile. Before shutdown().
  virtual void announce_shutdown(double seconds) = 0;

  // Drains: refuses new requests with 503 `shutting_down`, lets the others finish within the time
  // of the options, then closes every connection. Returns how many requests had to be aborted.
  virtual int64_t shutdown() = 0;
};

}  // namespace heddle::server
