// SPDX-License-Identifier: Apache-2.0
// The parts of tokenizer.json around the model: each nested description becomes a flat list of
// steps.
#pragma once

#include <optional>
#include <vector>

#include <heddle/request.h>
#include <heddle/status.h>

#include "tokenizer/json_reader.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_decoder.h"

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

// Errors: kDataLoss or kUnimplemented, naming the place. Nothing described is an empty list.
[[nodiscard]] Result<Normalizer> parse_normalizer(const std::optional<JsonValue>& description);
[[nodiscard]] Result<PreTokenizerParts> parse_pre_tokenizer(
    const std::optional<JsonValue>& description);
[[nodiscard]] Result<PostProcessorParts> parse_post_processor(
    const std::optional<JsonValue>& description);
[[nodiscard]] Result<DecoderParts> parse_decoder(const std::optional<JsonValue>& description);

}  // namespace heddle::tokenizer
