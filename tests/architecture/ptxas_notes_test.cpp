// SPDX-License-Identifier: Apache-2.0
// tests/ptxas_notes.sh finds slow code in what the CUDA assembler prints, and cmake/keep_log.sh
// keeps it.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test_data.h"

namespace heddle::architecture {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// As ptxas -v describes a kernel.
std::string kernel(const std::string& name, int stores, int loads, const std::string& note = "") {
  return fmt::format(
      "ptxas info    : Compiling entry function '{0}' for 'sm_90a'\n{3}"
      "ptxas info    : Function properties for {0}\n"
      "    16 bytes stack frame, {1} bytes spill stores, {2} bytes spill loads\n"
      "ptxas info    : Used 128 registers, used 1 barriers\n",
      name, stores, loads, note);
}

constexpr const char* kRows = "_ZN6heddle11rows_kernelILi8EEEvNS_6ParamsE";
constexpr const char* kMoreRows = "_ZN6heddle16more_rows_kernelILi8EEEvNS_6ParamsE";

class PtxasNotesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("heddle-ptxas-{}", getpid());
    fs::create_directories(folder_);
  }

  void TearDown() override { fs::remove_all(folder_); }

  // The exit code of a command of bash, and what it printed on both streams.
  std::pair<int, std::string> run(const std::string& command) const {
    const fs::path script = folder_ / "script";
    std::ofstream(script) << "set -euo pipefail\n" << command << "\n";
    FILE* const pipe = popen(fmt::format("bash {} 2>&1", script.string()).c_str(), "r");
    if (pipe == nullptr) return {-1, ""};
    std::string text;
    std::array<char, 4096> buffer;
    for (size_t size = 0; (size = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
      text.append(buffer.data(), size);
    }
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
  }

  // Runs ptxas_notes on a log; the names of functions stay mangled.
  std::string notes(const std::string& log, const std::string& allowed = "") const {
    std::ofstream(folder_ / "kernels.log") << log;
    const auto [code, text] =
        run(fmt::format("source '{}'\nc++filt() {{ cat; }}\nptxas_notes '{}' '{}'",
                        heddle::testing::repository_path("tests/ptxas_notes.sh").string(), allowed,
                        (folder_ / "kernels.log").string()));
    EXPECT_EQ(code, 0) << text;
    return text;
  }

  fs::path folder_;
};

TEST_F(PtxasNotesTest, CleanKernelsHaveNone) {
  EXPECT_THAT(notes(kernel(kRows, 0, 0) + kernel(kMoreRows, 0, 0)), IsEmpty());
}

TEST_F(PtxasNotesTest, SpilledRegistersAreToldWithTheKernel) {
  EXPECT_EQ(notes(kernel(kRows, 0, 0) + kernel(kMoreRows, 70, 44)),
            fmt::format("{}: 70 bytes spill stores, 44 bytes spill loads\n", kMoreRows));
  EXPECT_THAT(notes(kernel(kRows, 0, 4)), HasSubstr(kRows)) << "loads alone count";
}

TEST_F(PtxasNotesTest, WaitsBetweenProductsAndIgnoredRegisterCountsAreTold) {
  for (const char* code : {"C7508", "C7510", "C7517"}) {
    const std::string named = fmt::format(
        "ptxas info    : ({}) Potential Performance Loss in the function '{}'\n", code, kMoreRows);
    EXPECT_THAT(notes(kernel(kRows, 0, 0) + named),
                HasSubstr(fmt::format("{}: ({})", kMoreRows, code)));
    const std::string unnamed = fmt::format("ptxas info    : ({}) 'setmaxnreg' ignored\n", code);
    EXPECT_THAT(notes(kernel(kRows, 0, 0, unnamed)),
                HasSubstr(fmt::format("{}: ({})", kRows, code)))
        << "the kernel that is compiled";
  }
  EXPECT_THAT(notes("ptxas info    : (C7599) something else\n"), IsEmpty());
}

TEST_F(PtxasNotesTest, TheListAllowsOneNoteOfOneKernelUpToItsSize) {
  const std::string log = kernel(kRows, 70, 44);
  EXPECT_THAT(notes(log, "rows_kernel spill 70\n"), IsEmpty());
  EXPECT_THAT(notes(log, "rows_kernel spill 69\n"), HasSubstr(kRows)) << "it spills more now";
  EXPECT_THAT(notes(log, "rows_kernel C7510\n"), HasSubstr(kRows)) << "another note";
  EXPECT_THAT(notes(kernel(kMoreRows, 70, 44), "rows_kernel spill 70\n"), HasSubstr(kMoreRows))
      << "another kernel, whose name ends alike";
  EXPECT_THAT(
      notes(kernel(kRows, 0, 0, fmt::format("ptxas info : (C7510) in function '{}'\n", kRows)),
            "rows_kernel C7510\n"),
      IsEmpty());
}

TEST_F(PtxasNotesTest, ALogThatIsMissingFails) {
  const auto [code, text] = run(fmt::format(
      "source '{}'\nptxas_notes '' '{}/none.log'",
      heddle::testing::repository_path("tests/ptxas_notes.sh").string(), folder_.string()));
  EXPECT_NE(code, 0);
  EXPECT_THAT(text, HasSubstr("none.log"));
}

TEST_F(PtxasNotesTest, TheCompilersOutputIsKeptAndItsExitCodeReturned) {
  const fs::path object = folder_ / "kernels.cu.o";
  std::ofstream(folder_ / "output")
      << kernel(kRows, 0, 0) << "kernels.cu(3): warning: unused variable\n"
      << "ptxas info    : (C7510) in function 'f'\n";
  const auto [code, shown] =
      run(fmt::format("'{}' bash -c 'cat {}; exit 3' compile -O3 -o '{}' -c kernels.cu",
                      heddle::testing::repository_path("cmake/keep_log.sh").string(),
                      (folder_ / "output").string(), object.string()));
  EXPECT_EQ(code, 3);
  EXPECT_THAT(shown, HasSubstr("unused variable"));
  EXPECT_THAT(shown, HasSubstr("C7510"));
  EXPECT_THAT(shown, Not(HasSubstr("registers"))) << "of every kernel";
  std::ifstream log(object.string() + ".log");
  std::stringstream kept;
  kept << log.rdbuf();
  EXPECT_THAT(kept.str(), HasSubstr("Used 128 registers"));
}

}  // namespace
}  // namespace heddle::architecture
