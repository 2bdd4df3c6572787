// SPDX-License-Identifier: Apache-2.0
// HistoryRepair: brings odd items of a history into the form that the readers of the APIs expect,
// so that what a model, a tool or a client wrote earlier never ends a conversation. The readers
// stay strict: what a user asks now is not repaired.
//
//   a text or content that is null or missing   ""
//   a text of another type                      its JSON
//   a content that is one part                  a list of it
//   null in a list                              left out
//   an id or a name that is no text             the digits of a number, else left out
//   a call without a name                       a call of "unknown"
//   a call that is no object                    text of its message
//   a role that is no text                      what the other fields say, else the assistant
//                                               after a user or a tool, a user after others
//   a type that is no text                      what the other fields say
//
// A value of another type than it should be is logged once, by the name of its field.
//
// Threading: immutable; the functions change their arguments alone.
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

  // An entry of a list of messages or items that is no object: a user's message with its text.
  // False: it is null, and nothing is left of it.
  bool make_object(nlohmann::ordered_json& item) const;

  // A message of /v1/chat/completions. `follows_question`: the one before is a user's or a tool's.
  // All reasoning is in `reasoning_content` then.
  void chat_message(nlohmann::ordered_json& message, bool follows_question) const;

  // An item of /v1/responses.
  void response_item(nlohmann::ordered_json& item, bool follows_question) const;

  // A message of /v1/messages, and a block of the type tool_result, which a tool wrote also where
  // it belongs to what is asked now.
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

// The role of a message; of one without a role that its other fields tell; else "".
[[nodiscard]] std::string role_in_history(const nlohmann::ordered_json& message);

// The number of messages, or of items from `begin` on, up to the last one that a model or a tool
// wrote: those are history, and what follows is asked now. Of several others only the last one may
// be without a role there.
[[nodiscard]] size_t num_past_messages(const nlohmann::ordered_json& messages);
[[nodiscard]] size_t num_past_items(const nlohmann::ordered_json& items, size_t begin);

}  // namespace heddle::server
