// SPDX-License-Identifier: Apache-2.0
// Template: a chat template, parsed once and rendered for each request.
//
// The language is the part of Jinja that published chat templates use. It behaves like the
// environment in which transformers renders them: trim_blocks, lstrip_blocks, loop controls, the
// functions raise_exception and strftime_now, tojson as json.dumps, and a sandbox in which
// templates change nothing but their own variables. README.md lists the differences.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>

#include <heddle/status.h>

#include "chat/limits.h"
#include "chat/value.h"

namespace heddle::chat {

struct ParseOptions {
  bool trim_blocks = true;
  bool lstrip_blocks = true;
  RenderLimits limits;  // only the limits on a template's source are used
};

// Results of a render in addition to the text.
struct RenderReport {
  // The template called raise_exception. The error's message is then exactly the template's text
  // and concerns the client's messages. Other errors begin with "name:line:column: " and concern
  // the template.
  bool raised_exception = false;
  bool exceeded_limits = false;  // the error is a limit of RenderLimits that the conversation
                                 // exceeded
  int64_t num_steps = 0;
};

// The current local time of this machine.
std::tm local_time_now();

// Threading: immutable; many threads may render it concurrently.
class Template {
 public:
  // `name` appears in messages. Error: kInvalidArgument "name:line:column: message".
  static Result<Template> parse(std::string source, std::string name = "chat_template",
                                const ParseOptions& options = {});

  // `context` must be a dict with the template's variables. `local_now` returns the time that
  // strftime_now prints; `report` may be null. Cost: linear in what the template executes, bounded
  // by `limits`.
  // Error: kInvalidArgument "name:line:column: message", or exactly raise_exception's text.
  [[nodiscard]] Result<std::string> render(
      const Value& context, const RenderLimits& limits = {},
      const std::function<std::tm()>& local_now = local_time_now,
      RenderReport* report = nullptr) const;

  [[nodiscard]] const std::string& source() const;

 private:
  struct Parsed;

  explicit Template(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}

  std::shared_ptr<const Parsed> parsed_;  // copies of the template share it
};

}  // namespace heddle::chat
