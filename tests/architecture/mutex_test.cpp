// SPDX-License-Identifier: Apache-2.0
// Locks that clang can prove: outside core/ no std::mutex and its relatives, tests included, only
// those of core/mutex.h, and these make clang refuse a guarded member that is touched without its
// lock.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "architecture/family_names.h"
#include "architecture/layering.h"
#include "support/test_data.h"

namespace heddle::architecture {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::array<std::string_view, 10> kBareLocks = {
    "std::mutex",       "std::recursive_mutex",       "std::timed_mutex", "std::shared_mutex",
    "std::lock_guard",  "std::condition_variable",    "std::unique_lock", "std::scoped_lock",
    "std::shared_lock", "std::condition_variable_any"};

// "file:line: std::mutex" for each place in `source` that names one of kBareLocks.
std::vector<std::string> bare_locks(const std::string& file, std::string_view source) {
  const std::string code = without_comments(source);
  std::vector<std::pair<size_t, std::string_view>> found;
  for (const std::string_view name : kBareLocks) {
    for (size_t at = code.find(name); at != std::string::npos; at = code.find(name, at + 1)) {
      const size_t end = at + name.size();
      if (end == code.size() || !is_word(code[end])) found.emplace_back(at, name);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> violations;
  for (const auto& [at, name] : found) {
    const auto line = 1 + std::count(code.begin(), code.begin() + static_cast<ptrdiff_t>(at), '\n');
    violations.push_back(fmt::format("{}:{}: {}", file, line, name));
  }
  return violations;
}

TEST(BareMutexTest, NoSourceOutsideCoreUsesOne) {
  std::vector<std::string> violations;
  for (const char* folder : {"include", "src", "tools", "tests"}) {
    for (const fs::path& path : source_files(heddle::testing::repository_path(folder))) {
      const std::string file =
          fs::relative(path, heddle::testing::repository_path("")).generic_string();
      if (file.starts_with("src/core/") || file == "tests/architecture/mutex_test.cpp") continue;
      for (std::string& violation : bare_locks(file, read_text(path))) {
        violations.push_back(std::move(violation));
      }
    }
  }
  EXPECT_THAT(violations, IsEmpty())
      << "clang cannot prove these. Use Mutex, MutexLock or CondVar of core/mutex.h, mark what a "
         "mutex protects with HEDDLE_GUARDED_BY, and private functions that need it locked with "
         "HEDDLE_REQUIRES";
}

TEST(BareMutexTest, IsFoundByItsWholeNameAndOutsideComments) {
  EXPECT_THAT(bare_locks("a.h",
                         "// std::mutex\n"
                         "std::mutex mutex_;\n"
                         "const std::lock_guard lock(mutex_);\n"
                         "std::mutex_like other;\n"
                         "std::condition_variable_any changed_;\n"),
              ElementsAre("a.h:2: std::mutex", "a.h:3: std::lock_guard",
                          "a.h:5: std::condition_variable_any"));
}

// The errors of clang for a class with a guarded count and `body` as its member function; empty
// when there are none.
std::string errors_of_clang(const std::string& body) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const fs::path file =
      fs::path(::testing::TempDir()) / fmt::format("heddle_{}_{}.cpp", test->name(), ::getpid());
  const fs::path answer = fs::path(file).replace_extension(".txt");
  std::ofstream(file) << fmt::format(
      "#include \"core/mutex.h\"\n"
      "class Counter {{\n"
      " public:\n"
      "  void member() {{ {} }}\n"
      " private:\n"
      "  heddle::Mutex mutex_;\n"
      "  heddle::CondVar changed_;\n"
      "  int count_ HEDDLE_GUARDED_BY(mutex_) = 0;\n"
      "}};\n",
      body);
  const std::string command = fmt::format(
      "clang++-19 -std=c++20 -fsyntax-only -Wthread-safety -Werror=thread-safety -I'{}' '{}' "
      "> '{}' 2>&1",
      heddle::testing::repository_path("src").string(), file.string(), answer.string());
  const int exit_code = std::system(command.c_str());
  const std::string text = read_text(answer);
  EXPECT_EQ(exit_code == 0, text.empty()) << text;
  fs::remove(file);
  fs::remove(answer);
  return text;
}

TEST(ThreadSafetyTest, ClangRefusesAGuardedMemberThatIsTouchedWithoutItsLock) {
  if (std::system("clang++-19 --version > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "clang++-19 is not installed";
  }
  const auto refuses = HasSubstr("requires holding mutex 'mutex_'");
  EXPECT_THAT(errors_of_clang("++count_;"), refuses);
  EXPECT_THAT(errors_of_clang("heddle::MutexLock lock(mutex_); lock.unlock(); ++count_;"), refuses);
  EXPECT_THAT(errors_of_clang("const heddle::MutexLock lock(mutex_);"
                              "changed_.wait(mutex_, [this] { return count_ > 0; });"),
              refuses);
  EXPECT_THAT(errors_of_clang("changed_.wait(mutex_, [] { return true; });"), refuses);

  EXPECT_EQ(errors_of_clang("const heddle::MutexLock lock(mutex_); ++count_;"), "");
  EXPECT_EQ(errors_of_clang("const heddle::MutexLock lock(mutex_);"
                            "changed_.wait(mutex_, [this]() HEDDLE_REQUIRES(mutex_) {"
                            "  return count_ > 0; });"),
            "");
}

}  // namespace
}  // namespace heddle::architecture
