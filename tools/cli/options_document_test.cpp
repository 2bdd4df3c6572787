// SPDX-License-Identifier: Apache-2.0
// docs/options.md lists every option of every subcommand as it is declared, and no other.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_data.h"
#include "tools/cli/subcommand.h"

namespace heddle::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Names = std::set<std::string>;

// The texts between backticks.
std::vector<std::string> in_backticks(const std::string& text) {
  static const std::regex kQuoted("`([^`]*)`");
  std::vector<std::string> words;
  for (auto match = std::sregex_iterator(text.begin(), text.end(), kQuoted);
       match != std::sregex_iterator(); ++match) {
    words.push_back((*match)[1]);
  }
  return words;
}

struct DocumentedOption {
  Names names;
  std::string unit;
  std::string default_value;
  std::string meaning;
  bool tuning = false;
};

// The tables below a heading of the second level, and the subcommands that the heading names.
struct Section {
  std::vector<std::string> commands;  // "heddle bench ops"; none for options of other servers
  std::vector<DocumentedOption> options;
};

std::vector<Section> parse_document(const std::string& text) {
  static const std::regex kRow(R"(\| (`-.*`) \| (.*) \| (.*) \| (.*) \|)");
  static const std::regex kFamiliarRow(R"(\| (`-.*`) \| (.*) \| (.*) \|)");
  std::vector<Section> sections(1);
  bool tuning = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (line.starts_with("##")) tuning = line == "### Tuning";
    if (line.starts_with("## ")) {
      sections.emplace_back().commands = in_backticks(line);
    } else if (std::regex_match(line, match, kRow)) {
      const std::vector<std::string> names = in_backticks(match[1]);
      sections.back().options.push_back(
          {Names(names.begin(), names.end()), match[2], match[3], match[4], tuning});
    } else if (std::regex_match(line, match, kFamiliarRow)) {
      for (const std::string& name : in_backticks(match[1])) {
        sections.back().options.push_back({Names{name}, "", "", match[3], tuning});
      }
    }
  }
  return sections;
}

using DeclaredByCommand = std::map<std::string, std::vector<DeclaredOption>>;

void add_declared(const std::string& prefix, const Subcommand& subcommand,
                  DeclaredByCommand& declared) {
  const std::string name = prefix + " " + subcommand.name;
  for (const Subcommand* child : subcommand.children) add_declared(name, *child, declared);
  if (subcommand.declare != nullptr) declared[name] = declared_options(subcommand);
}

std::string shown_default(const DeclaredOption& option) {
  return option.default_value.empty() ? "none" : option.default_value;
}

std::string row_to_add(const DeclaredOption& option) {
  std::string names;
  for (const std::string& name : option.names) {
    names += (names.empty() ? "`" : ", `") + name + "`";
  }
  return fmt::format("| {} | UNIT | {} | MEANING |", names, shown_default(option));
}

// Where the document and the program disagree, each with the remedy.
std::vector<std::string> disagreements(const std::string& document,
                                       const DeclaredByCommand& declared) {
  std::vector<std::string> found;
  const std::vector<Section> sections = parse_document(document);
  const auto is_about = [](const Section& section, const std::string& command) {
    return std::ranges::find(section.commands, command) != section.commands.end();
  };
  const auto fits = [](const DocumentedOption& row, const DeclaredOption& option) {
    return row.names == Names(option.names.begin(), option.names.end()) &&
           row.tuning == option.tuning && !row.meaning.empty() &&
           (option.familiar || row.default_value == shown_default(option));
  };
  const auto lists = [&](const Section& section, const DeclaredOption& option) {
    return std::ranges::any_of(section.options, [&](const auto& row) { return fits(row, option); });
  };
  for (const auto& [command, options] : declared) {
    for (const DeclaredOption& option : options) {
      const bool listed = std::ranges::any_of(sections, [&](const Section& section) {
        // Options of every subcommand that loads a model stand with `heddle serve` alone.
        const bool counts = option.familiar
                                ? section.commands.empty()
                                : is_about(section, command) || is_about(section, "heddle serve");
        return counts && lists(section, option);
      });
      if (listed) continue;
      found.push_back(
          option.familiar
              ? fmt::format("docs/options.md: add {} to \"Options of other servers\"",
                            option.names.front())
              : fmt::format("docs/options.md does not list {} of `{}` with these names and this "
                            "default: add or change this row below \"{}\":\n{}",
                            option.names.front(), command,
                            option.tuning ? "### Tuning" : fmt::format("## `{}`", command),
                            row_to_add(option)));
    }
  }
  for (const Section& section : sections) {
    for (const std::string& command : section.commands) {
      for (const DocumentedOption& row : section.options) {
        const auto options = declared.find(command);
        const bool exists =
            options != declared.end() &&
            std::ranges::any_of(options->second, [&](const auto& each) { return fits(row, each); });
        if (exists && !row.unit.empty()) continue;
        found.push_back(fmt::format(
            "docs/options.md: `{}` has no option {} with these names and the default {}, or the "
            "row has no unit; remove or change the row",
            command, *row.names.begin(), row.default_value));
      }
    }
  }
  return found;
}

