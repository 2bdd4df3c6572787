// SPDX-License-Identifier: Apache-2.0
// Models of which some layers slide and others do not, served with pages of their own for the
// sliding layers: in exact mode every row of logits has the bits of a plain pass over the same
// tokens that keeps all keys and values, whatever is cached, cut, preempted or given back on the
// way. The plain pass has one group of pages.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "support/dense_model.h"
#include "support/test_data.h"
#include "watched_engine.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::exact_pass;
using testing::expect_plain_rows;
using testing::first;
using testing::joined;
using testing::scattered_tokens;
using testing::Tokens;
using testing::WatchedEngine;
using testing::WatchedSetting;

// The committed Qwen2, made to slide in its last two of three layers.
class Qwen2OfBothKinds {
 public:
  Qwen2OfBothKinds()
      : folder_(fs::path(::testing::TempDir()) / fmt::format("heddle_qwen2_slides_{}", getpid())) {
    const fs::path source = testing::dense_model();
    fs::create_directories(folder_);
    fs::copy_file(source / "model.safetensors", folder_ / "model.safetensors",
                  fs::copy_options::overwrite_existing);
    nlohmann::json config = nlohmann::json::parse(std::ifstream(source / "config.json"));
    config.erase("layer_types");
    config["use_sliding_window"] = true;
    config["sliding_window"] = 21;
    config["max_window_layers"] = 1;
    std::ofstream(folder_ / "config.json") << config;
  }

  ~Qwen2OfBothKinds() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  Qwen2OfBothKinds(const Qwen2OfBothKinds&) = delete;
  Qwen2OfBothKinds& operator=(const Qwen2OfBothKinds&) = delete;

  [[nodiscard]] const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
};

// Forks of a common beginning, turns that go on from answers, repeats and prompts of their own.
void expect_plain_answers(runner::ForwardPass& pass, const WatchedSetting& setting) {
  SCOPED_TRACE(setting.name());
  WatchedEngine served(pass, setting);
  ASSERT_EQ(served.sizes().windows.size(), 1U);
  const Tokens stem = scattered_tokens(130, 1);
  std::vector<WatchedEngine::Answered> all =
      served.answer({joined(stem, scattered_tokens(40, 2)), joined(stem, scattered_tokens(3, 3)),
                     joined(first(stem, 70), scattered_tokens(60, 4)), scattered_tokens(37, 5)},
                    12);
  const auto second =
      served.answer({joined(all[0].tokens, scattered_tokens(20, 6)),
                     joined(first(all[0].tokens, 150), {5, 6, 7}), first(all[1].tokens, 133),
                     joined(all[3].tokens, scattered_tokens(90, 7)), joined(stem, {9, 8})},
                    20);
  all.insert(all.end(), second.begin(), second.end());
  expect_plain_rows(pass, served, all);
  const auto reused = [](const WatchedEngine::Answered& one) { return one.cached_tokens > 0; };
  const bool roomy = setting.window_tokens >= 1000;
  if (setting.cache && roomy) {
    EXPECT_GE(std::ranges::count_if(second, reused), 4);
  } else if (!setting.cache) {
    EXPECT_EQ(std::ranges::count_if(all, reused), 0);
  }
  EXPECT_EQ(served.num_preemptions() > 0, setting.preempted);
}

void expect_plain_answers_in_every_setting(const fs::path& model) {
  const auto pass = exact_pass({.model_dir = model});
  ASSERT_NE(pass, nullptr);
  ASSERT_TRUE(runner::mixes_windows(pass->cache_needs()));
  const WatchedSetting settings[] = {
      {},
      {.page_size = 1, .chunk_tokens = 33, .batch = 3},
      {.page_size = 4, .batch = 4, .window_tokens = 0},
      {.page_size = 64, .chunk_tokens = 640, .batch = 2, .overlap = false},
      {.chunk_tokens = 7, .batch = 3, .window_tokens = 40},
      {.chunk_tokens = 640, .batch = 4, .cache = false},
      {.chunk_tokens = 32, .batch = 1, .preempted = true},
      {.page_size = 8, .batch = 2, .window_tokens = 50, .preempted = true}};
  for (const WatchedSetting& setting : settings) expect_plain_answers(*pass, setting);
}

TEST(WindowPagesExactness, GptOssHasTheBitsOfThePlainPassInEverySetting) {
  HEDDLE_SHARED_PATH_OR_SKIP(model, "golden/gpt_oss");
  expect_plain_answers_in_every_setting(model);
}

TEST(WindowPagesExactness, Qwen2WithLateWindowsHasTheBitsOfThePlainPassInEverySetting) {
  expect_plain_answers_in_every_setting(Qwen2OfBothKinds().folder());
}

// 1,500 tokens of context in a pool for 80 of the layers that slide, whose windows are 21 tokens.
TEST(WindowPagesExactness, ALongContextKeepsOnlyItsWindowInSlidingLayers) {
  const Qwen2OfBothKinds model;
  const auto pass = exact_pass({.model_dir = model.folder()});
  ASSERT_NE(pass, nullptr);
  for (const bool cache : {false, true}) {
    WatchedEngine served(*pass, {.window_tokens = 0, .max_tokens = 1520, .cache = cache});
    EXPECT_EQ(served.sizes().window_tokens(), 80);
    EXPECT_GE(served.sizes().kv_tokens(), 1520);
    auto all = served.answer({scattered_tokens(1400, 8)}, 100);
    EXPECT_LE(served.most_pages_of_a_window(), 5);
    const auto again = served.answer({joined(all[0].tokens, {4, 5, 6})}, 3);
    EXPECT_EQ(again[0].cached_tokens, cache ? 1488 : 0) << "its end is there still";
    all.push_back(again[0]);
    expect_plain_rows(*pass, served, all);
  }
}

}  // namespace
}  // namespace heddle
