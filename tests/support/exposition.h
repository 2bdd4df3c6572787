// SPDX-License-Identifier: Apache-2.0
// Reads Prometheus' text format as strictly as a test wants it: every family is announced once with
// HELP and TYPE, every series is there once.
#pragma once

#include <cmath>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace heddle::testing {

struct Exposition {
  std::map<std::string, std::string> types;  // of families
  std::map<std::string, std::string> helps;  // of families
  std::map<std::string, double> values;      // of series, with their labels as written

  // The series whose name and labels contain all of these; a failure unless it is exactly one.
  [[nodiscard]] double value(std::string_view name,
                             std::initializer_list<std::string_view> labels = {}) const {
    double found = 0;
    int count = 0;
    for (const auto& [series, number] : values) {
      if (series.substr(0, series.find('{')) != name) continue;
      bool matches = true;
      for (const std::string_view label : labels) {
        matches = matches && series.find(label) != std::string::npos;
      }
      if (!matches) continue;
      found = number;
      ++count;
    }
    EXPECT_EQ(count, 1) << name;
    return found;
  }
};

// The name without what histograms append.
inline std::string family_of(const Exposition& text, const std::string& name) {
  for (const std::string_view suffix : {"_bucket", "_sum", "_count"}) {
    if (!name.ends_with(suffix)) continue;
    const std::string family = name.substr(0, name.size() - suffix.size());
    const auto type = text.types.find(family);
    if (type != text.types.end() && type->second == "histogram") return family;
  }
  return name;
}

inline Exposition parse_exposition(std::string_view text) {
  Exposition result;
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  while (!text.empty()) {
    const std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(line.size() + 1);
    if (line.starts_with("# HELP ") || line.starts_with("# TYPE ")) {
      const size_t end = line.find(' ', 7);
      const std::string family = line.substr(7, end - 7);
      auto& known = line[2] == 'H' ? result.helps : result.types;
      EXPECT_TRUE(known.emplace(family, line.substr(end + 1)).second)
          << "announced twice: " << line;
      EXPECT_GT(line.size(), end + 1) << line;
      continue;
    }
    const size_t brace = line.rfind('}');
    const size_t space = line.find(' ', brace == std::string::npos ? 0 : brace);
    if (space == std::string::npos) {
      ADD_FAILURE() << "not a series: " << line;
      continue;
    }
    const std::string series = line.substr(0, space);
    const std::string name = series.substr(0, series.find('{'));
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_:0123456789"), std::string::npos)
        << line;
    EXPECT_TRUE(result.types.contains(family_of(result, name))) << "before its TYPE: " << line;
    EXPECT_TRUE(result.helps.contains(family_of(result, name))) << "without HELP: " << line;
    size_t used = 0;
    const std::string number = line.substr(space + 1);
    const double value = number == "+Inf" ? HUGE_VAL : std::stod(number, &used);
    EXPECT_TRUE(number == "+Inf" || used == number.size()) << line;
    EXPECT_TRUE(result.values.emplace(series, value).second) << "there twice: " << series;
  }
  return result;
}

}  // namespace heddle::testing
