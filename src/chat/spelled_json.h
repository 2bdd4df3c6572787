// SPDX-License-Identifier: Apache-2.0
// Converts the arguments of an earlier tool call to a value that remembers how they were spelled.
//
// Templates write arguments with `tojson`, which would change the spaces that the model wrote, and
// so the tokens: the next turn could not reuse the cache after that point. `tojson` writes each
// list and dict that was read here in its original spelling (json.h).
//
// A model does not always write valid JSON. A text that ends too early is read as if its strings,
// lists and objects ended there; `tojson` still writes the original text. Any other text that is
// not a JSON object becomes {"arguments": TEXT}, which `tojson` writes as that text.
//
// Threading: free functions without state.
#pragma once

#include <string>

#include <heddle/status.h>

#include "chat/value.h"

namespace heddle::chat {

// Returns a dict; a blank text gives an empty one without a spelling. Cost: linear. Error:
// kInvalidArgument for text that is not UTF-8.
Result<Value> value_from_arguments(std::string text);

}  // namespace heddle::chat
