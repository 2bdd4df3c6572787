// SPDX-License-Identifier: Apache-2.0
// ApiAdapter: one API's way of telling a client what the engine said. A pure function from a
// request's events to bytes: no socket, no clock, so recorded events test it.
//
// A call has one or more choices (n answers to each of its prompts), each with an event stream of
// its own. When streaming, event() gives the messages for the client at once and end() the last
// ones; otherwise event() gives nothing and end() the whole body.
//
// Threading: thread-confined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <heddle/engine.h>
#include <heddle/request.h>

#include "server/api_error.h"
#include "server/fair_key.h"
#include "server/http_message.h"
#include "server/text_codec.h"

namespace heddle::server {

class ApiAdapter {
 public:
  virtual ~ApiAdapter() = default;

  // Appends to `out`. `event.finish`, if set, is not an error.
  virtual void event(size_t choice, const RequestEvent& event, std::string& out) = 0;

  // After every choice has finished.
  virtual void end(std::string& out) = 0;
};

// What some of a call's requests go by: those from `begin` to before `end`.
struct RequestName {
  std::string id;
  size_t begin = 0;
  size_t end = 0;
};

// A request body understood: what the engine shall do and who tells the client.
struct PreparedCall {
  std::string id;                  // of the answer
  bool id_is_callers = false;      // from the body: that it is live already is an error
  std::vector<RequestName> names;  // the further ids that the answer tells: of prompts and choices
  std::string answers_field;       // what makes the requests as many as they are: "n"
  bool stream = false;
  int64_t stream_interval = 1;    // tokens per streamed event, at least
  std::vector<Request> requests;  // one per choice, prompt-major; their ids are set at submission
  std::unique_ptr<ApiAdapter> adapter;
};

using PrepareResult = std::variant<PreparedCall, ApiError>;

// What a body is understood against.
struct CallContext {
  const ModelInfo& model;
  const Engine* engine = nullptr;  // that will run the call; null: any number of answers fits
  const TextCodec& codec;
  const std::vector<std::string>& served_names;  // the first is ours
  bool allow_any_model_name = true;
  const HttpRequest& head;  // for its headers
  const FairKey& fair_key;
  std::string id;       // from the header, or made up
  int64_t created = 0;  // seconds since 1970
};

}  // namespace heddle::server
