// SPDX-License-Identifier: Apache-2.0
// A checkpoint that says its output head is the embedding table, and stores a head all the same.
#pragma once

#include <filesystem>

#include "checkpoint/model_config.h"

namespace heddle::checkpoint {

// Where config.tie_word_embeddings is set and the folder stores an `lm_head` that is not the
// embedding table, clears it and adds a note: transformers uses the stored head, too. A folder
// whose weights cannot be opened stays as it is: loading them says why. Cost: nothing for other
// models; compares both tensors up to the first byte that differs.
void settle_tied_head(const std::filesystem::path& folder, ModelConfig& config);

}  // namespace heddle::checkpoint
