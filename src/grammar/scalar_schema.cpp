// SPDX-License-Identifier: Apache-2.0
#include "grammar/scalar_schema.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "grammar/code_points.h"
#include "grammar/number_range.h"
#include "grammar/pattern.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

// The intersection of several sets of texts; stores the first problem.
class Intersection {
 public:
  [[nodiscard]] bool is_empty_set() const { return set_ && set_->is_empty(); }

  [[nodiscard]] const std::optional<ByteDfa>& set() const { return set_; }

  void begin_with(ByteDfa set) { set_ = std::move(set); }

  // `at` and `keyword` are the schema and the keyword from which the set comes.
  template <typename Add>
  [[nodiscard]] std::optional<ScalarProblem> add(const Json& at, std::string_view keyword,
                                                 const Add& add) {
    Result<ByteDfa> next = set_of(add);
    if (next.ok() && set_) next = set_->intersect(*next);
    if (!next.ok()) {
      return ScalarProblem{
          .at = &at, .keyword = std::string(keyword), .message = next.status().message()};
    }
    set_ = std::move(next).value();
    return std::nullopt;
  }

 private:
  std::optional<ByteDfa> set_;
};

// The bounds that schemas set for the length of texts.
struct LengthBounds {
  int64_t min = 0;
  const Json* min_at = nullptr;
  std::string_view min_keyword;
  std::optional<int64_t> max;

  void raise_min(int64_t length, const Json& at, std::string_view keyword) {
    if (length <= min) return;
    min = length;
    min_at = &at;
    min_keyword = keyword;
  }

  void lower_max(int64_t length) { max = std::min(max.value_or(INT64_MAX), length); }
};

struct SourcedPattern {
  Pattern pattern;
  const Json* at;
  const char* keyword;
};

