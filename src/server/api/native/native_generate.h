// SPDX-License-Identifier: Apache-2.0
// POST /generate: the native API, one prompt or a batch, with SGLang's fields and answers. Streamed
// text and ids are cumulative, as its clients expect, unless the server's options say otherwise. A
// prompt may go on from one before it (session_store.h).
//
// Threading: prepare_generate() is thread-safe: it runs on the workers.
#pragma once

#include <string_view>

#include "server/call/api_adapter.h"

namespace heddle::server {

PrepareResult prepare_generate(const CallContext& context, std::string_view body);

// POST /vertex_generate, Vertex AI's wrapper: {"instances": [{"text": ..}, ..], "parameters": ..}.
// The instances' texts or ids are a batch; the parameters are the other fields of /generate.
PrepareResult prepare_vertex(const CallContext& context, std::string_view body);

}  // namespace heddle::server
