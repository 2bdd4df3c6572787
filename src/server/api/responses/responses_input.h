// SPDX-License-Identifier: Apache-2.0
// The field `input` of /v1/responses: a text, or items that become the messages of a chat.
//
//   message               a message; its parts stay apart, and documents that are text are text
//   function_call         tool_calls of an assistant's message, those of a turn in one
//   function_call_output  a message of the role tool
//   reasoning             reasoning_content of the assistant's next message: the text, else the
//                         summary
//   another *_call        with a `call_id` a call of the tool with that name; else OpenAI's servers
//   program               ran it: a line in the assistant's message before the next item
//   another *_output      a message of the role tool
//   agent_message         a user's message
//   additional_tools      a developer's message with the tools as JSON
//   mcp_list_tools, mcp_approval_*, compaction, compaction_trigger, context_compaction,
//   ghost_snapshot        passed over
//   item_reference        the item of that id that a kept response wrote
//   others                a line in the assistant's message before the next item, and logged once
//
// Threading: free functions without state; they run on the workers.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "server/api/responses/response_store.h"
#include "server/call/api_adapter.h"
#include "server/call/field_reader.h"
#include "server/http/api_error.h"

namespace heddle::server {

// Appends to `items`, the input of a response, those of its answer: an input that goes on from it.
void append_output_items(const nlohmann::ordered_json& output, nlohmann::ordered_json& items);

// Where the items are that a request may refer to.
struct KnownItems {
  const ResponseStore* store = nullptr;  // null: there are none
  std::string holder;                    // StoredResponse
};

// Appends the items of the field to the list `items`, which has those that came before, with a type
// and an id each, and the messages of all of them to the empty list `messages`. An item is referred
// to once: all together are no more than the store has. Error: also for an empty list of items
// where none came before.
std::optional<ApiError> read_responses_input(FieldReader& fields, const CallContext& context,
                                             const KnownItems& known, nlohmann::ordered_json& items,
                                             nlohmann::ordered_json& messages);

}  // namespace heddle::server
