// SPDX-License-Identifier: Apache-2.0
#include "support/test_data.h"

#include <cstdlib>
#include <string_view>

namespace heddle::testing {

std::filesystem::path repository_path(const std::filesystem::path& relative) {
  const char* root = std::getenv("HEDDLE_ROOT");
  return std::filesystem::path(root != nullptr ? root : HEDDLE_SOURCE_DIR) / relative;
}

std::optional<std::filesystem::path> shared_path(const std::filesystem::path& relative) {
  const char* root = std::getenv("HEDDLE_SHARED");
  if (root == nullptr || *root == '\0') return std::nullopt;
  std::filesystem::path path = std::filesystem::path(root) / relative;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

bool wants_everything() {
  const char* full = std::getenv("HEDDLE_TEST_FULL");
  return full != nullptr && std::string_view(full) == "1";
}

}  // namespace heddle::testing
