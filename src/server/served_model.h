// SPDX-License-Identifier: Apache-2.0
// ServedModel: the engine that the server serves, with its codec, and the answers about the two:
// what the model is, by which names it goes, what the server runs with and how busy it is.
//
// Threading: serve() and tear_down() are called by the server's owner: the one before
//            ServerHealth::serve(), the other when the I/O thread and the workers have ended. The
//            answers are the I/O thread's; all else is read by the workers, too.
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
#include "server/call/text_codec.h"
#include "server/http/http_message.h"
#include "server/http/routes.h"
#include "server/server_options.h"

namespace heddle::server {

class ServedModel {
 public:
  // Both outlive this. `options` have a clock, and a name of the model by the time of serve().
  ServedModel(const ServerOptions& options, const ServerHealth& health);

  // Finds how the model writes calls and reasoning, and which sampling this server prefers.
  // `configuration` as Server::start_serving() gets it.
  void serve(std::unique_ptr<Engine> engine, std::unique_ptr<TextCodec> codec,
             nlohmann::ordered_json configuration);

  // Destroys both.
  void tear_down();

  // From serve() on.
  [[nodiscard]] Engine& engine() const { return *engine_; }

  [[nodiscard]] const TextCodec& codec() const { return *codec_; }

  // The engine's, with the sampling that this server prefers.
  [[nodiscard]] const ModelInfo& info() const { return info_; }

  [[nodiscard]] const AnswerFormats& formats() const { return formats_; }

  [[nodiscard]] int64_t loaded_at() const { return loaded_at_; }  // seconds since 1970

  [[nodiscard]] std::string digest() const;  // weights_digest() of what is served

  // The names that the sender of this request may ask for.
  [[nodiscard]] std::vector<std::string> names_for(const HttpRequest& request) const;

  // At any time.
  [[nodiscard]] WeightVersion& weights() { return weights_; }

  [[nodiscard]] const WeightVersion& weights() const { return weights_; }

  // The answers below are 503 `loading` before ServerHealth::serve().

  // GET /get_server_info: what the server runs with, by the names of its options, and what it has
  // done, by the names SGLang's clients look for.
  [[nodiscard]] HttpResponse server_facts(const HttpRequest& request) const;

  // GET /get_model_info, /v1/models and /v1/models/NAME, the latter two in the form of the asking
  // client's API.
  [[nodiscard]] HttpResponse model_facts(const HttpRequest& request) const;
  [[nodiscard]] HttpResponse model_list(const HttpRequest& request) const;
  [[nodiscard]] HttpResponse one_model(const HttpRequest& request) const;

  // GET /get_load and /v1/loads: how busy it is, for balancers.
  [[nodiscard]] HttpResponse load(const HttpRequest& request, Endpoint endpoint) const;

 private:
  void set_up_answers();
  [[nodiscard]] nlohmann::ordered_json model_entry(const std::string& name) const;
  [[nodiscard]] nlohmann::ordered_json anthropic_model_entry(const std::string& name) const;

  const ServerOptions& options_;
  const ServerHealth& health_;
  WeightVersion weights_;
  std::unique_ptr<Engine> engine_;
  ModelInfo info_;
  std::unique_ptr<TextCodec> codec_;
  AnswerFormats formats_;
  bool has_reasoning_switch_ = false;
  nlohmann::ordered_json configuration_;  // without secrets
  int64_t loaded_at_ = 0;
};

}  // namespace heddle::server
