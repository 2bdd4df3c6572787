// SPDX-License-Identifier: Apache-2.0
// ApiAdapter: converts the events of a call into the answer of one API. A pure function from events
// to bytes, without socket or clock, so that it can be tested with recorded events.
//
// A call has one or more choices (n answers to each of its prompts), each with its own events. A
// streamed answer is what event() and end() append; any other answer is body() alone.
//
// Threading: thread-confined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <heddle/engine.h>
#include <heddle/request.h>

#include "server/call/answer_options.h"
#include "server/call/answer_stream.h"
#include "server/call/stored_response.h"
#include "server/call/text_codec.h"
#include "server/http/api_error.h"
#include "server/http/body_sender.h"
#include "server/http/caller.h"
#include "server/http/exchange.h"
#include "server/http/http_message.h"

namespace heddle::server {

class FieldReader;
class LoggedCall;
class ResponseStore;
class ServedAdapters;
class SessionStore;
class StoredTexts;
class UnusedNames;

class ApiAdapter {
 public:
  virtual ~ApiAdapter() = default;

  // Called when the following events come from other weights than those of
  // CallContext::weight_version. APIs that do not show the name ignore it.
  virtual void set_weight_version(std::string name) { (void)name; }

  // Appends a stream's messages for this event to `out`; nothing if the answer is not streamed.
  // `event.finish`, if set, is not an error. A message longer than kBodyPieceBytes may be cut;
  // rest() then returns its remainder.
  virtual void event(size_t choice, const RequestEvent& event, std::string& out) = 0;

  // The remainder of a message, which is written before the next event() of the stream. So no turn
  // of the I/O thread formats a long message whole. It refers to data in the adapter.
  [[nodiscard]] virtual JsonPieces rest() { return {}; }

  // Appends the last messages of a stream, after every choice has finished.
  virtual void end(std::string& out) = 0;

  // The body of an answer that is not streamed, after every choice has finished. It refers to data
  // in the adapter and must not outlive it.
  [[nodiscard]] virtual JsonPieces body() = 0;

  // Appends the end of a stream that cannot be completed: in OpenAI's form, unless the API has its
  // own.
  virtual void error(const ApiError& failure, std::string& out);
};

// An id for some of a call's requests: those from index `begin` to `end` - 1.
struct RequestName {
  std::string id;
  size_t begin = 0;
  size_t end = 0;
};

// The answers for a call that continues without its client (background_responses.h).
struct BackgroundAnswer {
  std::string queued;      // body of the answer that the client gets at once
  StoredResponse running;  // stored until the answer is complete
};

// A parsed call: the requests for the engine, and the adapter for their events.
struct PreparedCall {
  std::string id;                  // id of the answer
  bool id_is_callers = false;      // the id was in the body: it is an error if it is in use
  std::vector<RequestName> names;  // further ids in the answer, of prompts and choices
  std::string answers_field;       // field that determines the number of requests, as "n"
  bool stream = false;
  StreamFormat stream_format = StreamFormat::kEvents;
  int64_t stream_interval = 1;  // least number of tokens per streamed event
  // One per choice, in prompt-major order; their ids are set at submission.
  std::vector<Request> requests;
  std::shared_ptr<ApiAdapter> adapter;
  std::optional<BackgroundAnswer> background;
  int64_t num_weight_updates = 0;      // number of weight updates that the adapter knows of
  bool no_logs = false;                // the request log omits this call's texts and parameters
  std::shared_ptr<LoggedCall> logged;  // the call's entry in the request log; null: the log is off
};

// A call for the engine, an error, or an answer that needs no engine.
using PrepareResult = std::variant<PreparedCall, ApiError, JsonAnswer>;

using AnswerResult = std::variant<JsonAnswer, ApiError>;

// The data that the reader of a call needs besides its body.
struct CallContext {
  const ModelInfo& model;
  // The engine that will run the call; null: any number of answers is accepted.
  const Engine* engine = nullptr;
  const TextCodec& codec;
  AnswerFormats formats;
  const std::vector<std::string>& served_names;  // names of the model, the server's own first
  bool allow_any_model_name = true;
  ServedAdapters* adapters = nullptr;  // adapters that requests may name; null: there are none
  const HttpRequest& head;             // the request, of which the headers are read
  const FairKey& fair_key;
  bool isolate_tenants = false;  // tenants do not share cached tokens (ServerOptions)
  std::shared_ptr<ResponseStore> responses = nullptr;          // null: responses are not stored
  std::shared_ptr<SessionStore> sessions = nullptr;            // null: there are no sessions
  std::shared_ptr<StoredTexts> stored_texts = nullptr;         // null: there is no store of files
  const tokenizer::CancellationCheck* is_cancelled = nullptr;  // null: encoding is never cancelled
  // Not null: this thread must not compile constraints. If one is not compiled yet
  // (TextCodec::is_compiled()), this is set to true, and the call is read again on another thread,
  // whatever the result here.
  bool* lacks_form = nullptr;
  std::string id;       // id from the header, or a generated one
  int64_t created = 0;  // time of the answer, seconds since 1970
  std::string weight_version = "default";
  // Fingerprint of the weights, from weights_digest(); empty: not shown.
  std::string system_fingerprint = {};
  // Number of the engine's weight updates when weight_version was read.
  int64_t num_weight_updates = 0;
  AnswerOptions answers = {};
  UnusedNames* unused_names = nullptr;    // outlives the call; null: nothing is logged
  std::string_view part_separator = " ";  // separator for TextCodec::render_conversation()

  // Logs once that the request contains something that the server does not use (unused_names.h).
  void note_unused(std::string_view what, std::string_view name, std::string_view why = {}) const;
  void note_unasked(const FieldReader& fields) const;  // logs the fields that no reader asked for
};

}  // namespace heddle::server
