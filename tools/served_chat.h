// SPDX-License-Identifier: Apache-2.0
// ServedChat: a conversation with a model on a server, through OpenAI's chat completions.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

#include "tools/chat_model.h"
#include "tools/cli/options_sampling.h"
#include "tools/load/options_served.h"
#include "tools/load/server_call.h"

namespace heddle::tools {

// Adds the sampling fields that were set to the body of a request, and no others.
void add_sampling(const SamplingSettings& sampling, nlohmann::ordered_json& body);

// Replaces an empty model name by the first model of the server. Error: kUnavailable if no server
// answers; kNotFound if it lists no model.
Status choose_served_model(const ServerAddress& address, ServedSettings& served);

// Why the server did not answer, with the remedy if one is known.
std::string refusal_text(const ServerAddress& address, const ServerReply& reply);

// Connects to a model on a server. Reasoning that the server sends separately is shown before the
// answer and is not added to the conversation. Error: kInvalidArgument for an invalid URL;
// kUnavailable if no server answers; kNotFound if it lists no model.
Result<std::unique_ptr<ChatModel>> make_served_chat(ServedSettings served,
                                                    const SamplingSettings& sampling);

}  // namespace heddle::tools
