// SPDX-License-Identifier: Apache-2.0
// ToolMembers: the members that a template reads of every tool without asking whether they are
// there. The template of gpt-oss, for example, appends the description to a text, so that a tool
// without a description would fail the request.
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

  // Whether a tool lacks something that the template needs, or has null where it takes none.
  [[nodiscard]] bool misses(const nlohmann::ordered_json& tools) const;

  // The tools with an empty description, and parameters without properties, where they are needed.
  // A null that the template does not take is removed.
  [[nodiscard]] nlohmann::ordered_json complete(nlohmann::ordered_json tools) const;

 private:
  std::vector<std::string> needed_;
  bool takes_null_ = true;
};

}  // namespace heddle::chat
