// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_json_steps.h"

#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/regex.h"
#include "tokenizer/vocabulary.h"

namespace heddle::tokenizer {

namespace {

Result<SplitBehavior> parse_behavior(const JsonValue& description, std::string_view fallback) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string name, description.string_or("behavior", fallback));
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return data_loss(fmt::format(
      "{}.behavior is '{}'; expected Isolated, Removed, MergedWithPrevious, MergedWithNext or "
      "Contiguous",
      description.path(), name));
}

class StepParser {
 public:
  explicit StepParser(PreTokenizerParts& parts) : parts_(parts) {}

  Status parse(const JsonValue& description) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string type, description.require_string("type"));
    if (parts_.byte_level && type != "Sequence") {
      return unimplemented(
          fmt::format("{}: '{}' behind ByteLevel is not supported", description.path(), type));
    }
    if (parts_.pre_tokenizer.num_steps() >= PreTokenizer::kMaxSteps) {
      return unimplemented(fmt::format("{}: more than {} pre-tokenizers in a sequence",
                                       description.path(), PreTokenizer::kMaxSteps));
    }
    const Status status = parse_type(description, type);
    return status.ok() || status.message().starts_with(description.path())
               ? status
               : status.with_context(description.path());
  }

 private:
  Status parse_type(const JsonValue& description, std::string_view type) {
    if (type == "Sequence") return parse_sequence(description);
    if (type == "Split") return parse_split(description);
    if (type == "ByteLevel") return parse_byte_level(description);
    if (type == "Metaspace") return parse_metaspace(description);
    if (type == "CharDelimiterSplit") {
      HEDDLE_ASSIGN_OR_RETURN(const std::string delimiter, description.require_string("delimiter"));
      return add_split(Regex::compile_literal(delimiter), SplitBehavior::kRemoved);
    }
    if (type == "Digits") {
      HEDDLE_ASSIGN_OR_RETURN(const bool single, description.bool_or("individual_digits", false));
      return add_split(single ? kDigitPattern : kDigitsPattern, SplitBehavior::kIsolated);
    }
    if (type == "Punctuation") {
      HEDDLE_ASSIGN_OR_RETURN(const SplitBehavior behavior,
                              parse_behavior(description, "Isolated"));
      return add_split(kPunctuationPattern, behavior);
    }
    if (type == "Whitespace") {
      return add_split(kWordOrSymbolsPattern, SplitBehavior::kRemoved, /*invert=*/true);
    }
    if (type == "WhitespaceSplit") return add_split(kWhitespacePattern, SplitBehavior::kRemoved);
    if (type == "BertPreTokenizer") {
      HEDDLE_RETURN_IF_ERROR(add_split(kWhitespacePattern, SplitBehavior::kRemoved));
      return add_split(kPunctuationPattern, SplitBehavior::kIsolated);
    }
    return unimplemented(fmt::format("the pre-tokenizer '{}' is not supported", type));
  }

  Status parse_sequence(const JsonValue& description) {
    HEDDLE_ASSIGN_OR_RETURN(const JsonValue list, description.require("pretokenizers"));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, list.items());
    for (const JsonValue& item : items) HEDDLE_RETURN_IF_ERROR(parse(item));
    return ok_status();
  }

  Status parse_split(const JsonValue& description) {
    HEDDLE_ASSIGN_OR_RETURN(const JsonValue pattern, description.require("pattern"));
    HEDDLE_ASSIGN_OR_RETURN(const SplitBehavior behavior, parse_behavior(description, "Isolated"));
    HEDDLE_ASSIGN_OR_RETURN(const bool invert, description.bool_or("invert", false));
    if (const auto literal = pattern.find("String")) {
      HEDDLE_ASSIGN_OR_RETURN(const std::string_view text, literal->as_string());
      return add_split(Regex::compile_literal(text), behavior, invert);
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::string text, pattern.require_string("Regex"));
    return add_split(text, behavior, invert);
  }

  Status parse_byte_level(const JsonValue& description) {
    HEDDLE_ASSIGN_OR_RETURN(const bool prefix, description.bool_or("add_prefix_space", true));
    HEDDLE_ASSIGN_OR_RETURN(const bool use_regex, description.bool_or("use_regex", true));
    parts_.byte_level = true;
    if (prefix) parts_.pre_tokenizer.add(PrefixSpaceStep{});
    return use_regex ? add_split(kGpt2Pattern, SplitBehavior::kIsolated) : ok_status();
  }

  // Older files have add_prefix_space instead of prepend_scheme.
  Status parse_metaspace(const JsonValue& description) {
    using Prepend = MetaspaceStep::Prepend;
    MetaspaceStep step;
    HEDDLE_ASSIGN_OR_RETURN(step.replacement, description.string_or("replacement", "▁"));
    HEDDLE_ASSIGN_OR_RETURN(step.split, description.bool_or("split", true));
    HEDDLE_ASSIGN_OR_RETURN(const bool prefix, description.bool_or("add_prefix_space", true));
    HEDDLE_ASSIGN_OR_RETURN(const std::string scheme,
                            description.string_or("prepend_scheme", prefix ? "always" : "never"));
    if (step.replacement.empty()) return data_loss("replacement is empty");
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      return data_loss(
          fmt::format("prepend_scheme is '{}'; expected always, first or never", scheme));
    }
    step.prepend = scheme == "always"  ? Prepend::kAlways
                   : scheme == "first" ? Prepend::kFirst
                                       : Prepend::kNever;
    parts_.pre_tokenizer.add(std::move(step));
    return ok_status();
  }

  Status add_split(std::string_view pattern, SplitBehavior behavior, bool invert = false) {
    return add_split(Regex::compile(pattern), behavior, invert);
  }

  Status add_split(Result<Regex> pattern, SplitBehavior behavior, bool invert = false) {
    HEDDLE_RETURN_IF_ERROR(pattern.status());
    parts_.pre_tokenizer.add(
        SplitStep{.pattern = std::move(pattern).value(), .behavior = behavior, .invert = invert});
    return ok_status();
  }

  PreTokenizerParts& parts_;
};

}  // namespace

