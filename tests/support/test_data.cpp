// SPDX-License-Identifier: Apache-2.0
#include "support/test_data.h"

#include <cstdlib>

namespace heddle::testing {

std::filesystem::path repository_path(const std::filesystem::path& relative) {
  return std::filesystem::path(HEDDLE_SOURCE_DIR) / relative;
}

std::optional<std::filesystem::path> shared_path(const std::filesystem::path& relative) {
  const char* root = std::getenv("HEDDLE_SHARED");
  if (root == nullptr || *root == '\0') return std::nullopt;
  std::filesystem::path path = std::filesystem::path(root) / relative;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

}  // namespace heddle::testing
