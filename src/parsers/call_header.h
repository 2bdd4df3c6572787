// SPDX-License-Identifier: Apache-2.0
// Types that all parsers of tool calls share: the header of a call, and the progress of a parser
// that receives its text in pieces.
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

// The notation of a call's arguments.
enum class ArgumentsKind : uint8_t {
  kJson,    // a JSON object, or a string that contains one (json_arguments.h)
  kPython,  // Python arguments, up to the closing parenthesis (python_arguments.h)
  kFormat,  // a notation that only this format has
};

// The beginning of a call, before its arguments.
struct CallHeader {
  Match match = Match::kNo;
  size_t size = 0;  // length of the header in bytes
  std::string name = {};
  std::string id = {};  // id that the model wrote; empty: the parser generates one
  // The complete arguments, a JSON object, if they precede the name: the call is then complete.
  std::optional<std::string> arguments = {};
  std::vector<std::string> more_arguments = {};  // arguments of further calls of the same tool
  size_t open_objects = 0;                       // number of open objects around the arguments
  ArgumentsKind kind = ArgumentsKind::kJson;
  // The beginning of the arguments' object if the call's own object contains the arguments as
  // members: the next member follows the header.
  std::string lead = {};
};

// Result of reading a part of the arguments. kMore: more text is needed, unless some was consumed.
// kFailed: the arguments are malformed.
enum class Progress : uint8_t { kMore, kDone, kFailed };

// Text that closes a call; with kYes, `size` is its number of bytes.
struct Closing {
  Match match = Match::kNo;
  size_t size = 0;
};

}  // namespace heddle::parsers