Result<PreTokenizerParts> parse_pre_tokenizer(const std::optional<JsonValue>& description) {
  PreTokenizerParts parts;
  if (description) HEDDLE_RETURN_IF_ERROR(StepParser(parts).parse(*description));
  return parts;
}

namespace {

Result<Regex> parse_pattern(const JsonValue& description) {
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue pattern, description.require("pattern"));
  const auto compile = [&]() -> Result<Regex> {
    if (const auto literal = pattern.find("String")) {
      HEDDLE_ASSIGN_OR_RETURN(const std::string_view text, literal->as_string());
      return Regex::compile_literal(text);
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::string text, pattern.require_string("Regex"));
    return Regex::compile(text);
  };
  Result<Regex> regex = compile();
  if (!regex.ok()) return regex.status().with_context(pattern.path());
  return regex;
}

std::optional<NormalForm> normal_form_of(std::string_view type) {
  if (type == "NFC") return NormalForm::kNfc;
  if (type == "NFD") return NormalForm::kNfd;
  if (type == "NFKC") return NormalForm::kNfkc;
  if (type == "NFKD") return NormalForm::kNfkd;
  return std::nullopt;
}

Status add_step(const JsonValue& description, Normalizer& normalizer) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string type, description.require_string("type"));
  if (type == "Sequence") {
    HEDDLE_ASSIGN_OR_RETURN(const JsonValue list, description.require("normalizers"));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, list.items());
    for (const JsonValue& item : items) HEDDLE_RETURN_IF_ERROR(add_step(item, normalizer));
  } else if (const auto form = normal_form_of(type)) {
    normalizer.add(*form);
  } else if (type == "Lowercase") {
    normalizer.add(LowercaseStep{});
  } else if (type == "StripAccents") {
    normalizer.add(StripAccentsStep{});
  } else if (type == "Prepend") {
    HEDDLE_ASSIGN_OR_RETURN(std::string text, description.require_string("prepend"));
    normalizer.add(PrependStep{.text = std::move(text)});
  } else if (type == "Replace") {
    HEDDLE_ASSIGN_OR_RETURN(Regex pattern, parse_pattern(description));
    HEDDLE_ASSIGN_OR_RETURN(std::string content, description.require_string("content"));
    normalizer.add(ReplaceStep{.pattern = std::move(pattern), .content = std::move(content)});
  } else if (type == "Strip") {
    StripStep step;
    HEDDLE_ASSIGN_OR_RETURN(step.left, description.bool_or("strip_left", true));
    HEDDLE_ASSIGN_OR_RETURN(step.right, description.bool_or("strip_right", true));
    normalizer.add(step);
  } else {
    return unimplemented(
        fmt::format("{}: the normalizer '{}' is not supported", description.path(), type));
  }
  return ok_status();
}

}  // namespace

