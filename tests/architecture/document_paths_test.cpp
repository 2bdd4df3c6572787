// SPDX-License-Identifier: Apache-2.0
// Documents name files that exist: every `src/...`, `tools/...` and so on between backticks.
#include <filesystem>
#include <regex>
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

// The paths that a text names, in order: a folder of the repository and something in it.
std::vector<std::string> named_paths(const std::string& text) {
  static const std::regex kPath("`((src|include|tools|tests|bench|docs|cmake)/[A-Za-z0-9_./-]+)`");
  std::vector<std::string> paths;
  for (std::sregex_iterator match(text.begin(), text.end(), kPath), end; match != end; ++match) {
    paths.push_back((*match)[1]);
  }
  return paths;
}

// Markdown files at the top, in docs/, and anywhere below src/, tests/, tools/ and bench/.
std::vector<fs::path> documents(const fs::path& repository) {
  std::vector<fs::path> found;
  const auto take = [&found](const fs::directory_entry& entry) {
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  };
  for (const auto& entry : fs::directory_iterator(repository)) take(entry);
  for (const char* folder : {"docs", "src", "tests", "tools", "bench"}) {
    for (const auto& entry : fs::recursive_directory_iterator(repository / folder)) take(entry);
  }
  return found;
}

TEST(DocumentPathsTest, DocumentsNameFilesThatExist) {
  const fs::path repository = heddle::testing::repository_path("");
  std::vector<std::string> missing;
  for (const fs::path& document : documents(repository)) {
    for (const std::string& path : named_paths(read_text(document))) {
      if (fs::exists(repository / path)) continue;
      missing.push_back(
          fmt::format("{}: {}", fs::relative(document, repository).generic_string(), path));
    }
  }
  EXPECT_THAT(missing, IsEmpty()) << "name the file that took its place, or drop the mention";
}

TEST(DocumentPathsTest, PathsStandBetweenBackticks) {
  EXPECT_THAT(named_paths("See `src/core/mutex.h` and `docs/`, not src/core/log.h or `heddle_x`; "
                          "`tools/main.cpp`."),
              ElementsAre("src/core/mutex.h", "tools/main.cpp"));
}

}  // namespace
}  // namespace heddle::architecture
