// SPDX-License-Identifier: Apache-2.0
// POST /tokenize and /detokenize: text to ids and back, as a request would be encoded.
//
// Threading: thread-safe: the functions run on the workers.
// Memory:    for a body of b bytes, its texts (2 b at most) and their ids (4 bytes each) at once;
//            the answer is written in pieces.
#pragma once

#include <string_view>

#include "server/call/api_adapter.h"

namespace heddle::server {

// Most tokens of one call over all its prompts: more than ordinary text of the largest body has.
inline constexpr size_t kMaxTokenizedTokens = size_t{16} << 20;

AnswerResult answer_tokenize(const CallContext& context, std::string_view body);
AnswerResult answer_detokenize(const CallContext& context, std::string_view body);

}  // namespace heddle::server
