// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a GGUF file as the files that the same model has in the hub, for tools that
// write a model in that layout: tokenizer.json or tokenizer.model, and tokenizer_config.json with
// the chat template.
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
// tokenizer.json cannot say.
[[nodiscard]] Result<std::vector<TokenizerFile>> gguf_tokenizer_files(
    const checkpoint::GgufMetadata& metadata);

}  // namespace heddle::tokenizer
