// SPDX-License-Identifier: Apache-2.0
#include "verify/golden_cases.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes a golden file of its own and reads it.
class GoldenCases : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  void add(const std::string& name, const Shape& shape, DType dtype) {
    Tensor& tensor = tensors_.emplace_back(shape, dtype);
    if (dtype == DType::kI32) {
      for (int64_t i = 0; i < tensor.num_elements(); ++i) {
        tensor.span<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i + 10);
      }
    }
    names_.push_back(name);
  }

  Result<std::vector<GoldenCase>> read() const {
    std::vector<checkpoint::NamedTensor> named;
    for (size_t i = 0; i < names_.size(); ++i) named.push_back({names_[i], tensors_[i].view()});
    HEDDLE_RETURN_IF_ERROR(checkpoint::write_safetensors(path_, named));
    HEDDLE_ASSIGN_OR_RETURN(const auto file, checkpoint::SafetensorsFile::open(path_));
    return read_golden_cases(file);
  }

  [[nodiscard]] std::string message() const { return read().status().to_string(); }

 private:
  std::filesystem::path path_ = std::filesystem::path(::testing::TempDir()) /
                                (std::string("heddle_golden_cases_") +
                                 ::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::vector<std::string> names_;
  std::vector<Tensor> tensors_;
};

TEST_F(GoldenCases, HaveIdsLogitsAndWhatElseWasRecorded) {
  add("a.input_ids", {3}, DType::kI32);
  add("a.logits", {3, 8}, DType::kF32);
  add("b.input_ids", {2}, DType::kI32);
  add("b.logits", {2, 8}, DType::kF32);
  add("b.hidden_states", {4, 2, 16}, DType::kF32);
  add("b.greedy", {5}, DType::kI32);
  const auto cases = read();
  ASSERT_TRUE(cases.ok()) << cases.status().to_string();
  ASSERT_EQ(cases->size(), 2u);
  const GoldenCase& a = cases->front();
  EXPECT_EQ(a.name, "a");
  EXPECT_THAT(a.ids, ElementsAre(10, 11, 12));
  EXPECT_EQ(a.num_compared_tokens(), 3);
  EXPECT_FALSE(a.hidden_states.has_value());
  const GoldenCase& b = cases->back();
  EXPECT_TRUE(b.hidden_states.has_value());
  EXPECT_THAT(b.greedy, ElementsAre(10, 11, 12, 13, 14));
  EXPECT_EQ(b.num_compared_tokens(), 6);
}

TEST_F(GoldenCases, MayHaveTheLogitsOfEveryKthTokenOnly) {
  add("a.input_ids", {10}, DType::kI32);
  add("a.logits", {4, 8}, DType::kF32);  // of tokens 0, 3, 6, 9
  const auto cases = read();
  ASSERT_TRUE(cases.ok()) << cases.status().to_string();
  EXPECT_EQ(cases->front().logits_row_step, 3);
}

TEST_F(GoldenCases, MaySayHowFarApartTheTokensWithLogitsAre) {
  add("a.input_ids", {25}, DType::kI32);
  add("a.logits", {3, 8}, DType::kF32);    // of tokens 0, 10, 20
  add("a.logits_step", {1}, DType::kI32);  // 10
  const auto cases = read();
  ASSERT_TRUE(cases.ok()) << cases.status().to_string();
  EXPECT_EQ(cases->front().logits_row_step, 10);
}

TEST_F(GoldenCases, AreRefusedWhereTheLogitsAreNotThoseOfEveryKthToken) {
  add("a.input_ids", {10}, DType::kI32);
  add("a.logits", {6, 8}, DType::kF32);
  EXPECT_THAT(message(), HasSubstr("a: 6 rows of logits are not those of every k-th of 10 tokens"));
}

TEST_F(GoldenCases, AreRefusedWithoutLogits) {
  add("a.input_ids", {3}, DType::kI32);
  EXPECT_THAT(message(), HasSubstr("a.logits"));
}

TEST_F(GoldenCases, AreRefusedWhereHiddenStatesHaveOtherTokens) {
  add("a.input_ids", {3}, DType::kI32);
  add("a.logits", {3, 8}, DType::kF32);
  add("a.hidden_states", {4, 2, 16}, DType::kF32);
  EXPECT_THAT(message(), HasSubstr("a.hidden_states [4, 2, 16] do not fit 3 tokens"));
}

TEST_F(GoldenCases, AreRefusedInAnotherDtype) {
  add("a.input_ids", {3}, DType::kF32);
  add("a.logits", {3, 8}, DType::kF32);
  EXPECT_THAT(message(), HasSubstr("a.input_ids is float32, not int32"));
}

TEST_F(GoldenCases, OfNoCaseAreNoGoldenFile) {
  add("weight", {3}, DType::kF32);
  EXPECT_THAT(message(), HasSubstr("it is not a golden file"));
}

TEST_F(GoldenCases, OfAnotherModelAreRefused) {
  add("a.input_ids", {2}, DType::kI32);
  add("a.logits", {2, 8}, DType::kF32);
  add("a.hidden_states", {4, 2, 16}, DType::kF32);
  const auto cases = read();
  ASSERT_TRUE(cases.ok()) << cases.status().to_string();
  checkpoint::ModelConfig config;
  config.vocab_size = 8;
  config.hidden_size = 16;
  EXPECT_TRUE(check_fits(cases->front(), config).ok());
  config.hidden_size = 17;
  EXPECT_THAT(check_fits(cases->front(), config).to_string(),
              HasSubstr("a has hidden states 16 wide, the model 17"));
  config.vocab_size = 9;
  EXPECT_THAT(check_fits(cases->front(), config).to_string(),
              HasSubstr("a has logits over 8 ids, the model has 9"));
}

}  // namespace
}  // namespace heddle::verify
