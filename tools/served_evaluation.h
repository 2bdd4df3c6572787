// SPDX-License-Identifier: Apache-2.0
// Asks the questions of an evaluation on a server (evaluation.h).
//
// Threading: free function; one thread calls its result, which starts other threads.
#pragma once

#include <heddle/status.h>

#include "tools/evaluation.h"
#include "tools/load/options_served.h"

namespace heddle::tools {

// Sends chats to /v1/chat/completions and texts to /v1/completions, with `parallel` calls at a
// time, greedily if the options do not set sampling. Answers have no tokens. A call that fails, or
// takes longer than `served` allows, becomes an answer that failed; the first failure is logged. If
// not all threads can be started, fewer are used.
// Error: those of address_of() and choose_served_model(). The returned function fails if the server
//        refuses every question, with its message, or if no thread can be started.
// refuses every question; that no thread can be started.
Result<AskQuestions> ask_server(ServedSettings served);

}  // namespace heddle::tools
