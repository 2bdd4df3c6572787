// SPDX-License-Identifier: Apache-2.0
// LostTextCheck: finds out whether a prompt has every text of its conversation. Templates leave out
// what they have no place for: a late system text, what an assistant says beside a call, all calls.
//
// The check looks for the contents of messages, the names of calls and their arguments. Reasoning
// is none of them: templates drop that of earlier turns on purpose. A text may be trimmed or
// escaped, and may lose the marks that the template's source names, as "/no_think"; of an
// assistant's text what stands before such a mark, as "</think>", may be missing.
//
// Threading: immutable.
// Cost: linear in the prompt and the texts. Searches that begin anew because a text was moved to
// the
//       front read at most 16 times the prompt; texts beyond that count as found.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace heddle::chat {

class LostTextCheck {
 public:
  // The source of a template that parses.
  explicit LostTextCheck(const std::string& template_source);

  // The index of the first message with a text that `prompt` lacks. `skip_assistant`: those of the
  // assistant are not looked for.
  [[nodiscard]] std::optional<size_t> find(const nlohmann::ordered_json& messages,
                                           std::string_view prompt, bool skip_assistant) const;

 private:
  std::vector<std::string> marks_;  // literals of the source that are no words
};

}  // namespace heddle::chat
