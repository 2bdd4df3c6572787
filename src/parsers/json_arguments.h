// SPDX-License-Identifier: Apache-2.0
// JsonArguments reads a call's arguments that are a JSON object, or a text that says one, and what
// follows them of the objects around them. Keys are those of the tool's parameters that they mean.
//
// Threading: thread-compatible.
// Memory:    a text that says an object is held, at most kMaxTextBytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "parsers/answer_delta.h"
#include "parsers/call_header.h"
#include "parsers/json_scanner.h"

namespace heddle::parsers {

class JsonArguments {
 public:
  static constexpr size_t kMaxTextBytes = 4 << 20;

  JsonArguments() = default;

  // `text` is what follows the header; it is not empty. `object` scans the object of arguments.
  JsonArguments(const CallHeader& header, std::string_view text, JsonScanner object);

  // Reads on and appends the JSON that is certain.
  Progress read(std::string_view text, TextEnd end, size_t& used, std::string& json);

  // The text has ended before the arguments. True: all that was begun is complete.
  bool finish(std::string& json);

  // The end of the objects around the arguments, at the front of `text`, which is not white space.
  Closing read_tail(std::string_view text);

 private:
  Progress read_text(std::string_view text, size_t& used, std::string& json);
  [[nodiscard]] static Match begins_end(std::string_view text);

  JsonScanner object_;
  std::string lead_;                 // beginning of the object, read and not yet emitted
  std::optional<std::string> text_;  // in place of the object
  bool text_is_escaped_ = false;     // a backslash came before
  std::optional<JsonScanner> tail_;
};

// The object that a text says, as `scanner` copies it; of a blank one an empty object.
[[nodiscard]] std::optional<std::string> object_in_text(std::string_view text,
                                                        JsonScanner scanner = {});

}  // namespace heddle::parsers
