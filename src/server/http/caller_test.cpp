// SPDX-License-Identifier: Apache-2.0
#include "server/http/caller.h"

#include <cstdint>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::server {
namespace {

// The word of a std::mt19937_64's state from which it made an output: its tempering, undone.
uint64_t state_word(uint64_t output) {
  output ^= output >> 43;
  output ^= (output << 37) & 0xfff7eee000000000u;
  uint64_t word = output;
  for (int i = 0; i < 4; ++i) word = output ^ ((word << 17) & 0x71d67fffeda60000u);
  output = word;
  for (int i = 0; i < 3; ++i) word = output ^ ((word >> 29) & 0x5555555555555555u);
  return word;
}

// The generator that goes on where 312 outputs in a row end.
std::mt19937_64 generator_after(const std::vector<uint64_t>& outputs) {
  std::stringstream state;
  for (const uint64_t output : outputs) state << state_word(output) << ' ';
  state << outputs.size();  // all of them are used
  std::mt19937_64 generator;
  state >> generator;
  return generator;
}

TEST(RequestIdsTest, ThePredictionKnowsAMersenneTwister) {
  std::mt19937_64 generator(7);
  std::vector<uint64_t> outputs(312);
  for (uint64_t& output : outputs) output = generator();
  EXPECT_EQ(generator_after(outputs)(), generator());
}

TEST(RequestIdsTest, OnesOwnIdsDoNotPredictTheNext) {
  std::vector<uint64_t> halves;
  for (int i = 0; i < 156; ++i) {
    const std::string id = new_request_id("");
    ASSERT_EQ(id.size(), 32u);
    halves.push_back(std::stoull(id.substr(0, 16), nullptr, 16));
    halves.push_back(std::stoull(id.substr(16), nullptr, 16));
  }
  std::mt19937_64 prediction = generator_after(halves);
  const uint64_t first = prediction();
  const uint64_t second = prediction();
  EXPECT_NE(new_request_id("req-"), fmt::format("req-{:016x}{:016x}", first, second));
}

TEST(RequestIdsTest, AreDifferentAndBeginAsAsked) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    ids.insert(new_request_id("cmpl-"));
    EXPECT_THAT(*ids.begin(), ::testing::MatchesRegex("cmpl-[0-9a-f]+"));
  }
  EXPECT_EQ(ids.size(), 1000u);
}

}  // namespace
}  // namespace heddle::server
