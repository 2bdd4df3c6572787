// SPDX-License-Identifier: Apache-2.0
// Chooses the attention kernels of a GPU according to EngineOptions::attention_backend, and logs
// which they are.
#pragma once

#include <heddle/options.h>

#include "runner/program/forward_pass.h"

namespace heddle::runner {

// Must be called before the first step. Does nothing on the CPU, whose only kernel is that of exact
// mode.
void choose_attention(AttentionBackend backend, int32_t page_size, ForwardPass& pass);

}  // namespace heddle::runner
