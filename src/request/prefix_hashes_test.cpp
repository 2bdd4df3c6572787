// SPDX-License-Identifier: Apache-2.0
#include "request/prefix_hashes.h"

#include <algorithm>
#include <random>
#include <set>
#include <span>

#include <gtest/gtest.h>

#include "request/sequence.h"

namespace heddle::request {
namespace {

using Tokens = std::vector<TokenId>;

int64_t by_reading(const Tokens& a, const Tokens& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

int64_t by_hashes(const Tokens& a, const Tokens& b) {
  return PrefixHashes(a).common_prefix(a, PrefixHashes(b), b);
}

TEST(PrefixHashesTest, FindsTheFirstTokenThatDiffersWhereverItIs) {
  Tokens one;
  for (TokenId token = 0; token < 300; ++token) one.push_back(token * 7);
  for (size_t at = 0; at < one.size(); ++at) {
    Tokens other = one;
    other[at] = -1;
    ASSERT_EQ(by_hashes(one, other), static_cast<int64_t>(at));
    ASSERT_EQ(by_hashes(other, one), static_cast<int64_t>(at));
  }
}

TEST(PrefixHashesTest, AgreesWithReadingBothPrompts) {
  std::mt19937 random(3);
  for (int round = 0; round < 20'000; ++round) {
    Tokens stem(random() % 400, 0);
    for (TokenId& token : stem) token = static_cast<TokenId>(random() % 3);
    Tokens one = stem;
    Tokens other = stem;
    if (random() % 4 == 0) one.resize(random() % (one.size() + 1));
    for (Tokens* tokens : {&one, &other}) {
      tokens->resize(tokens->size() + random() % 200, static_cast<TokenId>(random() % 2));
    }
    ASSERT_EQ(by_hashes(one, other), by_reading(one, other)) << round;
  }
}

// However much was hashed when, it is the same hash; another namespace has another.
TEST(PrefixHashesTest, AHashIsOneOfAllTokensBeforeIt) {
  Tokens tokens;
  for (TokenId token = 0; token < 200; ++token) tokens.push_back(token * 3);
  const PrefixHashes whole(tokens);
  PrefixHashes growing({});
  PrefixHash hash = growing.of({});
  std::set<uint64_t> seen;
  for (int64_t length = 0; length <= 200; ++length) {
    const auto begin = std::span<const TokenId>(tokens).first(static_cast<size_t>(length));
    if (length % 7 == 0) growing.extend(begin);
    ASSERT_EQ(whole.of(begin), hash) << length;
    ASSERT_EQ(growing.of(begin), hash) << length;
    ASSERT_EQ(PrefixHashes({}).of(begin), hash) << length;
    ASSERT_EQ(hash.blocks, whole.of_blocks(length / 64)) << length;
    ASSERT_NE(PrefixHashes({}, "other").of(begin), hash) << length;
    ASSERT_TRUE(seen.insert(hash.all).second) << length;
    if (length < 200) hash = extend_hash(hash, length, tokens[static_cast<size_t>(length)]);
  }
}

// A sequence that drew tokens shares what it drew as well, and its prompt is hashed once.
TEST(PrefixHashesTest, ComparesTokensBehindThePromptThemselves) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    const Tokens all(300, static_cast<TokenId>(random() % 2));
    Sequence sequences[2] = {{0, {}, 0, {}}, {1, {}, 0, {}}};
    for (Sequence& sequence : sequences) {
      Request request;
      request.prompt.assign(all.begin(), all.begin() + 1 + static_cast<int64_t>(random() % 200));
      sequence = Sequence(0, std::move(request), 0, {});
      sequence.tokens.insert(sequence.tokens.end(), random() % 100, all.front());
      if (random() % 2 == 0) sequence.tokens.back() = 9;
    }
    ASSERT_EQ(sequences[0].common_prefix(sequences[1]),
              by_reading(sequences[0].tokens, sequences[1].tokens));
  }
}

}  // namespace
}  // namespace heddle::request