Result<Normalizer> parse_normalizer(const std::optional<JsonValue>& description) {
  Normalizer normalizer;
  if (description) HEDDLE_RETURN_IF_ERROR(add_step(*description, normalizer));
  return normalizer;
}

namespace {

Result<TokenId> parse_id(const JsonValue& value) {
  HEDDLE_ASSIGN_OR_RETURN(const int64_t id, value.as_integer());
  if (id < 0 || id > kMaxTokenId) {
    return data_loss(fmt::format("{} is {}, outside 0 to {}", value.path(), id, kMaxTokenId));
  }
  return static_cast<TokenId>(id);
}

// Appends the ids of a template's {"SpecialToken": {"id": NAME}}.
Status append_special_token(const JsonValue& description, const JsonValue& item,
                            std::vector<TokenId>& ids) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string name, item.require_string("id"));
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue tokens, description.require("special_tokens"));
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue token, tokens.require(name));
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue list, token.require("ids"));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> values, list.items());
  for (const JsonValue& value : values) {
    HEDDLE_ASSIGN_OR_RETURN(const TokenId id, parse_id(value));
    ids.push_back(id);
  }
  return ok_status();
}

Status add_template(const JsonValue& description, PostProcessorParts& parts) {
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue single, description.require("single"));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, single.items());
  bool seen_text = false;
  for (const JsonValue& item : items) {
    if (item.find("Sequence")) {
      if (seen_text) {
        return unimplemented(
            fmt::format("{}: a text that is repeated is not supported", item.path()));
      }
      seen_text = true;
      continue;
    }
    HEDDLE_ASSIGN_OR_RETURN(const JsonValue token, item.require("SpecialToken"));
    HEDDLE_RETURN_IF_ERROR(
        append_special_token(description, token, seen_text ? parts.suffix : parts.prefix));
  }
  if (!seen_text) {
    return data_loss(fmt::format("{} has no Sequence, so no text would be encoded", single.path()));
  }
  return ok_status();
}

// Adds the token of "cls" or "sep", which are pairs ["<s>", 0].
Status add_pair_token(const JsonValue& description, std::string_view key,
                      std::vector<TokenId>& ids) {
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue pair, description.require(key));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, pair.items());
  if (items.size() != 2) return pair.wrong("a token and its id");
  HEDDLE_ASSIGN_OR_RETURN(const TokenId id, parse_id(items[1]));
  ids.push_back(id);
  return ok_status();
}

Status add_processor(const JsonValue& description, PostProcessorParts& parts) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string type, description.require_string("type"));
  if (type == "ByteLevel") return ok_status();  // this post-processor affects only offsets
  if (type == "TemplateProcessing") return add_template(description, parts);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    HEDDLE_RETURN_IF_ERROR(add_pair_token(description, "cls", parts.prefix));
    return add_pair_token(description, "sep", parts.suffix);
  }
  if (type == "Sequence") {
    HEDDLE_ASSIGN_OR_RETURN(const JsonValue list, description.require("processors"));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, list.items());
    for (const JsonValue& item : items) HEDDLE_RETURN_IF_ERROR(add_processor(item, parts));
    return ok_status();
  }
  return unimplemented(
      fmt::format("{}: the post-processor '{}' is not supported", description.path(), type));
}

}  // namespace

Result<PostProcessorParts> parse_post_processor(const std::optional<JsonValue>& description) {
  PostProcessorParts parts;
  if (description) HEDDLE_RETURN_IF_ERROR(add_processor(*description, parts));
  return parts;
}

namespace {

Status add_replace(const JsonValue& description, TokenDecoder& decoder) {
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue pattern, description.require("pattern"));
  if (!pattern.find("String")) {
    return unimplemented(fmt::format("{}: a decoder can only replace a String", pattern.path()));
  }
  HEDDLE_ASSIGN_OR_RETURN(std::string text, pattern.require_string("String"));
  HEDDLE_ASSIGN_OR_RETURN(std::string content, description.require_string("content"));
  decoder.replacements.emplace_back(std::move(text), std::move(content));
  return ok_status();
}

