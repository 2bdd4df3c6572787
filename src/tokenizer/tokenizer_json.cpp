// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_json.h"

#include <utility>

#include <fmt/format.h>

#include "core/json_reader.h"
#include "core/log.h"
#include "core/remedy.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/tokenizer_json_steps.h"

namespace heddle::tokenizer {
namespace {

using simdjson::SUCCESS;

// Adds a merge, "left right" or ["left", "right"]; errors name the path in the file.
Status add_merge(const JsonValue& merge, BpeBuilder& builder) {
  if (merge.is_string()) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string_view line, merge.as_string());
    return builder.add_merge_line(line).with_context(merge.path());
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> sides, merge.items());
  if (sides.size() != 2) return merge.wrong("two tokens");
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view left, sides[0].as_string());
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view right, sides[1].as_string());
  return builder.add_merge(left, right).with_context(merge.path());
}

// A faster add_merge() without error messages. If it returns false, add_merge() must report the
// error.
bool add_merge_quickly(simdjson::dom::element merge, BpeBuilder& builder) {
  std::string_view left;
  std::string_view right;
  if (merge.get(left) == SUCCESS) return builder.add_merge_line(left).ok();
  simdjson::dom::array sides;
  if (merge.get(sides) != SUCCESS || sides.size() != 2) return false;
  auto side = sides.begin();
  if ((*side).get(left) != SUCCESS) return false;
  ++side;
  return (*side).get(right) == SUCCESS && builder.add_merge(left, right).ok();
}

Status add_merges(const JsonValue& merges, BpeBuilder& builder) {
  HEDDLE_ASSIGN_OR_RETURN(const simdjson::dom::array list, merges.as_array());
  builder.reserve_merges(list.size());
  size_t index = 0;
  for (const simdjson::dom::element merge : list) {
    if (!add_merge_quickly(merge, builder)) {
      return add_merge({merge, fmt::format("{}[{}]", merges.path(), index)}, builder);
    }
    ++index;
  }
  return ok_status();
}

// Refuses options that change the encoding and that no served model uses.
Status refuse_unsupported_options(const JsonValue& model) {
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string value, model.string_or(key, ""));
    if (!value.empty()) {
      return unimplemented(
          fmt::format("{}.{} is '{}'; only an empty one is supported", model.path(), key, value));
    }
  }
  return ok_status();
}

Result<BpeSettings> parse_settings(const JsonValue& model, const BpeBuilder& builder,
                                   bool byte_level) {
  BpeSettings settings;
  HEDDLE_ASSIGN_OR_RETURN(settings.ignore_merges, model.bool_or("ignore_merges", false));
  HEDDLE_ASSIGN_OR_RETURN(const bool byte_fallback, model.bool_or("byte_fallback", false));
  HEDDLE_ASSIGN_OR_RETURN(settings.fuse_unknown, model.bool_or("fuse_unk", false));
  HEDDLE_ASSIGN_OR_RETURN(const std::string unknown, model.string_or("unk_token", ""));
  settings.byte_fallback = byte_fallback && !byte_level;
  if (unknown.empty()) return settings;
  settings.unknown = builder.find_spelling(unknown);
  if (!settings.unknown) {
    log_warning(
        fmt::format("tokenizer.json: {}.unk_token '{}' is not in the vocabulary; what no "
                    "token spells is left out of prompts",
                    model.path(), unknown));
  }
  return settings;
}

Result<BpeModel> parse_model(const JsonValue& model, bool byte_level) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string type, model.string_or("type", "BPE"));
  if (type != "BPE") {
    return unimplemented(
        fmt::format("{}.type is '{}'; only BPE is supported in this format", model.path(), type));
  }
  HEDDLE_RETURN_IF_ERROR(refuse_unsupported_options(model));
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue vocabulary, model.require("vocab"));
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue merges, model.require("merges"));
  BpeBuilder builder(byte_level);
  HEDDLE_RETURN_IF_ERROR(add_vocabulary(vocabulary, builder));
  HEDDLE_RETURN_IF_ERROR(add_merges(merges, builder));
  HEDDLE_ASSIGN_OR_RETURN(const BpeSettings settings, parse_settings(model, builder, byte_level));
  return std::move(builder).build(settings);
}

