// SPDX-License-Identifier: Apache-2.0
// Role boundaries: where the messages of a rendered conversation begin, in tokens. Conversations
// part there: another user's question after the same system prompt, another answer to the same
// question. The cache keeps states at such places.
//
// Templates announce every message with the same special token (<|im_start|>,
// <|start_header_id|>, <start_of_turn>), and the generation prompt, which announces the answer,
// begins with it: so it is found without knowing the model. Templates without a generation prompt,
// or with one that is plain text, have no role token.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <heddle/request.h>

#include "chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace heddle::chat {

// The special token with which the template's generation prompt begins, none if it does not.
// Renders a short conversation twice.
[[nodiscard]] std::optional<TokenId> find_role_token(const ChatTemplate& chat_template,
                                                     const tokenizer::Tokenizer& tokenizer);

// Where `role_token` stands in `prompt`, ascending. The very beginning is none: nothing comes
// before it that could be shared.
[[nodiscard]] std::vector<int64_t> role_boundaries(std::span<const TokenId> prompt,
                                                   TokenId role_token);

}  // namespace heddle::chat
