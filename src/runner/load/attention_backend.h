// SPDX-License-Identifier: Apache-2.0
// Which kernels a GPU attends with, as EngineOptions::attention_backend asks; a line of the log
// says which they are.
#pragma once

#include <heddle/options.h>

#include "runner/program/forward_pass.h"

namespace heddle::runner {

// Before the first step. Nothing on the CPU, whose kernel is the one of exact mode.
void choose_attention(AttentionBackend backend, int32_t page_size, ForwardPass& pass);

}  // namespace heddle::runner
