// SPDX-License-Identifier: Apache-2.0
// Template: a chat template, parsed once and rendered for each request.
//
// The language is the part of Jinja that published chat templates use, with the behaviour of the
// environment transformers renders them in: trim_blocks, lstrip_blocks, loop controls, the
// functions raise_exception and strftime_now, tojson as json.dumps, and a sandbox in which
// templates change nothing but their own variables. README.md lists what is left out.
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
  RenderLimits limits;  // source limits
};

// Results of a render other than the text.
struct RenderReport {
  // The template called raise_exception: the error's message is exactly the template's text, meant
  // for the client whose messages it rejects. Other errors carry "name:line:column: " and concern
  // the template.
  bool raised_exception = false;
  bool exceeded_limits = false;  // RenderLimits: the error is of the conversation's size
  int64_t num_steps = 0;
};

// The machine's local time.
std::tm local_time_now();

// Threading: immutable; many threads may render it concurrently.
class Template {
 public:
  // `name` is for messages. Error: kInvalidArgument "name:line:column: message".
  static Result<Template> parse(std::string source, std::string name = "chat_template",
                                const ParseOptions& options = {});

  // `context` must be a dict: the template's variables. `local_now` is the time strftime_now shows;
  // `report` may be null. Cost: linear in what the template does, bounded by `limits`.
  // Error: kInvalidArgument "name:line:column: message", or exactly raise_exception's text.
  [[nodiscard]] Result<std::string> render(
      const Value& context, const RenderLimits& limits = {},
      const std::function<std::tm()>& local_now = local_time_now,
      RenderReport* report = nullptr) const;

  [[nodiscard]] const std::string& source() const;

 private:
  struct Parsed;

  explicit Template(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}

  std::shared_ptr<const Parsed> parsed_;  // shared by copies of the template
};

}  // namespace heddle::chat
