// SPDX-License-Identifier: Apache-2.0
// Questions of an evaluation asked of a server (evaluation.h).
//
// Threading: free function; its result is called by one thread and makes others.
#pragma once

#include <heddle/status.h>

#include "tools/evaluation.h"
#include "tools/load/options_served.h"

namespace heddle::tools {

// Asks chats of /v1/chat/completions and texts of /v1/completions, with `parallel` calls at a time,
// greedily where the options leave it open.
// Answers have no tokens. A call that fails, or takes longer than `served` allows, is an answer
// that failed; the first failure is logged. Where not all threads can be started fewer do.
// Error: as address_of() and choose_served_model(). Of the function: what the server says when it
// refuses every question; that no thread can be started.
Result<AskQuestions> ask_server(ServedSettings served);

}  // namespace heddle::tools
