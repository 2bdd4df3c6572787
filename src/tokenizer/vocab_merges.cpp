// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/vocab_merges.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/file_presence.h"
#include "core/json_reader.h"
#include "core/log.h"
#include "core/remedy.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_json_steps.h"

namespace heddle::tokenizer {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

bool is_qwen2(const TokenizerConfig& config) {
  return config.tokenizer_class.starts_with("Qwen2Tokenizer");
}

bool is_gpt2(const TokenizerConfig& config) {
  return config.tokenizer_class.empty() || config.tokenizer_class.starts_with("GPT2Tokenizer");
}

Status add_merges(std::string_view text, BpeBuilder& builder) {
  builder.reserve_merges(static_cast<size_t>(std::ranges::count(text, '\n')) + 1);
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    HEDDLE_RETURN_IF_ERROR(
        builder.add_merge_line(line).with_context(fmt::format("merges.txt line {}", number)));
  }
  return ok_status();
}

Result<PreTokenizer> make_pre_tokenizer(const TokenizerConfig& config) {
  if (!is_qwen2(config) && !is_gpt2(config)) {
    log_warning(fmt::format(
        "vocab.json does not say how to split words and the class '{}' is not known; splitting as "
        "GPT-2 does. A tokenizer.json would settle it.",
        config.tokenizer_class));
  }
  PreTokenizer pre_tokenizer;
  if (config.add_prefix_space) pre_tokenizer.add(PrefixSpaceStep{});
  HEDDLE_ASSIGN_OR_RETURN(Regex pattern,
                          Regex::compile(is_qwen2(config) ? kQwen2Pattern : kGpt2Pattern));
  pre_tokenizer.add(SplitStep{.pattern = std::move(pattern)});
  return pre_tokenizer;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> parse_vocab_merges(std::string_view vocab_json,
                                                      std::string_view merges_txt,
                                                      TokenizerConfig config) {
  BpeBuilder builder(/*byte_level=*/true);
  const auto add_tokens = [&]() -> Status {
    HEDDLE_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(vocab_json));
    return add_vocabulary(document.root(), builder);
  };
  HEDDLE_RETURN_IF_ERROR(add_tokens().with_context("vocab.json"));
  HEDDLE_RETURN_IF_ERROR(add_merges(merges_txt, builder));
  BpeModel model = std::move(builder).build({});

  std::vector<AddedToken> added_tokens = config.added_tokens;
  if (is_gpt2(config) && model.find_spelling(kEndOfText)) {
    if (!config.bos_token) config.bos_token = kEndOfText;
    if (!config.eos_token) config.eos_token = kEndOfText;
  }
  const std::vector<AddedToken> special = unlisted_special_tokens(
      config, [&](const std::string& text) { return model.find_spelling(text); },
      static_cast<TokenId>(model.vocabulary().end_id()));
  added_tokens.insert(added_tokens.end(), special.begin(), special.end());

  Normalizer normalizer;
  if (is_qwen2(config)) normalizer.add(NormalForm::kNfc);
  HEDDLE_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, make_pre_tokenizer(config));
  return BpeTokenizer::create({.model = std::move(model),
                               .listed_tokens = std::move(added_tokens),
                               .listed_in = config.added_tokens_file(),
                               .added_tokens = {},
                               .normalizer = std::move(normalizer),
                               .pre_tokenizer = std::move(pre_tokenizer),
                               .decoder = {},
                               .prefix = {},
                               .suffix = {}},
                              config);
}

Result<std::unique_ptr<Tokenizer>> load_vocab_merges(const std::filesystem::path& model_dir,
                                                     TokenizerConfig config) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string vocabulary, read_whole_file(model_dir / "vocab.json"));
  HEDDLE_ASSIGN_OR_RETURN(const std::string merges, read_whole_file(model_dir / "merges.txt"));
  Result<std::unique_ptr<Tokenizer>> tokenizer =
      parse_vocab_merges(vocabulary, merges, std::move(config));
  if (!tokenizer.ok()) {
    return with_remedy(tokenizer.status(), kDownloadAgain).with_context(model_dir.string());
  }
  return tokenizer;
}

}  // namespace heddle::tokenizer
