// SPDX-License-Identifier: Apache-2.0
// Arrangement: the form in which one template accepts a conversation. Templates differ in which
// system texts they accept, in whether roles must alternate, and in how they read parts of a
// message and tool calls. arrange() converts a conversation to such a form and keeps all its texts.
//
// Messages are objects as in /v1/chat/completions: `content` is a text or a list of {"type":
// "text", "text": TEXT}, and `tool_calls` have `arguments` as text or as an object.
//
// Threading: free functions without state.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "chat/chat_template.h"

namespace heddle::chat {

enum class SystemTexts : uint8_t {
  kInPlace,      // system texts at the beginning are joined into one message, later ones stay in
                 // place
  kLateInTurns,  // later system texts become part of a user's turn
  kLateInFirst,  // later system texts become part of the first system message
  kInTurns,      // all system texts become part of users' turns
};

// Speaker: the author of a message. A template may write each of the four differently.
enum class Speaker : uint8_t { kSystem, kUser, kAssistant, kTool };

// The speaker by the message's role: system or developer, user, assistant, tool or function;
// nullopt for another role.
[[nodiscard]] std::optional<Speaker> speaker_of(const nlohmann::ordered_json& message);

struct Arrangement {
  SystemTexts systems = SystemTexts::kInPlace;
  std::array<bool, 4> lists = {};  // by Speaker: keep content that is a list of parts; otherwise
                                   // join the parts to one text
  std::array<bool, 4> wraps = {};  // by Speaker: convert content that is a text to a list of one
                                   // part
  bool turns_alternate = false;    // join neighbouring messages of one role; begin with a user's
                                   // message
  bool one_call_each = false;      // give each call its own message, followed by the call's result
  bool null_content = false;       // set the content of messages with calls but no text to null
  bool content_apart = false;      // split a message with text and calls into two messages
  bool short_ids = false;          // replace call ids by nine letters and digits
  bool orphans_as_text = false;    // make a tool's result without a matching call part of a user's
                                   // turn
  bool fills_empty = false;        // give an assistant's message without text and calls a blank as
                                   // content
  bool calls_as_text = false;      // write calls as the assistant's text and results as the user's
  ArgumentsForm arguments = ArgumentsForm::kValues;

  bool operator==(const Arrangement&) const = default;

  [[nodiscard]] bool takes_lists(Speaker speaker) const {
    return lists[static_cast<size_t>(speaker)];
  }
};

// ConversationTraits: the properties of a conversation on which arrangements have an effect.
struct ConversationTraits {
  bool has_system = false;
  bool has_late_system = false;    // a system message follows a message of another role
  bool has_several_first = false;  // several system texts are at the beginning of the conversation
  bool has_lists = false;
  bool has_calls = false;
  bool has_results = false;
  bool has_parallel_calls = false;
  bool has_content_beside_calls = false;
  bool has_empty_answer = false;
  bool breaks_turns = false;  // neighbouring messages have the same role, or the first one is not a
                              // user's
};

[[nodiscard]] ConversationTraits traits_of(const nlohmann::ordered_json& messages);

// Converts `messages` to the form `how`. `separator` joins the parts of a message that becomes one
// text.
[[nodiscard]] nlohmann::ordered_json arrange(const nlohmann::ordered_json& messages,
                                             const Arrangement& arrangement,
                                             std::string_view separator);

// The content of a message as one text, with its parts joined by `separator`.
[[nodiscard]] std::string joined_content(const nlohmann::ordered_json& message,
                                         std::string_view separator);

}  // namespace heddle::chat
