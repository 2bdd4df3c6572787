// SPDX-License-Identifier: Apache-2.0
// CUDA kernels that start early: each waits for those before it (ops/cuda/launch.cuh).
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "architecture/family_names.h"
#include "architecture/layering.h"
#include "support/test_data.h"

namespace heddle::architecture {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// "file:line" for each kernel in `source` that has no call of wait_for_inputs(), or of its part
// that waits, before the next kernel begins.
std::vector<std::string> impatient_kernels(const std::string& file, std::string_view source) {
  constexpr std::string_view kKernel = "__global__";
  const std::string code = without_comments(source);
  std::vector<std::string> violations;
  for (size_t at = code.find(kKernel); at != std::string::npos;) {
    const size_t next = code.find(kKernel, at + kKernel.size());
    const std::string kernel = code.substr(at, next - at);
    if (kernel.find("wait_for_inputs();") == std::string::npos &&
        kernel.find("await_kernel_before();") == std::string::npos) {
      const auto line =
          1 + std::count(code.begin(), code.begin() + static_cast<ptrdiff_t>(at), '\n');
      violations.push_back(fmt::format("{}:{}", file, line));
    }
    at = next;
  }
  return violations;
}

TEST(KernelTest, EveryKernelOfAnOpWaitsForItsInputs) {
  std::vector<std::string> violations;
  int num_sources = 0;
  const fs::path root = heddle::testing::repository_path("");
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / "src" / "ops")) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cu" && extension != ".cuh") continue;
    ++num_sources;
    const std::string file = fs::relative(entry.path(), root).generic_string();
    for (std::string& violation : impatient_kernels(file, read_text(entry.path()))) {
      violations.push_back(std::move(violation));
    }
  }
  EXPECT_GT(num_sources, 20);
  EXPECT_THAT(violations, IsEmpty())
      << "launch() lets kernels start before the one before them has ended: call "
         "wait_for_inputs() (src/ops/cuda/launch.cuh) before anything but weights is read";
}

TEST(KernelTest, OneThatDoesNotWaitIsFound) {
  EXPECT_THAT(impatient_kernels("a.cu",
                                "// __global__ void none()\n"
                                "__global__ void first(Params p) { wait_for_inputs(); }\n"
                                "__global__ void second(Params p) { /* wait_for_inputs(); */ }\n"
                                "__global__ void third(Params p) { await_kernel_before(); }\n"),
              ElementsAre("a.cu:3"));
}

}  // namespace
}  // namespace heddle::architecture
