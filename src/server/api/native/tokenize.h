// SPDX-License-Identifier: Apache-2.0
// POST /tokenize and /detokenize: text to ids and back, as a request would see them.
//
// Threading: thread-safe: they run on the workers.
// Memory:    of a body of b bytes, the texts in it (2 b at most) and their ids (4 bytes each) at
//            once; the answer is written in pieces.
#pragma once

#include <string_view>

#include "server/call/api_adapter.h"

namespace heddle::server {

// Of one call, over all its prompts: more than the body's limit gives of ordinary text.
inline constexpr size_t kMaxTokenizedTokens = size_t{16} << 20;

AnswerResult answer_tokenize(const CallContext& context, std::string_view body);
AnswerResult answer_detokenize(const CallContext& context, std::string_view body);

}  // namespace heddle::server
