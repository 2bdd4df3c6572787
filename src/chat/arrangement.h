// SPDX-License-Identifier: Apache-2.0
// Arrangement: the form in which one template takes a conversation. Templates differ in the system
// texts that they take, in whether roles must take turns, in how they read parts of a message and
// calls of tools. arrange() brings a conversation into such a form, and keeps every text of it.
//
// Messages are objects as /v1/chat/completions has them: `content` is a text or a list of
// {"type": "text", "text": TEXT}, `tool_calls` have `arguments` as text or as an object.
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
  kInPlace,      // leading ones are joined into one message, later ones stay
  kLateInTurns,  // later ones are part of a user's turn
  kLateInFirst,  // later ones are part of the first one
  kInTurns,      // all of them are part of users' turns
};

// Speaker: the author of a message. Templates write each of the four in another way.
enum class Speaker : uint8_t { kSystem, kUser, kAssistant, kTool };

// System and developer, user, assistant, tool and function; nullopt for another role.
[[nodiscard]] std::optional<Speaker> speaker_of(const nlohmann::ordered_json& message);

struct Arrangement {
  SystemTexts systems = SystemTexts::kInPlace;
  std::array<bool, 4> lists = {};  // by Speaker: keep lists of parts; otherwise join them
  std::array<bool, 4> wraps = {};  // by Speaker: make a text a list of one part
  bool turns_alternate = false;    // join neighbouring messages of one role; a user begins
  bool one_call_each = false;      // one call per message, its result comes next
  bool null_content = false;       // content of messages with calls but no text is null
  bool content_apart = false;      // a message with text and calls is split in two
  bool short_ids = false;          // ids of calls have nine letters and digits
  bool orphans_as_text = false;    // a tool's result without its call is part of a user's turn
  bool fills_empty = false;        // an assistant's message without text and calls gets a blank
  bool calls_as_text = false;      // calls and results are text of the assistant and the user
  ArgumentsForm arguments = ArgumentsForm::kValues;

  bool operator==(const Arrangement&) const = default;

  [[nodiscard]] bool takes_lists(Speaker speaker) const {
    return lists[static_cast<size_t>(speaker)];
  }
};

// ConversationTraits: the things in a conversation that an arrangement may change.
struct ConversationTraits {
  bool has_system = false;
  bool has_late_system = false;    // a system message follows a message of another role
  bool has_several_first = false;  // several system texts lead the conversation
  bool has_lists = false;
  bool has_calls = false;
  bool has_results = false;
  bool has_parallel_calls = false;
  bool has_content_beside_calls = false;
  bool has_empty_answer = false;
  bool breaks_turns = false;  // neighbours of one role, or no user at the beginning
};

[[nodiscard]] ConversationTraits traits_of(const nlohmann::ordered_json& messages);

// `separator` joins the parts of a message that becomes one text.
[[nodiscard]] nlohmann::ordered_json arrange(const nlohmann::ordered_json& messages,
                                             const Arrangement& arrangement,
                                             std::string_view separator);

// The content of a message as one text.
[[nodiscard]] std::string joined_content(const nlohmann::ordered_json& message,
                                         std::string_view separator);

}  // namespace heddle::chat
