// SPDX-License-Identifier: Apache-2.0
// ServedModel: the engine that the server serves, with its tokenizer and chat template, and the
// answers about them: properties of the model, its names, the server's configuration and its load.
//
// Threading: serve() and tear_down() are called by the server's owner: serve() before
//            ServerHealth::serve(), tear_down() after the I/O thread and the workers have ended.
//            The answers are made on the I/O thread; all other functions may also be called by
//            workers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "server/admin/server_health.h"
#include "server/admin/weight_version.h"
#include "server/call/answer_stream.h"
#include "server/call/served_adapters.h"
#include "server/call/text_codec.h"
#include "server/http/http_message.h"
#include "server/http/routes.h"
#include "server/server_options.h"

namespace heddle::server {

class ServedModel {
 public:
  // `options` and `health` outlive this object. By the time of serve(), `options` has a clock and a
  // name of the model.
  ServedModel(const ServerOptions& options, const ServerHealth& health);

  // Derives how the model writes tool calls and reasoning, and which sampling defaults apply.
  // `configuration`: see Server::start_serving().
  void serve(std::unique_ptr<Engine> engine, std::unique_ptr<TextCodec> codec,
             nlohmann::ordered_json configuration, std::vector<ServedAdapter> adapters);

  // Destroys the engine and the codec.
  void tear_down();

  // The engine; valid after serve().
  [[nodiscard]] Engine& engine() const { return *engine_; }

  [[nodiscard]] const TextCodec& codec() const { return *codec_; }

  // The engine's properties of the model, with this server's sampling defaults.
  [[nodiscard]] const ModelInfo& info() const { return info_; }

  [[nodiscard]] const AnswerFormats& formats() const { return formats_; }

  // Time of serve(), seconds since 1970.
  [[nodiscard]] int64_t loaded_at() const { return loaded_at_; }

  [[nodiscard]] std::string digest() const;  // weights_digest() of the weights in use

  // The names of the model and of adapters that the sender of this request may use.
  [[nodiscard]] std::vector<std::string> names_for(const HttpRequest& request) const;

  // May be called at any time.
  [[nodiscard]] ServedAdapters& adapters() { return adapters_; }

  // May be called at any time.
  [[nodiscard]] WeightVersion& weights() { return weights_; }

  [[nodiscard]] const WeightVersion& weights() const { return weights_; }

  // Before ServerHealth::serve(), the functions below answer 503 `loading`.

  // GET /get_server_info: the server's configuration by the names of its options, and its counters
  // by the names that SGLang's clients expect.
  [[nodiscard]] HttpResponse server_facts(const HttpRequest& request) const;

  // GET /get_model_info, /v1/models and /v1/models/NAME, the last two in the form of the client's
  // API.
  [[nodiscard]] HttpResponse model_facts(const HttpRequest& request) const;
  [[nodiscard]] HttpResponse model_list(const HttpRequest& request) const;
  [[nodiscard]] HttpResponse one_model(const HttpRequest& request) const;

  // GET /get_load and /v1/loads: the load of the server, for load balancers.
  [[nodiscard]] HttpResponse load(const HttpRequest& request, Endpoint endpoint) const;

 private:
  void set_up_answers();
  [[nodiscard]] nlohmann::ordered_json model_entry(const std::string& name) const;
  [[nodiscard]] nlohmann::ordered_json anthropic_model_entry(const std::string& name) const;

  const ServerOptions& options_;
  const ServerHealth& health_;
  WeightVersion weights_;
  ServedAdapters adapters_;
  std::unique_ptr<Engine> engine_;
  ModelInfo info_;
  std::unique_ptr<TextCodec> codec_;
  AnswerFormats formats_;
  bool has_reasoning_switch_ = false;
  nlohmann::ordered_json configuration_;  // settings shown to clients, without secrets
  int64_t loaded_at_ = 0;
};

}  // namespace heddle::server
