// SPDX-License-Identifier: Apache-2.0
// The tokenizer in the metadata of a GGUF file, under tokenizer.ggml: `tokens` sorted by id, their
// kinds in `token_type`, and, depending on `model`:
//
//   gpt2    byte-level BPE with `merges`; `pre` names the way to split words, which the hub's
//           tokenizer.json has in full
//   gemma4  BPE of characters with `merges`, over texts in which marks replace spaces
//   llama   a SentencePiece BPE model with `scores`, from which a model file is made in memory
//
// Ids of roles are `bos_token_id` and the like. `add_bos_token` and `add_eos_token` say which
// tokens are added around a text; tokenizer.chat_template is the chat template.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/gguf_header.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace heddle::tokenizer {

// The roles and the tokens around a text: what the hub's tokenizer_config.json contains. Error:
// kDataLoss, naming the key, for an id without a token.
[[nodiscard]] Result<TokenizerConfig> gguf_tokenizer_config(
    const checkpoint::GgufMetadata& metadata);

// As gguf_tokenizer_config(), for the model whose first file is `path`. Error: also those of
// checkpoint::GgufModel::open(); messages begin with the file's name.
[[nodiscard]] Result<TokenizerConfig> load_gguf_tokenizer_config(const std::filesystem::path& path);

// A vocabulary of kind llama as the file that the model has in the hub, with the added tokens and
// roles that the hub has in other files. Error: as make_gguf_tokenizer().
struct GgufSentencePiece {
  std::string file;
  TokenizerConfig config;
};

[[nodiscard]] Result<GgufSentencePiece> gguf_sentencepiece(
    const checkpoint::GgufMetadata& metadata);

// Makes the tokenizer. Error: as gguf_tokenizer_config(); kDataLoss for lists that contradict each
// other; kUnimplemented for another kind of vocabulary or way to split words, listing the supported
// ones.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> make_gguf_tokenizer(
    const checkpoint::GgufMetadata& metadata);

// The tokenizer of the model whose first file is `path`. Error: as make_gguf_tokenizer(), with the
// file's name.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> load_gguf_tokenizer(
    const std::filesystem::path& path);

// tokenizer.chat_template with the name "default", and the named templates
// (tokenizer.chat_template.NAME). May be empty.
[[nodiscard]] Result<std::vector<std::pair<std::string, std::string>>> gguf_chat_templates(
    const checkpoint::GgufMetadata& metadata);

}  // namespace heddle::tokenizer
