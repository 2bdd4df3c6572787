// SPDX-License-Identifier: Apache-2.0
// Reads the beginning of a call that is a JSON object, up to its arguments:
//
//   {"name": "f", "arguments": {..}}, {"type": "function", "function": {"name": "f", ..}},
//   {"arguments": "{..}", "name": "f"}, {"name": "f", "city": "Paris"}, {{"name": "f", ..}}
//
// An object that defines a tool, with a description beside the name or a schema as the parameters,
// is no call.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>

#include "parsers/call_cursor.h"
#include "parsers/call_header.h"
#include "parsers/tool_names.h"

namespace heddle::parsers {

// How certain it is that a call begins at an object.
enum class Trust : uint8_t {
  kMarked,  // a mark says that a call is meant
  kStart,   // the answer begins here: other keys than a call's make it something else
  kKnown,   // any JSON may stand here: it is a call of one of the request's tools, or none
};

[[nodiscard]] CallHeader read_call_object(const CallCursor& cursor, const ToolNames& names,
                                          Trust trust);

}  // namespace heddle::parsers
