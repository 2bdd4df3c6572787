// SPDX-License-Identifier: Apache-2.0
// Handles checkpoints whose config says that the output head is the embedding table, but that store
// a separate head.
#pragma once

#include <filesystem>

#include "checkpoint/model_config.h"

namespace heddle::checkpoint {

// If config.tie_word_embeddings is set and the folder stores an `lm_head` that differs from the
// embedding table, clears it and adds a note: transformers uses the stored head, too. Does nothing
// if the folder's weights cannot be opened; loading them reports the error. Cost: nothing for other
// models; compares the two tensors up to the first byte that differs.
void settle_tied_head(const std::filesystem::path& folder, ModelConfig& config);

}  // namespace heddle::checkpoint
