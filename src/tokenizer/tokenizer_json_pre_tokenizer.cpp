// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <fmt/format.h>

#include "tokenizer/regex.h"
#include "tokenizer/tokenizer_json_steps.h"
#include "tokenizer/word_patterns.h"

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

  // Older files have add_prefix_space where newer ones have prepend_scheme.
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

}  // namespace heddle::tokenizer