Status add_strip(const JsonValue& description, TokenDecoder& decoder) {
  const auto count_of = [&](std::string_view key) -> Result<int64_t> {
    HEDDLE_ASSIGN_OR_RETURN(const JsonValue member, description.require(key));
    return member.as_integer();
  };
  HEDDLE_ASSIGN_OR_RETURN(const std::string content, description.require_string("content"));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t start, count_of("start"));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t stop, count_of("stop"));
  if (content != " " || start < 0 || start > 1 || stop != 0) {
    return unimplemented(fmt::format(
        "{}: strips '{}' {} times in front and {} times behind; only one space in front is "
        "supported",
        description.path(), content, start, stop));
  }
  decoder.strip_leading_space = decoder.strip_leading_space || start == 1;
  return ok_status();
}

Status add_metaspace(const JsonValue& description, TokenDecoder& decoder) {
  HEDDLE_ASSIGN_OR_RETURN(std::string replacement, description.string_or("replacement", "▁"));
  HEDDLE_ASSIGN_OR_RETURN(const bool prefix, description.bool_or("add_prefix_space", true));
  HEDDLE_ASSIGN_OR_RETURN(const std::string scheme,
                          description.string_or("prepend_scheme", prefix ? "always" : "never"));
  decoder.replacements.emplace_back(std::move(replacement), " ");
  decoder.strip_leading_space = scheme != "never";
  return ok_status();
}

Status add_decoder(const JsonValue& description, DecoderParts& parts) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string type, description.require_string("type"));
  if (type == "Sequence") {
    HEDDLE_ASSIGN_OR_RETURN(const JsonValue list, description.require("decoders"));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, list.items());
    for (const JsonValue& item : items) HEDDLE_RETURN_IF_ERROR(add_decoder(item, parts));
    return ok_status();
  }
  if (type == "ByteLevel") {
    parts.byte_level = true;
    return ok_status();
  }
  if (type == "Fuse") return ok_status();  // decoding joins tokens in any case
  if (type == "ByteFallback") {
    parts.decoder.byte_fallback = true;
    return ok_status();
  }
  if (type == "Replace") return add_replace(description, parts.decoder);
  if (type == "Strip") return add_strip(description, parts.decoder);
  if (type == "Metaspace") return add_metaspace(description, parts.decoder);
  return unimplemented(
      fmt::format("{}: the decoder '{}' is not supported", description.path(), type));
}

}  // namespace

Result<DecoderParts> parse_decoder(const std::optional<JsonValue>& description) {
  DecoderParts parts;
  if (description) HEDDLE_RETURN_IF_ERROR(add_decoder(*description, parts));
  return parts;
}

namespace {

constexpr size_t kBytesPerMemberGuess = 8;

// Adds the members for which `is_used` is true.
template <typename IsUsed>
Status add_members(const JsonValue& vocabulary, const simdjson::dom::object& members,
                   const IsUsed& is_used, BpeBuilder& builder) {
  size_t num_members = 0;
  for (const auto [spelling, value] : members) {
    const size_t index = num_members++;
    if (!is_used(spelling, index)) continue;
    int64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS) {
      const JsonValue member(value, fmt::format("{}['{}']", vocabulary.path(), spelling));
      HEDDLE_ASSIGN_OR_RETURN(id, member.as_integer());
    }
    const Status status = builder.add_token(spelling, id);
    if (!status.ok()) return status.with_context(vocabulary.path());
  }
  if (num_members > 0) return ok_status();
  return data_loss(fmt::format("{} is empty; a model needs tokens", vocabulary.path()));
}

}  // namespace

Status add_vocabulary(const JsonValue& vocabulary, BpeBuilder& builder) {
  HEDDLE_ASSIGN_OR_RETURN(const simdjson::dom::object members, vocabulary.as_object());
  builder.reserve_tokens(members.size(), members.size() * kBytesPerMemberGuess);
  const auto all = [](std::string_view, size_t) { return true; };
  Status status = add_members(vocabulary, members, all, builder);
  if (status.ok()) return status;
  // If a key occurs twice, the last one counts.
  std::unordered_map<std::string_view, size_t> last;
  size_t index = 0;
  for (const auto [spelling, value] : members) last[spelling] = index++;
  if (last.size() == index) return status;
  builder.clear();
  const auto is_last = [&last](std::string_view spelling, size_t i) { return last[spelling] == i; };
  return add_members(vocabulary, members, is_last, builder);
}

}  // namespace heddle::tokenizer
