// SPDX-License-Identifier: Apache-2.0
// ApiAdapter: turns the events of a call into one API's answer. A pure function from events to
// bytes: no socket, no clock, so that recorded events test it.
//
// A call has one or more choices (n answers to each of its prompts), each with an event stream of
// its own. A stream is made of what event() and end() append; any other answer of body() alone.
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
class SessionStore;
class StoredTexts;
class UnusedNames;

class ApiAdapter {
 public:
  virtual ~ApiAdapter() = default;

  // The events from now on are of other weights than those of CallContext::weight_version. An API
  // that does not show the name leaves it alone.
  virtual void set_weight_version(std::string name) { (void)name; }

  // Appends the messages of a stream to `out`, nothing otherwise. `event.finish`, if set, is not an
  // error. A message longer than kBodyPieceBytes may end early: rest() has what is left of it.
  virtual void event(size_t choice, const RequestEvent& event, std::string& out) = 0;

  // Taken after each event() of a stream and written before the next one, so that no turn of the
  // I/O thread formats a long message whole. Shows what the adapter keeps.
  [[nodiscard]] virtual JsonPieces rest() { return {}; }

  // After every choice has finished: the last messages of a stream, ...
  virtual void end(std::string& out) = 0;

  // ... or the body of an answer that is not streamed. Shows what the adapter keeps and must not
  // outlive it.
  [[nodiscard]] virtual JsonPieces body() = 0;

  // The end of a stream that cannot be completed. OpenAI's, unless an API has its own.
  virtual void error(const ApiError& failure, std::string& out);
};

// The id of some of a call's requests: those from `begin` to before `end`.
struct RequestName {
  std::string id;
  size_t begin = 0;
  size_t end = 0;
};

// The answers for a call that goes on without its client (background_responses.h).
struct BackgroundAnswer {
  std::string queued;      // the body that its client gets at once
  StoredResponse running;  // kept until the answer is complete
};

// A call that was read: the requests for the engine and the adapter for their events.
struct PreparedCall {
  std::string id;                  // of the answer
  bool id_is_callers = false;      // from the body: that it is live already is an error
  std::vector<RequestName> names;  // further ids in the answer: of prompts and choices
  std::string answers_field;       // what makes the requests as many as they are: "n"
  bool stream = false;
  StreamFormat stream_format = StreamFormat::kEvents;
  int64_t stream_interval = 1;    // tokens per streamed event, at least
  std::vector<Request> requests;  // one per choice, prompt-major; their ids are set at submission
  std::shared_ptr<ApiAdapter> adapter;
  std::optional<BackgroundAnswer> background;
  int64_t num_weight_updates = 0;      // of the engine, as far as the adapter knows
  bool no_logs = false;                // the request log has neither its texts nor its parameters
  std::shared_ptr<LoggedCall> logged;  // its place in the request log; null: the log is off
};

// An answer where the call needs no engine.
using PrepareResult = std::variant<PreparedCall, ApiError, JsonAnswer>;

using AnswerResult = std::variant<JsonAnswer, ApiError>;

// The surroundings of a call, for the reader of its body.
struct CallContext {
  const ModelInfo& model;
  const Engine* engine = nullptr;  // that will run the call; null: any number of answers fits
  const TextCodec& codec;
  AnswerFormats formats;
  const std::vector<std::string>& served_names;  // the first is ours
  bool allow_any_model_name = true;
  const HttpRequest& head;  // for its headers
  const FairKey& fair_key;
  bool isolate_tenants = false;                                // ServerOptions
  std::shared_ptr<ResponseStore> responses = nullptr;          // null: none are kept
  std::shared_ptr<SessionStore> sessions = nullptr;            // null: there are none
  std::shared_ptr<StoredTexts> stored_texts = nullptr;         // null: no files are kept
  const tokenizer::CancellationCheck* is_cancelled = nullptr;  // null: encoding goes to its end
  // Not null: a form that is not compiled yet (TextCodec::is_compiled()) is none of this thread's
  // work. This is set then, and the call is read again elsewhere, whatever comes of it here.
  bool* lacks_form = nullptr;
  std::string id;       // from the header, or made up
  int64_t created = 0;  // seconds since 1970
  std::string weight_version = "default";
  std::string system_fingerprint = {};  // weights_digest(), shortened; empty: not shown
  int64_t num_weight_updates = 0;       // of the engine, when the weights had that name
  AnswerOptions answers = {};
  UnusedNames* unused_names = nullptr;    // outlives the call; null: nothing is logged
  std::string_view part_separator = " ";  // TextCodec::render_conversation()

  // Logs once that the request has something that is not used (unused_names.h).
  void note_unused(std::string_view what, std::string_view name, std::string_view why = {}) const;
  void note_unasked(const FieldReader& fields) const;  // the fields that nobody asked for
};

}  // namespace heddle::server
