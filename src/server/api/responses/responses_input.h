// SPDX-License-Identifier: Apache-2.0
// The field `input` of /v1/responses: a text, or items that become the messages of a chat.
//
//   message               a message; its parts stay separate, and text documents become text
//   function_call         tool_calls of an assistant's message, all calls of a turn in one message
//   function_call_output  a message of the role tool
//   reasoning             reasoning_content of the assistant's next message: the text, or else the
//                         summary
//   another *_call,
//   program               with a `call_id`, a call of the tool with that name; without one,
//                         OpenAI's servers ran it: a line in the assistant's message before the
//                         next item
//   another *_output      a message of the role tool
//   agent_message         a user's message
//   additional_tools      a developer's message with the tools as JSON
//   mcp_list_tools, mcp_approval_*, compaction, compaction_trigger, context_compaction,
//   ghost_snapshot        ignored
//   item_reference        the item with that id in a stored response
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

// Appends the items of a response's answer to `items`, its input: the input of a response that
// continues it.
void append_output_items(const nlohmann::ordered_json& output, nlohmann::ordered_json& items);

// The stored responses whose items a request may reference.
struct KnownItems {
  const ResponseStore* store = nullptr;  // null: no responses are stored
  std::string holder;                    // owner of the responses (StoredResponse::holder)
};

// Reads the field. Appends its items, each with a type and an id, to the list `items`, which
// contains the items of earlier responses. Appends the messages of all items to the empty list
// `messages`. Each item may be referenced once, so that all together are no larger than the store.
// Error: also for an empty list of items if there were none before.
std::optional<ApiError> read_responses_input(FieldReader& fields, const CallContext& context,
                                             const KnownItems& known, nlohmann::ordered_json& items,
                                             nlohmann::ordered_json& messages);

}  // namespace heddle::server
