// SPDX-License-Identifier: Apache-2.0
// The tokenizer in the metadata of a GGUF file, under tokenizer.ggml: `tokens` in order of id,
// their kinds in `token_type`, and by `model`:
//
//   gpt2    byte-level BPE with `merges`; `pre` names the way to split words, which the hub's
//           tokenizer.json spells out
//   gemma4  BPE of characters with `merges`, over texts whose spaces are marks
//   llama   a SentencePiece model of BPE with `scores`, which becomes one in memory
//
// Ids of roles are `bos_token_id` and the like; `add_bos_token` and `add_eos_token` say what stands
// around a text, and tokenizer.chat_template how a chat becomes one.
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

// Roles, and tokens around a text: the contents of the hub's tokenizer_config.json. Error:
// kDataLoss, naming the key, for an id without a token.
[[nodiscard]] Result<TokenizerConfig> gguf_tokenizer_config(
    const checkpoint::GgufMetadata& metadata);

// As gguf_tokenizer_config(), of the model whose first file is `path`. Error: as above and
// checkpoint::GgufModel::open(), with the file's name.
[[nodiscard]] Result<TokenizerConfig> load_gguf_tokenizer_config(const std::filesystem::path& path);

// A vocabulary of kind llama as the file that the model has in the hub, with the added tokens and
// roles that stand in others there. Error: as make_gguf_tokenizer().
struct GgufSentencePiece {
  std::string file;
  TokenizerConfig config;
};

[[nodiscard]] Result<GgufSentencePiece> gguf_sentencepiece(
    const checkpoint::GgufMetadata& metadata);

// Error: as above; kDataLoss for lists that do not fit each other; kUnimplemented for another kind
// of vocabulary or way to split words, listing those that are served.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> make_gguf_tokenizer(
    const checkpoint::GgufMetadata& metadata);

// The tokenizer of the model whose first file is `path`. Error: as above, with the file's name.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> load_gguf_tokenizer(
    const std::filesystem::path& path);

// tokenizer.chat_template as "default", and the named ones (tokenizer.chat_template.NAME). May be
// empty.
[[nodiscard]] Result<std::vector<std::pair<std::string, std::string>>> gguf_chat_templates(
    const checkpoint::GgufMetadata& metadata);

}  // namespace heddle::tokenizer
