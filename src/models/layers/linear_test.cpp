// SPDX-License-Identifier: Apache-2.0
#include "models/layers/linear.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "support/test_data.h"

namespace heddle::models {
namespace {

namespace fs = std::filesystem;

// The calls that multiply by a weight; expert_products() and head_products() are given the names of
// theirs.
constexpr const char* kProducts[] = {"g.linear(",
                                     "apply1(\"linear",
                                     "apply1(\"routed_moe",
                                     "apply1(\"absorb_query",
                                     "apply1(\"expand_values",
                                     "weight_rows(",
                                     "weight(\"experts."};

// "file: call" of each file below `root` that has one of them.
std::vector<std::string> products_below(const fs::path& root) {
  std::vector<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string path = fs::relative(entry.path(), root).generic_string();
    if (entry.path().extension() != ".cpp" || path.ends_with("_test.cpp")) continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (const char* product : kProducts) {
      if (text.find(product) != std::string::npos) found.push_back(path + ": " + product);
    }
  }
  return found;
}

// Biases of experts are added, not multiplied by.
TEST(Linear, IsWhereAllProductsWithWeightsAre) {
  using ::testing::AnyOf;
  using ::testing::Each;
  using ::testing::StartsWith;
  const auto found = products_below(heddle::testing::repository_path("src/models"));
  EXPECT_GE(found.size(), 4u) << "no product is found at all";
  EXPECT_THAT(found, Each(AnyOf(StartsWith("layers/linear.cpp: "),
                                "gpt_oss/biased_moe.cpp: weight(\"experts.")));
}

}  // namespace
}  // namespace heddle::models
