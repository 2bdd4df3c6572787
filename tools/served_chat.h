// SPDX-License-Identifier: Apache-2.0
// ServedChat: a conversation with a model that a server of OpenAI's chat completions has.
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

// The fields of a request to the server that settings ask for, those alone.
void add_sampling(const SamplingSettings& sampling, nlohmann::ordered_json& body);

// Sets an empty name of a model to the first that the server has. Error: kUnavailable where no
// server answers; kNotFound where it names no model.
Status choose_served_model(const ServerAddress& address, ServedSettings& served);

// Why the server did not answer, with the remedy where one is known.
std::string refusal_text(const ServerAddress& address, const ServerReply& reply);

// Reasoning that comes apart from the answer is shown before it and is no part of the conversation.
// Error: kInvalidArgument for a URL that is none; kUnavailable where no server answers; kNotFound
// where it names no model.
Result<std::unique_ptr<ChatModel>> make_served_chat(ServedSettings served,
                                                    const SamplingSettings& sampling);

}  // namespace heddle::tools
