// SPDX-License-Identifier: Apache-2.0
// Sentences begin with their subject: no sentence of a comment or a document begins with a bare
// "What" or "Who" clause, unless it is a question, and no name of a test does.
#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "architecture/layering.h"
#include "support/test_data.h"

namespace heddle::architecture {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::array<std::string_view, 4> kClauses = {"What ", "Whatever ", "Who ", "Whoever "};
constexpr std::array<std::string_view, 3> kNames = {"What", "Who", "Nobody"};
constexpr size_t kShownBytes = 50;  // of a sentence

struct Paragraph {
  int line = 0;  // of its beginning, from 1
  std::string text;
};

bool is_one_of(std::string_view letters, char letter) {
  return letters.find(letter) != std::string_view::npos;
}

std::string_view without_indent(std::string_view line) {
  return line.substr(std::min(line.find_first_not_of(' '), line.size()));
}

// The comments of C++ source: lines of comment in a row are one paragraph, unless one is blank; a
// comment behind code is one of its own.
std::vector<Paragraph> comments_of(const std::string& source) {
  std::vector<Paragraph> found;
  std::istringstream lines(source);
  bool goes_on = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string_view words = without_indent(line);
    if (words.starts_with("//")) {
      const std::string_view text = words.substr(2);
      const bool is_blank = without_indent(text).empty();
      if (!goes_on && !is_blank) found.push_back({.line = number, .text = ""});
      if (!is_blank) found.back().text.append(without_indent(text)).append("\n");
      goes_on = !is_blank;
      continue;
    }
    goes_on = false;
    const size_t behind = line.find("  // ");
    if (behind != std::string::npos) {
      found.push_back({.line = number, .text = line.substr(behind + 5)});
    }
  }
  return found;
}

// Whether a line of Markdown is an item of a list: "- a", "* a" or "1. a".
bool is_item(std::string_view line) {
  while (!line.empty() && std::isdigit(static_cast<unsigned char>(line[0])) != 0) {
    line.remove_prefix(1);
  }
  return line.starts_with("- ") || line.starts_with("* ") || line.starts_with(". ");
}

// The paragraphs of Markdown, each item of a list and each cell of a table one of its own; without
// headings and blocks of code.
std::vector<Paragraph> prose_of(const std::string& document) {
  std::vector<Paragraph> found;
  std::istringstream lines(document);
  bool in_code = false;
  bool goes_on = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::string_view words = without_indent(line);
    if (words.starts_with("```")) in_code = !in_code;
    if (in_code || words.empty() || words.starts_with("```") || words.starts_with('#')) {
      goes_on = false;
    } else if (words.starts_with('|')) {
      std::istringstream cells{std::string(words)};
      for (std::string cell; std::getline(cells, cell, '|');) {
        found.push_back({.line = number, .text = std::string(without_indent(cell))});
      }
      goes_on = false;
    } else {
      const bool item = is_item(words);
      if (item) words.remove_prefix(words.find(' ') + 1);
      if (!goes_on || item) found.push_back({.line = number, .text = ""});
      found.back().text.append(words).append("\n");
      goes_on = true;
    }
  }
  return found;
}

// Whether the end of a sentence stands before `at`, or nothing but marks of quoting and emphasis.
bool begins_sentence(std::string_view text, size_t at) {
  while (at > 0 && is_one_of("*_\"'(`", text[at - 1])) --at;
  const size_t word = at;
  while (at > 0 && is_one_of(" \n", text[at - 1])) --at;
  return at == 0 || (at < word && is_one_of(".!?", text[at - 1]));
}

bool is_question(std::string_view sentence) {
  for (size_t at = 0; at < sentence.size(); ++at) {
    const bool ends = at + 1 == sentence.size() || is_one_of(" \n*_\"')`", sentence[at + 1]);
    if (ends && is_one_of(".!?", sentence[at])) return sentence[at] == '?';
  }
  return false;
}

// "file:line: What drafts did is told" for each sentence that begins with a bare clause.
std::vector<std::string> bare_clauses(const std::string& file,
                                      const std::vector<Paragraph>& paragraphs) {
  std::vector<std::string> found;
  for (const Paragraph& paragraph : paragraphs) {
    std::string text = paragraph.text;
    std::ranges::replace(text, '\n', ' ');
    for (size_t at = text.find("Wh"); at != std::string::npos; at = text.find("Wh", at + 1)) {
      const std::string_view sentence = std::string_view(text).substr(at);
      const bool is_clause = std::ranges::any_of(
          kClauses, [&](std::string_view words) { return sentence.starts_with(words); });
      if (!is_clause || !begins_sentence(text, at) || is_question(sentence)) continue;
      const auto breaks = std::ranges::count(paragraph.text.substr(0, at), '\n');
      found.push_back(fmt::format("{}:{}: {}", file, paragraph.line + breaks,
                                  sentence.substr(0, std::min(sentence.find('.'), kShownBytes))));
    }
  }
  return found;
}

