// SPDX-License-Identifier: Apache-2.0
// Converts the tokenizer of a GGUF file to the files that the same model has in the hub:
// tokenizer.json or tokenizer.model, and tokenizer_config.json with the chat template. For tools
// that write a model in the hub's layout.
#pragma once

#include <string>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/gguf_header.h"

namespace heddle::tokenizer {

struct TokenizerFile {
  std::string name;
  std::string bytes;
};

// Error: as make_gguf_tokenizer(); kUnimplemented for a vocabulary of ranks without merges, which
// tokenizer.json cannot express.
[[nodiscard]] Result<std::vector<TokenizerFile>> gguf_tokenizer_files(
    const checkpoint::GgufMetadata& metadata);

}  // namespace heddle::tokenizer
