// SPDX-License-Identifier: Apache-2.0
// POST /generate: the native API for one prompt or a batch, with SGLang's fields and answers.
// Streamed text and ids are cumulative, as SGLang's clients expect, unless the server's options
// disable that. A prompt may continue an earlier one (session_store.h).
//
// Threading: prepare_generate() and prepare_vertex() are thread-safe: they run on the workers.
#pragma once

#include <string_view>

#include "server/call/api_adapter.h"

namespace heddle::server {

PrepareResult prepare_generate(const CallContext& context, std::string_view body);

// POST /vertex_generate, Vertex AI's wrapper: {"instances": [{"text": ..}, ..], "parameters": ..}.
// The instances' texts or ids form a batch; the parameters are the other fields of /generate.
PrepareResult prepare_vertex(const CallContext& context, std::string_view body);

}  // namespace heddle::server
