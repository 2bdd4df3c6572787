// SPDX-License-Identifier: Apache-2.0
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/vocab_merges.h"

namespace heddle::tokenizer {

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::filesystem::path& model_dir) {
  const auto has = [&](const char* name) {
    std::error_code error;
    return std::filesystem::exists(model_dir / name, error);
  };
  HEDDLE_ASSIGN_OR_RETURN(TokenizerConfig config, load_tokenizer_config(model_dir));
  if (has("tokenizer.json")) return load_tokenizer_json(model_dir / "tokenizer.json", config);
  if (has("vocab.json") && has("merges.txt")) {
    return load_vocab_merges(model_dir, std::move(config));
  }
  if (has("tokenizer.model")) return load_sentencepiece(model_dir / "tokenizer.model", config);
  return not_found(fmt::format(
      "{} has no tokenizer.json, no vocab.json with merges.txt and no tokenizer.model; copy the "
      "tokenizer files of the model there",
      model_dir.string()));
}

}  // namespace heddle::tokenizer
