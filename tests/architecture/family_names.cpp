// SPDX-License-Identifier: Apache-2.0
#include "architecture/family_names.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include <fmt/format.h>

#include "architecture/layering.h"

namespace heddle::architecture {
namespace {

namespace fs = std::filesystem;

// In lower case, with what joins the parts of a name taken out: "GptOss", "gpt-oss" and "gpt_oss"
// are one, and so are "3.5" and "3_5".
std::string bare(std::string_view text) {
  const auto is_digit = [&](size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' || text[i] == '-') continue;
    if (text[i] == '.' && i > 0 && is_digit(i - 1) && is_digit(i + 1)) continue;
    result += static_cast<char>(std::tolower(static_cast<unsigned char>(text[i])));
  }
  return result;
}

void erase_all(std::string& text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    text.erase(at, word.size());
  }
}

std::vector<std::string> family_names(const fs::path& repository) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(repository / "src" / "models", error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (entry->is_directory() && name != "layers" && name != "drafts" && name != "vision")
      names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

// The families that a line of code names although it should not.
std::vector<std::string> named_families(std::string line, const std::string& path,
                                        const std::vector<std::string>& names,
                                        const std::vector<OtherMeaning>& other_meanings) {
  for (const OtherMeaning& other : other_meanings) {
    if (path.starts_with(other.path)) erase_all(line, other.word);
  }
  for (const std::string& name : names) {
    if (path == "src/models/registry.cpp") erase_all(line, fmt::format("family({})", name));
  }
  std::string words = bare(line);
  for (const std::string& name : names) {
    if (path.starts_with(fmt::format("src/models/{}/", name))) erase_all(words, bare(name));
  }
  std::vector<std::string> named;
  for (const std::string& name : names) {
    if (words.find(bare(name)) != std::string::npos) named.push_back(name);
  }
  return named;
}

// The length of the string or character that `code` begins with; 0 if it begins with none.
size_t literal_length(std::string_view code, char before) {
  if (code.starts_with("R\"")) {
    const size_t open = code.find('(');
    if (open == std::string_view::npos) return code.size();
    const std::string close = fmt::format("){}\"", code.substr(2, open - 2));
    const size_t end = code.find(close, open);
    return end == std::string_view::npos ? code.size() : end + close.size();
  }
  const bool digit_before = std::isxdigit(static_cast<unsigned char>(before)) != 0;
  if (code[0] != '"' && (code[0] != '\'' || digit_before)) return 0;  // 1'000 is a number
  size_t end = 1;
  while (end < code.size() && code[end] != code[0]) end += code[end] == '\\' ? 2 : 1;
  return std::min(end + 1, code.size());
}

}  // namespace

bool is_word(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
}

std::string without_comments(std::string_view source) {
  std::string code;
  while (!source.empty()) {
    size_t length = literal_length(source, code.empty() ? '\0' : code.back());
    if (length > 0) {
      code += source.substr(0, length);
    } else if (source.starts_with("//")) {
      length = std::min(source.find('\n'), source.size());
    } else if (source.starts_with("/*")) {
      const size_t end = source.find("*/", 2);
      length = end == std::string_view::npos ? source.size() : end + 2;
      const auto breaks = std::ranges::count(source.substr(0, length), '\n');
      code.append(static_cast<size_t>(breaks), '\n');
    } else {
      length = 1;
      code += source[0];
    }
    source.remove_prefix(length);
  }
  return code;
}

std::vector<std::string> family_name_violations(const fs::path& repository,
                                                const std::vector<OtherMeaning>& other_meanings) {
  const std::vector<std::string> names = family_names(repository);
  std::vector<std::string> violations;
  for (const char* folder : {"include", "src", "tools"}) {
    for (const fs::path& file : source_files(repository / folder)) {
      if (is_test_source(file)) continue;
      const std::string path = fs::relative(file, repository).generic_string();
      std::istringstream lines(without_comments(read_text(file)));
      int number = 0;
      for (std::string line; std::getline(lines, line);) {
        ++number;
        for (const std::string& name : named_families(line, path, names, other_meanings)) {
          violations.push_back(fmt::format("{}:{}: names {}", path, number, name));
        }
      }
    }
  }
  std::ranges::sort(violations);
  return violations;
}

}  // namespace heddle::architecture
