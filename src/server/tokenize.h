// SPDX-License-Identifier: Apache-2.0
// POST /tokenize and /detokenize: text to ids and back, as a request would see them.
//
// Threading: thread-safe: they run on the workers.
#pragma once

#include <string_view>

#include "server/api_adapter.h"
#include "server/http_message.h"

namespace heddle::server {

HttpResponse answer_tokenize(const CallContext& context, std::string_view body);
HttpResponse answer_detokenize(const CallContext& context, std::string_view body);

}  // namespace heddle::server