std::optional<ScalarProblem> read_bounds(const Schemas& schemas, NumberRange& range,
                                         bool& is_bounded) {
  for (const Json* schema : schemas) {
    for (const char* const keyword :
         {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const auto bound = schema->find(keyword);
      if (bound == schema->end()) continue;
      const Result<Nanos> value = nanos_of(*bound);
      if (!value.ok()) {
        return ScalarProblem{.at = schema, .keyword = keyword, .message = value.status().message()};
      }
      is_bounded = true;
      const std::string_view name = keyword;
      const bool excludes = name.starts_with("exclusive");
      if (name == "minimum" || name == "exclusiveMinimum") {
        if (*value > range.min || (*value == range.min && excludes)) {
          range.min = *value;
          range.excludes_min = excludes;
        }
      } else if (*value < range.max || (*value == range.max && excludes)) {
        range.max = *value;
        range.excludes_max = excludes;
      }
    }
  }
  return std::nullopt;
}

std::optional<ScalarProblem> read_texts(const Schemas& schemas, LengthBounds& length,
                                        std::vector<SourcedPattern>& patterns) {
  const auto add_pattern = [&](Pattern pattern, const Json& at, const char* keyword) {
    // A pattern that repeats one character only bounds the length.
    if (const auto repeated = pattern.as_repeated(/*is_anchored=*/true)) {
      length.raise_min(repeated->range.min, at, keyword);
      if (repeated->range.max) length.lower_max(*repeated->range.max);
      if (repeated->set == all_code_points()) return;
      pattern.drop_counts();
    }
    patterns.push_back({.pattern = std::move(pattern), .at = &at, .keyword = keyword});
  };
  for (const Json* schema : schemas) {
    if (const auto least = schema->find("minLength"); least != schema->end()) {
      length.raise_min(count_of(*least), *schema, "minLength");
    }
    if (const auto most = schema->find("maxLength"); most != schema->end()) {
      length.lower_max(count_of(*most));
    }
    if (const auto pattern = schema->find("pattern"); pattern != schema->end()) {
      Result<Pattern> parsed = Pattern::parse(pattern->get_ref<const std::string&>());
      if (!parsed.ok()) {
        return ScalarProblem{
            .at = schema, .keyword = "pattern", .message = parsed.status().message()};
      }
      add_pattern(std::move(parsed).value(), *schema, "pattern");
    }
    if (const auto format = schema->find("format"); format != schema->end()) {
      const std::string_view pattern = pattern_of_format(format->get_ref<const std::string&>());
      if (!pattern.empty()) add_pattern(Pattern::parse(pattern).value(), *schema, "format");
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<ScalarProblem> add_numbers(JsonParts& parts, NfaState from, const Schemas& schemas,
                                         TypeSet types, NfaState to) {
  Nfa& nfa = parts.nfa();
  NumberRange range;
  bool is_bounded = false;
  if (auto problem = read_bounds(schemas, range, is_bounded)) return problem;
  bool is_whole = (types & kFraction) == 0;
  std::vector<const Json*> divided;
  for (const Json* schema : schemas) {
    const auto divisor = schema->find("multipleOf");
    if (divisor == schema->end()) continue;
    is_whole = true;
    if (*divisor != 1) divided.push_back(schema);
  }
  if (!is_whole) {
    if (is_bounded) {
      add_decimals(nfa, from, range, to);
    } else {
      nfa.add_call(from, parts.shared_rule("number", add_any_number), to);
    }
    return std::nullopt;
  }
  if (divided.empty()) {
    if (is_bounded) {
      add_integers(nfa, from, range, to);
    } else {
      nfa.add_call(from, parts.shared_rule("integer", add_any_integer), to);
    }
    return std::nullopt;
  }
  Intersection numbers;
  const auto add_range = [&](Nfa& part, NfaState begin, NfaState end) {
    add_integers(part, begin, range, end);
  };
  if (auto problem = numbers.add(*divided.front(), "multipleOf", add_range)) return problem;
  for (const Json* schema : divided) {
    const int divisor = static_cast<int>(count_of((*schema)["multipleOf"]));
    const auto add_divided = [&](Nfa& part, NfaState begin, NfaState end) {
      add_multiples(part, begin, divisor, end);
    };
    if (auto problem = numbers.add(*schema, "multipleOf", add_divided)) return problem;
  }
  nfa.add_dfa(from, *numbers.set(), to);
  return std::nullopt;
}

std::optional<ScalarProblem> add_texts(JsonParts& parts, NfaState from, const Schemas& schemas,
                                       NfaState to) {
  Nfa& nfa = parts.nfa();
  const TextSpelling& spelling = parts.texts();
  const bool is_json = spelling.form == TextForm::kJsonString;
  LengthBounds length;
  std::vector<SourcedPattern> patterns;
  if (auto problem = read_texts(schemas, length, patterns)) return problem;
  if (length.max && length.min > *length.max) return std::nullopt;
  if (length.min > kMaxCount) {
    return ScalarProblem{
        .at = length.min_at,
        .keyword = std::string(length.min_keyword),
        .message = fmt::format("lengths of at least {} are not supported; leave the keyword out",
                               length.min)};
  }
  const bool is_any = patterns.empty() && length.min == 0 && !length.max;
  if (patterns.empty() && (is_json || is_any)) {
    nfa.add_call(from,
                 is_any ? parts.string_rule()
                        : parts.string_of_length({.min = length.min, .max = length.max}),
                 to);
    return std::nullopt;
  }
  Intersection texts;
  if (!is_json) {
    Result<ByteDfa> plain = parts.plain_texts(/*are_counted=*/length.min > 0 || length.max);
    if (!plain.ok()) {
      return ScalarProblem{
          .at = schemas.front(), .keyword = "type", .message = plain.status().message()};
    }
    texts.begin_with(std::move(plain).value());
  }
  for (const SourcedPattern& source : patterns) {
    const auto add_pattern = [&](Nfa& part, NfaState begin, NfaState end) {
      source.pattern.add_search(part, begin, spelling.form, end);
    };
    if (auto problem = texts.add(*source.at, source.keyword, add_pattern)) return problem;
  }
  if (texts.is_empty_set()) return std::nullopt;
  const CountRange range{.min = length.min, .max = length.max};
  if (range.min > 0 || range.max) {
    const std::string name = range.max
                                 ? fmt::format("text of {} to {} characters", range.min, *range.max)
                                 : fmt::format("text of at least {} characters", range.min);
    const Result<std::optional<RuleId>> rule =
        add_bounded_string(nfa, name, *texts.set(), range, spelling);
    if (!rule.ok()) {
      return ScalarProblem{.at = length.min_at,
                           .keyword = std::string(length.min_keyword),
                           .message = rule.status().message()};
    }
    if (*rule) nfa.add_call(from, **rule, to);
    return std::nullopt;
  }
  const NfaState open = nfa.add_state();
  const NfaState close = nfa.add_state();
  nfa.add_text(from, spelling.mark, open);
  nfa.add_dfa(open, *texts.set(), close);
  nfa.add_text(close, spelling.mark, to);
  return std::nullopt;
}

}  // namespace heddle::grammar
