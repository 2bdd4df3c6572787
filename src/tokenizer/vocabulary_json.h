// SPDX-License-Identifier: Apache-2.0
// Reads {"token": id, ...}: vocab.json, and the "vocab" of tokenizer.json.
#pragma once

#include <heddle/status.h>

#include "tokenizer/bpe_builder.h"
#include "tokenizer/json_reader.h"

namespace heddle::tokenizer {

// Error: kDataLoss naming the token: an id that is no integer, out of range or taken; or no tokens.
Status add_vocabulary(const JsonValue& vocabulary, BpeBuilder& builder);

}  // namespace heddle::tokenizer
