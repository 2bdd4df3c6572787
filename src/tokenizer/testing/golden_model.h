// SPDX-License-Identifier: Apache-2.0
// The SentencePiece models of tests/golden/tokenizer.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "support/test_data.h"
#include "tokenizer/json_reader.h"

namespace heddle::tokenizer::testing {

// The bytes of a file; empty, and the test fails, where there is none.
inline std::string golden_model(std::string_view name) {
  const std::filesystem::path folder = "tests/golden/tokenizer";
  auto bytes = read_file(heddle::testing::repository_path(folder / name));
  EXPECT_TRUE(bytes.ok()) << bytes.status().to_string();
  return bytes.ok() ? std::move(bytes).value() : std::string();
}

}  // namespace heddle::tokenizer::testing
