// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/vocab_merges.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/file_presence.h"
#include "core/json_reader.h"
#include "core/log.h"
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

// added_tokens.json is {"content": id}; it has no flags.
Status add_added_tokens(std::string_view json, std::vector<AddedToken>& tokens) {
  if (json.empty()) return ok_status();
  HEDDLE_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(json));
  HEDDLE_ASSIGN_OR_RETURN(const simdjson::dom::object members, document.root().as_object());
  std::vector<AddedToken> listed;
  for (const auto [content, value] : members) {
    HEDDLE_ASSIGN_OR_RETURN(const int64_t id, JsonValue(value, std::string(content)).as_integer());
    if (id < 0 || id > kMaxTokenId) {
      return data_loss(
          fmt::format("'{}' has the id {}; ids go from 0 to {}", content, id, kMaxTokenId));
    }
    AddedToken token{
        .id = static_cast<TokenId>(id), .content = std::string(content), .special = true};
    const auto known = std::ranges::find(listed, token.content, &AddedToken::content);
    if (known != listed.end()) {  // a key given twice: the last one counts
      *known = std::move(token);
    } else {
      listed.push_back(std::move(token));
    }
  }
  tokens.insert(tokens.end(), listed.begin(), listed.end());
  return ok_status();
}

// A token with a role is special even where no list says so.
void add_role_token(const BpeModel& model, const std::optional<std::string>& content,
                    std::vector<AddedToken>& tokens) {
  if (!content || content->empty()) return;
  if (std::ranges::find(tokens, *content, &AddedToken::content) != tokens.end()) return;
  const std::optional<TokenId> id = model.find_spelling(*content);
  if (id) tokens.push_back({.id = *id, .content = *content, .special = true});
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
                                                      std::string_view added_tokens_json,
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
  HEDDLE_RETURN_IF_ERROR(
      add_added_tokens(added_tokens_json, added_tokens).with_context("added_tokens.json"));
  if (is_gpt2(config) && model.find_spelling(kEndOfText)) {
    if (!config.bos_token) config.bos_token = kEndOfText;
    if (!config.eos_token) config.eos_token = kEndOfText;
  }
  for (const auto& role : {config.bos_token, config.eos_token, config.pad_token}) {
    add_role_token(model, role, added_tokens);
  }

  Normalizer normalizer;
  if (is_qwen2(config)) normalizer.add(NormalForm::kNfc);
  HEDDLE_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, make_pre_tokenizer(config));
  return BpeTokenizer::create({.model = std::move(model),
                               .listed_tokens = std::move(added_tokens),
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
  std::string added_tokens;
  HEDDLE_ASSIGN_OR_RETURN(const bool has_added, file_exists(model_dir / "added_tokens.json"));
  if (has_added) {
    HEDDLE_ASSIGN_OR_RETURN(added_tokens, read_whole_file(model_dir / "added_tokens.json"));
  }
  Result<std::unique_ptr<Tokenizer>> tokenizer =
      parse_vocab_merges(vocabulary, merges, added_tokens, std::move(config));
  if (!tokenizer.ok()) return tokenizer.status().with_context(model_dir.string());
  return tokenizer;
}

}  // namespace heddle::tokenizer
