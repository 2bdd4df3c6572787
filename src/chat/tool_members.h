// SPDX-License-Identifier: Apache-2.0
// ToolMembers: the members that a template reads from every tool without checking that they exist.
// The template of gpt-oss, for example, appends the description to a text, so a tool without a
// description would make the request fail.
//
// Threading: immutable.
// Cost:      construction renders at most five short conversations.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "chat/chat_template.h"

namespace heddle::chat {

class ToolMembers {
 public:
  explicit ToolMembers(const ChatTemplate& chat_template);

  // Whether a tool lacks a member that the template needs, or has null where the template does not
  // accept null.
  [[nodiscard]] bool misses(const nlohmann::ordered_json& tools) const;

  // The tools with an empty description, and parameters without properties, added where the
  // template needs them. A null that the template does not accept is removed.
  [[nodiscard]] nlohmann::ordered_json complete(nlohmann::ordered_json tools) const;

 private:
  std::vector<std::string> needed_;
  bool takes_null_ = true;
};

}  // namespace heddle::chat