// "file: WhatDraftsDidIsTold" for each test of a source whose name begins with one of kNames.
std::vector<std::string> bare_names(const std::string& file, const std::string& source) {
  std::vector<std::string> found;
  for (size_t at = source.find("TEST"); at != std::string::npos; at = source.find("TEST", at + 1)) {
    if (at > 0 && source[at - 1] != '\n') continue;
    const size_t open = source.find('(', at);
    const size_t comma = source.find(',', at);
    const size_t close = source.find(')', at);
    if (open > comma || comma > close || close == std::string::npos) continue;
    const size_t begin = source.find_first_not_of(" \n", comma + 1);
    const std::string name = source.substr(begin, close - begin);
    for (const std::string_view word : kNames) {
      const bool is_word = name.size() > word.size() &&
                           std::isupper(static_cast<unsigned char>(name[word.size()])) != 0;
      if (is_word && name.starts_with(word)) found.push_back(fmt::format("{}: {}", file, name));
    }
  }
  return found;
}

fs::path repository() { return heddle::testing::repository_path(""); }

std::string path_in_repository(const fs::path& path) {
  return fs::relative(path, repository()).generic_string();
}

std::vector<fs::path> all_sources() {
  std::vector<fs::path> sources;
  for (const char* folder : {"include", "src", "tools", "tests", "bench", "examples"}) {
    for (fs::path& path : source_files(repository() / folder)) sources.push_back(std::move(path));
  }
  return sources;
}

void append(std::vector<std::string>& to, std::vector<std::string> more) {
  to.insert(to.end(), more.begin(), more.end());
}

TEST(PlainEnglishTest, SentencesOfCommentsBeginWithTheirSubject) {
  std::vector<std::string> found;
  for (const fs::path& path : all_sources()) {
    append(found, bare_clauses(path_in_repository(path), comments_of(read_text(path))));
  }
  EXPECT_THAT(found, IsEmpty()) << "say who does what, as in \"Reports the drafts of an answer\"";
}

TEST(PlainEnglishTest, SentencesOfDocumentsBeginWithTheirSubject) {
  std::vector<std::string> found;
  const auto check = [&found](const fs::directory_entry& entry) {
    if (entry.path().extension() != ".md") return;
    append(found,
           bare_clauses(path_in_repository(entry.path()), prose_of(read_text(entry.path()))));
  };
  for (const auto& entry : fs::directory_iterator(repository())) check(entry);
  for (const char* folder : {"docs", "src", "tools", "tests", "bench", "examples", "web"}) {
    for (const auto& entry : fs::recursive_directory_iterator(repository() / folder)) check(entry);
  }
  EXPECT_THAT(found, IsEmpty()) << "say who does what, as in \"The server reports the drafts\"";
}

TEST(PlainEnglishTest, NamesOfTestsSayWhatHappens) {
  std::vector<std::string> found;
  for (const fs::path& path : all_sources()) {
    if (is_test_source(path)) append(found, bare_names(path_in_repository(path), read_text(path)));
  }
  EXPECT_THAT(found, IsEmpty()) << "name what happens, as in ReportsDraftsInMetaInfo";
}

TEST(PlainEnglishTest, ClausesAreFoundInCommentsAtTheBeginningOfSentences) {
  EXPECT_THAT(bare_clauses("a.h", comments_of("// What it does. Who reads\n"
                                              "// it. \"Whoever\n"
                                              "// writes\" may know What it is.\n"
                                              "//\n"
                                              "// What for? Whatever works\n"
                                              "int a = 0;  //"
                                              " What a is\n"
                                              "auto b = \"Who is it\";\n")),
              ElementsAre("a.h:1: What it does", "a.h:1: Who reads it",
                          "a.h:2: Whoever writes\" may know What it is", "a.h:5: Whatever works ",
                          "a.h:6: What a is"));
}

TEST(PlainEnglishTest, ClausesAreFoundInDocumentsOutsideHeadingsAndCode) {
  EXPECT_THAT(bare_clauses("a.md", prose_of("# What is here\n"
                                            "**What is new** counts.\n"
                                            "- Who reads it knows.\n"
                                            "  What is it? That.\n"
                                            "1. a\n"
                                            "| what | What it is |\n"
                                            "```\n"
                                            "What is code\n"
                                            "```\n")),
              ElementsAre("a.md:2: What is new** counts", "a.md:3: Who reads it knows",
                          "a.md:6: What it is "));
}

TEST(PlainEnglishTest, NamesOfTestsAreFoundByTheirFirstWord) {
  EXPECT_THAT(bare_names("a.cpp",
                         "TEST(A, WhatIsTold) {}\n"
                         "TEST_F(A,\n"
                         "       NobodyWaits) {}\n"
                         "TEST_P(What, IsFine) {}\n"
                         "TEST(A, WholeWordsCount) {}\n"),
              ElementsAre("a.cpp: WhatIsTold", "a.cpp: NobodyWaits"));
}

}  // namespace
}  // namespace heddle::architecture
