// SPDX-License-Identifier: Apache-2.0
// ConversationRenderer: renders conversations so that the prompt contains all their texts.
//
// A chat template may raise an exception for a message that it does not expect, a second system
// message for example, or leave its text out (arrangement.h). The renderer tries the template on
// some short conversations first, to find the form that it accepts. It converts each conversation
// to that form and checks that the prompt contains all texts (lost_text.h). If one is missing, or
// the template raises an exception, it tries the other forms, the smallest change first.
//
// Conversations with the same beginning get the same form, if the template accepts it, so that the
// next turn of a conversation can reuse the cache.
//
// Threading: immutable: render() may be called from many threads at once.
// Cost:      construction renders some dozens of short conversations, in milliseconds; render()
//            renders once, or up to a dozen times if the template refuses a conversation.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

#include "chat/arrangement.h"
#include "chat/chat_template.h"
#include "chat/lost_text.h"
#include "chat/tool_members.h"

namespace heddle::chat {

class ConversationRenderer {
 public:
  explicit ConversationRenderer(ChatTemplate chat_template);

  // `messages` as for arrange(), the other arguments as for ChatTemplate::render(). Error:
  // kInvalidArgument with the template's own message, or naming the message whose text is missing
  // from the prompt in every form. Missing texts of the assistant are not an error: if they are
  // missing in every form, the result is a prompt that has all other texts.
  [[nodiscard]] Result<std::string> render(const nlohmann::ordered_json& messages,
                                           const nlohmann::ordered_json& tools,
                                           bool add_generation_prompt,
                                           const nlohmann::ordered_json& extra_variables,
                                           std::string_view part_separator = " ") const;

  [[nodiscard]] const ChatTemplate& chat_template() const { return template_; }

  // Whether the template writes the names of tools into the prompt.
  [[nodiscard]] bool shows_tools() const { return shows_tools_; }

  // The form in which the template accepts most conversations, with or without tools.
  [[nodiscard]] const Arrangement& usual_arrangement(bool with_tools) const {
    return usual_[with_tools ? 1 : 0];
  }

 private:
  ChatTemplate template_;
  std::array<LostTextCheck, 2> checks_;  // checks of the templates without tools and with tools, in
                                         // the order of usual_
  std::array<Arrangement, 2> usual_;
  ToolMembers tool_members_;
  bool shows_tools_;
};

}  // namespace heddle::chat
