// SPDX-License-Identifier: Apache-2.0
// DeltaAdapter: base of the adapters of the other chat APIs: one answer to one prompt, sent as
// deltas (parsers/answer_delta.h), which an API's adapter converts to its own events. An answer
// that is sent as a whole is collected as parts, in the order in which a stream would send them.
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

// A part of an answer. Consecutive texts of the same kind form one part.
struct AnswerPart {
  enum class Kind : uint8_t { kReasoning, kContent, kCall };

  Kind kind = Kind::kContent;
  std::string text = {};  // text, if the part is reasoning or content
  parsers::ToolCall call = {};
  size_t logprobs_end = 0;  // end of this content's tokens in DeltaAdapter::content_logprobs()
};

class DeltaAdapter : public ApiAdapter {
 public:
  explicit DeltaAdapter(ChatAnswerOptions options);

  void event(size_t choice, const RequestEvent& event, std::string& out) final;
  void end(std::string& out) final;

  // Processes one delta. event() calls it for every delta of the text; tests call it with recorded
  // ones.
  void add(parsers::AnswerDelta delta, std::string& out);

 protected:
  // For streams, called in this order: begin() with the first event, deliver() for every delta,
  // finish().
  virtual void begin(std::string& out) = 0;
  virtual void deliver(const parsers::AnswerDelta& delta, std::string& out) = 0;
  virtual void finish(std::string& out) = 0;

  [[nodiscard]] const ChatAnswerOptions& options() const { return options_; }

  // The parts of an answer that is not streamed. A call that was cut off stays a call, as in a
  // stream; a malformed one becomes its text.
  [[nodiscard]] const std::vector<AnswerPart>& parts() const { return parts_; }

  // Whether the answer has a complete call.
  [[nodiscard]] bool called() const { return called_; }

  // If requested, the log probabilities of the tokens that the content so far consists of.
  [[nodiscard]] const LogprobLog& content_logprobs() const { return content_logprobs_; }

  [[nodiscard]] const ChoiceCounts& counts() const { return log_.counts; }

  [[nodiscard]] double first_token_seconds() const { return first_token_seconds_; }

  // How a complete answer ended.
  [[nodiscard]] Finish finished() const { return log_.finish.value_or(Finish{}); }

 private:
  void add_part(parsers::AnswerDelta delta);
  void add_text(AnswerPart::Kind kind, std::string_view text);

  const ChatAnswerOptions options_;
  AnswerStream stream_;
  ChoiceLog log_;  // counters, and log probabilities of tokens that no delta has shown yet; its
                   // text is not used
  LogprobLog content_logprobs_;
  std::vector<AnswerPart> parts_;
  bool called_ = false;
  double first_token_seconds_ = 0;
  bool begun_ = false;
};

}  // namespace heddle::server
