// SPDX-License-Identifier: Apache-2.0
// The arguments of a tool call in a history, as a value that remembers how they were spelled.
//
// Templates show arguments by `tojson`, which would change the spaces that the model wrote, and
// with them the tokens: the next turn could not reuse the cache from there on. Each list and dict
// read here is written by `tojson` as it was spelled (json.h).
//
// A model does not always write valid JSON. A text that ends too early is read as if its strings,
// lists and objects ended there; for `tojson` it keeps its spelling. Any other text that is no JSON
// object becomes {"arguments": TEXT}, which has that text as its spelling.
//
// Threading: free functions without state.
#pragma once

#include <string>

#include <heddle/status.h>

#include "chat/value.h"

namespace heddle::chat {

// A dict, without a spelling where `text` is blank. Cost: linear. Error: kInvalidArgument for text
// that is not UTF-8.
Result<Value> value_from_arguments(std::string text);

}  // namespace heddle::chat
