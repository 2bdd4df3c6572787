// SPDX-License-Identifier: Apache-2.0
// Finds the data of tests.
#pragma once

#include <filesystem>
#include <optional>

namespace heddle::testing {

// A file or folder of the repository, for example repository_path("models/heddle-tiny"). The
// repository is the one that the program was built from, or that the environment variable
// HEDDLE_ROOT names where a program runs on another machine.
std::filesystem::path repository_path(const std::filesystem::path& relative);

// A file or folder of the developers' larger data set, named by the environment variable
// HEDDLE_SHARED; none when it is unset or does not have it.
std::optional<std::filesystem::path> shared_path(const std::filesystem::path& relative);

// Whether matrices and recorded questions are wanted whole (HEDDLE_TEST_FULL=1, set by `./run test
// --full`) and not as the sample that every run takes.
bool wants_everything();

}  // namespace heddle::testing

// Skips the running test, saying why, unless the larger data set has `relative`; else declares
// `variable`.
#define HEDDLE_SHARED_PATH_OR_SKIP(variable, relative)                                    \
  const auto variable##_optional_ = ::heddle::testing::shared_path(relative);             \
  if (!variable##_optional_) {                                                            \
    GTEST_SKIP() << "needs " << (relative) << " below the folder named by HEDDLE_SHARED"; \
  }                                                                                       \
  const std::filesystem::path& variable = *variable##_optional_