Result<std::vector<AddedToken>> parse_added_tokens(const JsonValue& root) {
  std::vector<AddedToken> tokens;
  const std::optional<JsonValue> list = root.find("added_tokens");
  if (!list) return tokens;
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> entries, list->items());
  for (const JsonValue& entry : entries) {
    HEDDLE_ASSIGN_OR_RETURN(const JsonValue id_value, entry.require("id"));
    HEDDLE_ASSIGN_OR_RETURN(const int64_t id, id_value.as_integer());
    if (id < 0 || id > kMaxTokenId) {
      return data_loss(fmt::format("{} is {}, outside 0 to {}", id_value.path(), id, kMaxTokenId));
    }
    HEDDLE_ASSIGN_OR_RETURN(AddedToken token, parse_added_token(entry, static_cast<TokenId>(id)));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

Result<std::unique_ptr<Tokenizer>> build(const JsonDocument& document,
                                         const TokenizerConfig& config) {
  const JsonValue root = document.root();
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue model_value, root.require("model"));
  if (!model_value.is_object()) return model_value.wrong("an object");
  HEDDLE_ASSIGN_OR_RETURN(std::vector<AddedToken> added_tokens, parse_added_tokens(root));
  HEDDLE_ASSIGN_OR_RETURN(Normalizer normalizer, parse_normalizer(root.find("normalizer")));
  HEDDLE_ASSIGN_OR_RETURN(PreTokenizerParts pre, parse_pre_tokenizer(root.find("pre_tokenizer")));
  HEDDLE_ASSIGN_OR_RETURN(PostProcessorParts post,
                          parse_post_processor(root.find("post_processor")));
  HEDDLE_ASSIGN_OR_RETURN(DecoderParts decoder, parse_decoder(root.find("decoder")));
  if (decoder.byte_level && !pre.byte_level) {
    return unimplemented("the decoder is ByteLevel but the pre-tokenizer is not");
  }
  HEDDLE_ASSIGN_OR_RETURN(BpeModel model, parse_model(model_value, pre.byte_level));
  return BpeTokenizer::create({.model = std::move(model),
                               .listed_tokens = std::move(added_tokens),
                               .listed_in = "tokenizer.json",
                               .added_tokens = {},
                               .normalizer = std::move(normalizer),
                               .pre_tokenizer = std::move(pre.pre_tokenizer),
                               .decoder = std::move(decoder.decoder),
                               .prefix = std::move(post.prefix),
                               .suffix = std::move(post.suffix)},
                              config);
}

}  // namespace

Result<AddedToken> parse_added_token(const JsonValue& entry, TokenId id) {
  AddedToken token{.id = id};
  HEDDLE_ASSIGN_OR_RETURN(token.content, entry.require_string("content"));
  HEDDLE_ASSIGN_OR_RETURN(token.single_word, entry.bool_or("single_word", false));
  HEDDLE_ASSIGN_OR_RETURN(token.lstrip, entry.bool_or("lstrip", false));
  HEDDLE_ASSIGN_OR_RETURN(token.rstrip, entry.bool_or("rstrip", false));
  HEDDLE_ASSIGN_OR_RETURN(token.special, entry.bool_or("special", false));
  HEDDLE_ASSIGN_OR_RETURN(token.normalized, entry.bool_or("normalized", !token.special));
  return token;
}

Result<std::unique_ptr<Tokenizer>> parse_tokenizer_json(std::string_view json,
                                                        const TokenizerConfig& config) {
  HEDDLE_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(json));
  return build(document, config);
}

Result<std::unique_ptr<Tokenizer>> load_tokenizer_json(const std::filesystem::path& path,
                                                       const TokenizerConfig& config) {
  const auto load = [&]() -> Result<std::unique_ptr<Tokenizer>> {
    HEDDLE_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::load(path));
    return build(document, config);
  };
  Result<std::unique_ptr<Tokenizer>> tokenizer = load();
  if (!tokenizer.ok()) {
    return with_remedy(tokenizer.status(), kDownloadAgain).with_context(path.string());
  }
  return tokenizer;
}

}  // namespace heddle::tokenizer
