// SPDX-License-Identifier: Apache-2.0
// LostTextCheck: checks whether a prompt contains every text of its conversation. Templates omit
// what they do not support: a later system text, an assistant's text next to a call, all calls.
//
// The check searches for the contents of messages, the names of calls and their arguments. It does
// not search for reasoning, because templates omit that of earlier turns on purpose. A text may be
// trimmed or escaped, and may lack marks that the template's source contains, such as "/no_think".
// An assistant's text may lack everything before such a mark, as before "</think>".
//
// Threading: immutable.
// Cost: linear in the prompt and the texts. Searches that restart at the front, because the
// template moved a text there, read at most 16 times the prompt; texts beyond that count as found.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace heddle::chat {

class LostTextCheck {
 public:
  // `template_source` must be the source of a template that parses.
  explicit LostTextCheck(const std::string& template_source);

  // The index of the first message with a text that `prompt` lacks; none if there is no such
  // message. `skip_assistant`: does not search for the assistant's texts.
  [[nodiscard]] std::optional<size_t> find(const nlohmann::ordered_json& messages,
                                           std::string_view prompt, bool skip_assistant) const;

 private:
  std::vector<std::string> marks_;  // string literals of the source that are not words
};

}  // namespace heddle::chat
