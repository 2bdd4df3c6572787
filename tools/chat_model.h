// SPDX-License-Identifier: Apache-2.0
// ChatModel: the model behind `heddle chat`: one in this process, or one on a server.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

namespace heddle::tools {

struct ChatAnswer {
  std::string text;
  std::string speed;  // text of CallSpeed::to_string(); empty if no token was drawn
};

class ChatModel {
 public:
  using ShowText = std::function<void(std::string_view text)>;

  ChatModel() = default;
  virtual ~ChatModel() = default;

  ChatModel(const ChatModel&) = delete;
  ChatModel& operator=(const ChatModel&) = delete;

  // Name and context, as "heddle-tiny, 8192 tokens of context".
  [[nodiscard]] virtual std::string description() const = 0;

  // Answers the last of the chat messages, which are in OpenAI's form, and calls `show` with each
  // part of the text as it arrives. A cancelled answer ends early and is returned like others.
  // Error: the conversation does not fit the context, or the reason why the model could not answer.
  virtual Result<ChatAnswer> answer(const nlohmann::ordered_json& messages,
                                    const ShowText& show) = 0;

  // Cancels the current answer; returns false if there is none. Called from any thread.
  virtual bool cancel() = 0;
};

}  // namespace heddle::tools
