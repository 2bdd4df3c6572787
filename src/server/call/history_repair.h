// SPDX-License-Identifier: Apache-2.0
// HistoryRepair: converts irregular items of a history into the form that the readers of the APIs
// expect, so that nothing that a model, a tool or a client wrote earlier can end a conversation.
// The readers stay strict: the user's new messages are not repaired.
//
//   a text or content that is null or missing   ""
//   a text of another type                      its JSON as text
//   a content that is one part                  a list with this part
//   null in a list                              dropped
//   an id or a name that is no text             the digits if it is a number, else dropped
//   a call without a name                       a call of "unknown"
//   a call that is no object                    text of its message
//   a role that is no text                      derived from the other fields, else assistant after
//                                               a user or a tool, and user after others
//   a type that is no text                      derived from the other fields
//
// A value of the wrong type is logged once for each name of a field.
//
// Threading: immutable; the functions only change their arguments.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "server/call/api_adapter.h"

namespace heddle::server {

class HistoryRepair {
 public:
  // `context` outlives the object.
  explicit HistoryRepair(const CallContext& context) : context_(context) {}

  // Converts an entry of a list of messages or items that is no object to a user's message with its
  // text. Returns false if it is null, and the entry should be dropped.
  bool make_object(nlohmann::ordered_json& item) const;

  // Repairs a message of /v1/chat/completions. `follows_question`: the message before is a user's
  // or a tool's. Afterwards all reasoning is in `reasoning_content`.
  void chat_message(nlohmann::ordered_json& message, bool follows_question) const;

  // Repairs an item of /v1/responses.
  void response_item(nlohmann::ordered_json& item, bool follows_question) const;

  // Repairs a message of /v1/messages; also its blocks of the type tool_result, which a tool wrote
  // even in a new message of the user.
  void anthropic_message(nlohmann::ordered_json& message, bool follows_question) const;
  void tool_result(nlohmann::ordered_json& block) const;

 private:
  void note(std::string_view field, const nlohmann::ordered_json& value) const;
  void role(nlohmann::ordered_json& message, bool follows_question) const;
  void text(nlohmann::ordered_json& object, const std::string& field) const;
  void name(nlohmann::ordered_json& object, const std::string& field) const;
  void tool_name(nlohmann::ordered_json& function) const;
  void content(nlohmann::ordered_json& object, const std::string& field) const;
  void part(nlohmann::ordered_json& part) const;
  void reasoning(nlohmann::ordered_json& message) const;
  void calls(nlohmann::ordered_json& message) const;
  void call(nlohmann::ordered_json& call) const;

  const CallContext& context_;
};

// The role of a message; if it has none, the one that its other fields imply; else "".
[[nodiscard]] std::string role_in_history(const nlohmann::ordered_json& message);

// The number of messages, or of items after index `begin`, up to the last one that a model or a
// tool wrote. These are history, and the rest is the user's new message. In that rest only the last
// message may lack a role.
[[nodiscard]] size_t num_past_messages(const nlohmann::ordered_json& messages);
[[nodiscard]] size_t num_past_items(const nlohmann::ordered_json& items, size_t begin);

}  // namespace heddle::server
