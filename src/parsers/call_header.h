// SPDX-License-Identifier: Apache-2.0
// Types that all parsers of tool calls share: the header of a call, and the progress of a reader
// that gets its text in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parsers/marker_search.h"

namespace heddle::parsers {

inline constexpr size_t kMaxHeaderBytes = 16 << 10;
inline constexpr size_t kMaxNameBytes = 256;

// How a call's arguments are written.
enum class ArgumentsKind : uint8_t {
  kJson,    // an object, or a text that says one (json_arguments.h)
  kPython,  // Python's, up to the closing parenthesis (python_arguments.h)
  kFormat,  // as only the format writes them
};

// The beginning of a call, up to its arguments.
struct CallHeader {
  Match match = Match::kNo;
  size_t size = 0;  // length of the header
  std::string name = {};
  std::string id = {};  // what the model calls it by; empty: it gets one
  // All of the arguments, a JSON object, where they came before the name: the call is complete.
  std::optional<std::string> arguments = {};
  std::vector<std::string> more_arguments = {};  // of further calls of the same tool
  size_t open_objects = 0;                       // around the arguments
  ArgumentsKind kind = ArgumentsKind::kJson;
  // The beginning of the arguments' object, where the call's own object is that: the next member
  // follows the header.
  std::string lead = {};
};

// Progress in the arguments. kMore: more text is needed, unless some was consumed. kFailed: they
// are malformed.
enum class Progress : uint8_t { kMore, kDone, kFailed };

// Something that closes a call: `size` bytes of it for kYes.
struct Closing {
  Match match = Match::kNo;
  size_t size = 0;
};

}  // namespace heddle::parsers
