// SPDX-License-Identifier: Apache-2.0
// DeltaAdapter: the base of the adapters of the other chat APIs: one answer to one prompt, sent as
// deltas (parsers/answer_delta.h). An API's adapter translates these into its own events. An answer
// that is sent as a whole is kept as parts, in the order in which a stream would have sent them.
//
// Threading: thread-confined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/answer_delta.h"
#include "server/api/openai/chat_answer.h"
#include "server/call/answer_log.h"
#include "server/call/answer_stream.h"

namespace heddle::server {

// A part of an answer. Two texts of one kind that follow each other are one part.
struct AnswerPart {
  enum class Kind : uint8_t { kReasoning, kContent, kCall };

  Kind kind = Kind::kContent;
  std::string text = {};  // of reasoning and content
  parsers::ToolCall call = {};
  size_t logprobs_end = 0;  // DeltaAdapter::content_logprobs(): the end of this content's tokens
};

class DeltaAdapter : public ApiAdapter {
 public:
  explicit DeltaAdapter(ChatAnswerOptions options);

  void event(size_t choice, const RequestEvent& event, std::string& out) final;
  void end(std::string& out) final;

  // event() calls it with every delta of the text; tests call it with recorded ones.
  void add(parsers::AnswerDelta delta, std::string& out);

 protected:
  // Of a stream, in this order: begin() with the first event, deliver() for every delta, finish().
  virtual void begin(std::string& out) = 0;
  virtual void deliver(const parsers::AnswerDelta& delta, std::string& out) = 0;
  virtual void finish(std::string& out) = 0;

  [[nodiscard]] const ChatAnswerOptions& options() const { return options_; }

  // Of an answer that is not streamed. A call that was cut stays a call, as in a stream; one that
  // is malformed is the text that it was.
  [[nodiscard]] const std::vector<AnswerPart>& parts() const { return parts_; }

  // Whether a call was complete.
  [[nodiscard]] bool called() const { return called_; }

  // Where logprobs were asked for: those of the tokens that made up the content so far.
  [[nodiscard]] const LogprobLog& content_logprobs() const { return content_logprobs_; }

  [[nodiscard]] const ChoiceCounts& counts() const { return log_.counts; }

  [[nodiscard]] double first_token_seconds() const { return first_token_seconds_; }

  // Of an answer that is complete.
  [[nodiscard]] Finish finished() const { return log_.finish.value_or(Finish{}); }

 private:
  void add_part(parsers::AnswerDelta delta);
  void add_text(AnswerPart::Kind kind, std::string_view text);

  const ChatAnswerOptions options_;
  AnswerStream stream_;
  ChoiceLog log_;  // without its text; logprobs are of tokens that no delta has shown yet
  LogprobLog content_logprobs_;
  std::vector<AnswerPart> parts_;
  bool called_ = false;
  double first_token_seconds_ = 0;
  bool begun_ = false;
};

}  // namespace heddle::server
