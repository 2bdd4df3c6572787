// SPDX-License-Identifier: Apache-2.0
// ChatModel: who answers in `heddle chat`: a model in this process, or one that a server has.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

namespace heddle::tools {

struct ChatAnswer {
  std::string text;
  std::string speed;  // CallSpeed::to_string(); empty where nothing was drawn
};

class ChatModel {
 public:
  using ShowText = std::function<void(std::string_view text)>;

  ChatModel() = default;
  virtual ~ChatModel() = default;

  ChatModel(const ChatModel&) = delete;
  ChatModel& operator=(const ChatModel&) = delete;

  // "heddle-tiny, 8192 tokens of context".
  [[nodiscard]] virtual std::string description() const = 0;

  // Answers the last of OpenAI's chat messages and calls `show` with every part of the text as it
  // comes. An answer that was cancelled ends early and is none the less one. Error: the
  // conversation does not fit, or what kept the model from answering.
  virtual Result<ChatAnswer> answer(const nlohmann::ordered_json& messages,
                                    const ShowText& show) = 0;

  // Ends the answer that is under way; false where none is. From any thread.
  virtual bool cancel() = 0;
};

}  // namespace heddle::tools