std::string read_document() {
  std::ifstream file(heddle::testing::repository_path("docs/options.md"));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(OptionsDocument, ListsEveryOptionOfTheProgramAndNoOther) {
  DeclaredByCommand declared;
  for (const Subcommand* subcommand : kSubcommands) add_declared("heddle", *subcommand, declared);
  const auto is_shown = [](const DeclaredOption& option) {
    return !option.familiar && !option.tuning;
  };
  EXPECT_GT(std::ranges::count_if(declared["heddle serve"], is_shown), 50);
  EXPECT_LE(std::ranges::count_if(declared["heddle serve"], is_shown), 80)
      << "few can be read; a setting that few need belongs below Options::kTuning";
  EXPECT_TRUE(declared.contains("heddle bench ops"));
  const std::vector<std::string> found = disagreements(read_document(), declared);
  std::string all;
  for (const std::string& one : found) all += one + "\n";
  EXPECT_THAT(found, IsEmpty()) << all;
}

TEST(OptionsDocument, AnUndocumentedOptionSaysWhatToDo) {
  const std::string document =
      "## `heddle serve`\n"
      "| option | unit or values | default | meaning |\n"
      "|---|---|---|---|\n"
      "| `--port`, `-p` | port | 30000 | Port to listen on |\n"
      "## Options of other servers\n"
      "| `--tp`, `--dp` | `1` | One process |\n";
  const DeclaredOption port{.names = {"--port", "-p"}, .default_value = "30000"};
  const DeclaredOption ranks{.names = {"--dp"}, .familiar = true};
  EXPECT_THAT(disagreements(document, {{"heddle serve", {port, ranks}}}), IsEmpty());

  const DeclaredOption added{.names = {"--added"}, .default_value = "5"};
  EXPECT_THAT(disagreements(document, {{"heddle serve", {port, added}}}),
              ElementsAre(HasSubstr("below \"## `heddle serve`\":\n"
                                    "| `--added` | UNIT | 5 | MEANING |")));
  const DeclaredOption moved{.names = {"--port", "-p"}, .default_value = "8000"};
  EXPECT_THAT(disagreements(document, {{"heddle serve", {moved}}}),
              ElementsAre(HasSubstr("| `--port`, `-p` | UNIT | 8000 |"),
                          HasSubstr("no option --port with these names and the default 30000")));
  EXPECT_THAT(disagreements(document, {{"heddle serve", {}}}),
              ElementsAre(HasSubstr("remove or change the row")));
  const DeclaredOption tuned{.names = {"--port", "-p"}, .default_value = "30000", .tuning = true};
  EXPECT_THAT(disagreements(document, {{"heddle serve", {tuned}}}),
              ElementsAre(HasSubstr("below \"### Tuning\""), HasSubstr("no option --port")));
  const DeclaredOption eager{.names = {"--enforce-eager"}, .familiar = true};
  EXPECT_THAT(disagreements(document, {{"heddle serve", {port, eager}}}),
              ElementsAre(HasSubstr("add --enforce-eager to \"Options of other servers\"")));
}

}  // namespace
}  // namespace heddle::tools
