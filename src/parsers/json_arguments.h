// SPDX-License-Identifier: Apache-2.0
// JsonArguments parses a call's arguments that are a JSON object, or a string that contains one,
// and the end of the objects around them. Keys are replaced by the names of the parameters that
// they mean.
//
// Threading: thread-compatible.
// Memory:    a string that contains an object is held back, at most kMaxTextBytes.
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

  // `text` is the text after the header, not empty. `object` parses the object of arguments.
  JsonArguments(const CallHeader& header, std::string_view text, JsonScanner object);

  // Parses more text and appends the JSON that is certain.
  Progress read(std::string_view text, TextEnd end, size_t& used, std::string& json);

  // The answer ended within the arguments. Returns true if everything that was begun is complete.
  bool finish(std::string& json);

  // Reads the end of the objects around the arguments, at the beginning of `text`, which must not
  // be white space.
  Closing read_tail(std::string_view text);

 private:
  Progress read_text(std::string_view text, size_t& used, std::string& json);
  [[nodiscard]] static Match begins_end(std::string_view text);

  JsonScanner object_;
  std::string lead_;                 // beginning of the arguments' object that is not emitted yet
  std::optional<std::string> text_;  // the string that contains the arguments, if they are not an
                                     // object
  bool text_is_escaped_ = false;     // the last character in that string was a backslash
  std::optional<JsonScanner> tail_;
};

// Parses the object that a string contains and copies it with `scanner`; a blank string gives an
// empty object.
[[nodiscard]] std::optional<std::string> object_in_text(std::string_view text,
                                                        JsonScanner scanner = {});

}  // namespace heddle::parsers
