// SPDX-License-Identifier: Apache-2.0
// Reads the beginning of a call that is a JSON object, up to its arguments:
//
//   {"name": "f", "arguments": {..}}, {"type": "function", "function": {"name": "f", ..}},
//   {"arguments": "{..}", "name": "f"}, {"name": "f", "city": "Paris"}, {{"name": "f", ..}}
//
// An object that defines a tool, with a description next to the name or a schema as the parameters,
// is not a call.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>

#include "parsers/call_cursor.h"
#include "parsers/call_header.h"
#include "parsers/tool_names.h"

namespace heddle::parsers {

// The reason to believe that a call begins at an object.
enum class Trust : uint8_t {
  kMarked,  // a mark announces a call
  kStart,   // the answer begins here; an object with keys that calls do not have is not a call
  kKnown,   // any JSON may occur here; only an object that calls one of the request's tools is a
            // call
};

[[nodiscard]] CallHeader read_call_object(const CallCursor& cursor, const ToolNames& names,
                                          Trust trust);

}  // namespace heddle::parsers
