// SPDX-License-Identifier: Apache-2.0
// A class is implemented in one .cpp or .cu. Where that grows too long it is two classes, each with
// its own state and contract, and not one class in two files.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "architecture/family_names.h"
#include "architecture/layering.h"
#include "architecture/tree_fixture.h"
#include "support/test_data.h"

namespace heddle::architecture {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The class whose member function a line begins to define, "PrefixTree" or "Pool::Lease"; nothing
// for other lines. Definitions stand at the left margin, and classes begin with a capital.
std::optional<std::string> defined_class(std::string_view line) {
  if (line.empty() || std::isalpha(static_cast<unsigned char>(line[0])) == 0) return std::nullopt;
  line = line.substr(0, line.find_first_of(";={"));
  for (size_t at = line.find("::"); at != std::string_view::npos; at = line.find("::", at + 2)) {
    size_t end = at + 2;  // of the function's name
    if (end < line.size() && line[end] == '~') ++end;
    const size_t name = end;
    while (end < line.size() && is_word(line[end])) ++end;
    if (end == name || end == line.size() || line[end] != '(') continue;
    size_t begin = at;  // of the class and the classes around it
    while (begin > 0 && (is_word(line[begin - 1]) || line[begin - 1] == ':')) --begin;
    const std::string_view chain = line.substr(begin, at - begin);
    if (chain.empty() || std::isupper(static_cast<unsigned char>(chain[0])) == 0) continue;
    return std::string(chain);
  }
  return std::nullopt;
}

// "src/cache: PrefixTree is in a.cpp, b.cpp" for each class that several sources of a folder
// define. Those called without_cuda.cpp stand for .cu files in builds without CUDA.
std::vector<std::string> classes_in_several_files(const fs::path& repository) {
  std::map<std::pair<std::string, std::string>, std::set<std::string>> files_of;
  for (const char* top : {"src", "tools"}) {
    for (const fs::path& path : source_files(repository / top)) {
      if (path.extension() != ".cpp" && path.extension() != ".cu") continue;
      if (path.filename() == "without_cuda.cpp" || is_test_source(path)) continue;
      const std::string folder = fs::relative(path.parent_path(), repository).generic_string();
      std::istringstream lines(without_comments(read_text(path)));
      for (std::string line; std::getline(lines, line);) {
        const auto name = defined_class(line);
        if (name) files_of[{folder, *name}].insert(path.filename().string());
      }
    }
  }
  std::vector<std::string> found;
  for (const auto& [key, files] : files_of) {
    if (files.size() < 2) continue;
    found.push_back(fmt::format("{}: {} is in {}", key.first, key.second, fmt::join(files, ", ")));
  }
  return found;
}

TEST(ClassFilesTest, AClassIsImplementedInOneFile) {
  EXPECT_THAT(classes_in_several_files(heddle::testing::repository_path("")), IsEmpty())
      << "Make it several classes, each with a header that says what it "
         "promises, its own state and "
         "tests; or, where it is short, one file.";
}

class ClassFilesTree : public TreeFixture {};

TEST_F(ClassFilesTree, OneInACppAndACuIsFound) {
  write("src/ops/gemm/products.cpp", "Products::~Products() {}\n");
  write("src/ops/gemm/products.cu", "// a kernel\nvoid Products::multiply(int rows) {\n}\n");
  EXPECT_THAT(classes_in_several_files(root()),
              ElementsAre("src/ops/gemm: Products is in products.cpp, products.cu"));
}

TEST_F(ClassFilesTree, OneInTwoCuFilesIsFound) {
  write("src/ops/gemm/products.cu", "void Products::multiply(int rows) {}\n");
  write("src/ops/gemm/products_sm90.cu", "void Products::add(int rows) {}\n");
  EXPECT_THAT(classes_in_several_files(root()),
              ElementsAre("src/ops/gemm: Products is in products.cu, products_sm90.cu"));
}

TEST_F(ClassFilesTree, TestsAndBuildsWithoutCudaMayDefineItAgain) {
  write("src/device/cuda/device.cu", "Status Device::open(int index) {}\n");
  write("src/device/cuda/without_cuda.cpp", "Status Device::open(int) {}\n");
  write("src/device/cuda/device_test.cpp", "Status Device::open(int) {}\n");
  EXPECT_THAT(classes_in_several_files(root()), IsEmpty());
}

TEST(ClassFilesTest, DefinitionsAreFoundAtTheLeftMargin) {
  std::vector<std::string> classes;
  for (const char* line :
       {"Status EngineLoop::submit(Request request, EventCallback on_event) {",
        "EngineLoop::~EngineLoop() {", "Result<std::unique_ptr<Tokenizer>> Loader::load(",
        "scheduler::SchedulerStats Loop::settle(int64_t count) {", "void Pool::Lease::reset() {",
        // not these
        "  return Other::make();", "constexpr auto kOther = Other::make(3);",
        "std::vector<Other::Part> parts(int64_t count) {", "namespace other::inner {",
        "using Other::Part;", "bool less(int a, int b) { return Other::less(a, b); }"}) {
    if (const auto name = defined_class(line)) classes.push_back(*name);
  }
  EXPECT_THAT(classes, ElementsAre("EngineLoop", "EngineLoop", "Loader", "Loop", "Pool::Lease"));
}

}  // namespace
}  // namespace heddle::architecture
