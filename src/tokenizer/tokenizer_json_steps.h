// SPDX-License-Identifier: Apache-2.0
// The parts of tokenizer.json: the vocabulary, and the nested descriptions around the model, each
// of which becomes a flat list of steps.
#pragma once

#include <optional>
#include <vector>

#include <heddle/request.h>
#include <heddle/status.h>

#include "core/json_reader.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace heddle::tokenizer {

struct PreTokenizerParts {
  PreTokenizer pre_tokenizer;
  bool byte_level = false;
};

struct PostProcessorParts {
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
};

struct DecoderParts {
  TokenDecoder decoder;
  bool byte_level = false;
};

// Errors of these functions: kDataLoss or kUnimplemented, naming the key. Without a description the
// list is empty.
[[nodiscard]] Result<Normalizer> parse_normalizer(const std::optional<JsonValue>& description);
[[nodiscard]] Result<PreTokenizerParts> parse_pre_tokenizer(
    const std::optional<JsonValue>& description);
[[nodiscard]] Result<PostProcessorParts> parse_post_processor(
    const std::optional<JsonValue>& description);
[[nodiscard]] Result<DecoderParts> parse_decoder(const std::optional<JsonValue>& description);

// Reads {"token": id, ...}: vocab.json, or the "vocab" of tokenizer.json.
// Error: kDataLoss naming the token, for an id that is no integer, out of range or used twice; or
// if there are no tokens.
Status add_vocabulary(const JsonValue& vocabulary, BpeBuilder& builder);

}  // namespace heddle::tokenizer
