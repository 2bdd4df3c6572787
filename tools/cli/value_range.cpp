// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/value_range.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <type_traits>

#include <fmt/format.h>

namespace heddle::tools {
namespace {

// The bounds allowed by both the range and the type. A type's limit may be inexact as a double.
template <typename Number>
Number lowest(const ValueRange& range) {
  constexpr Number kLowest = std::numeric_limits<Number>::lowest();
  return range.low > static_cast<double>(kLowest) ? static_cast<Number>(range.low) : kLowest;
}

template <typename Number>
Number highest(const ValueRange& range) {
  constexpr Number kHighest = std::numeric_limits<Number>::max();
  return range.high < static_cast<double>(kHighest) ? static_cast<Number>(range.high) : kHighest;
}

template <typename Number>
bool is_within(Number value, const ValueRange& range) {
  if (range.also && static_cast<double>(value) == *range.also) return true;
  return value >= lowest<Number>(range) && value <= highest<Number>(range) &&
         !(range.low_excluded && static_cast<double>(value) == range.low);
}

// Describes the allowed values, as "a whole number from 0 to 65535".
template <typename Number>
std::string describe(const ValueRange& range) {
  const std::string also = range.also ? fmt::format("{:g} or ", *range.also) : "";
  std::string kind = also + (std::is_integral_v<Number> ? "a whole number" : "a number");
  const bool bounded =
      std::is_integral_v<Number> || (std::isfinite(range.low) && std::isfinite(range.high));
  const Number low = lowest<Number>(range);
  const Number high = highest<Number>(range);
  if (bounded && range.low_excluded)
    return fmt::format("{} above {} and at most {}", kind, low, high);
  if (bounded) return fmt::format("{} from {} to {}", kind, low, high);
  if (!std::isfinite(range.low)) return kind;
  return fmt::format("{} {} {}", kind, range.low_excluded ? "above" : "of at least", low);
}

}  // namespace

template <typename Number>
Result<Number> parse_number(std::string_view text, const ValueRange& range) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool good = error == std::errc() && end == text.data() + text.size() && is_within(value, range);
  if constexpr (std::is_floating_point_v<Number>) good = good && std::isfinite(value);
  if (good) return value;
  return invalid_argument(
      fmt::format("{} is not {}", text.empty() ? "\"\"" : text, describe<Number>(range)));
}

template Result<uint16_t> parse_number(std::string_view, const ValueRange&);
template Result<int32_t> parse_number(std::string_view, const ValueRange&);
template Result<int64_t> parse_number(std::string_view, const ValueRange&);
template Result<uint64_t> parse_number(std::string_view, const ValueRange&);
template Result<float> parse_number(std::string_view, const ValueRange&);
template Result<double> parse_number(std::string_view, const ValueRange&);

Result<std::vector<int64_t>> parse_counts(const char* option, std::string_view text,
                                          const ValueRange& range) {
  std::vector<int64_t> counts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto count = parse_number<int64_t>(text.substr(begin, end - begin), range);
    if (!count.ok()) return count.status().with_context(fmt::format("{} {}", option, text));
    counts.push_back(*count);
    begin = end + 1;
  }
  return counts;
}

}  // namespace heddle::tools
