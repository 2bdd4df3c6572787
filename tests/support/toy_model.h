// SPDX-License-Identifier: Apache-2.0
// ToyModel: the arithmetic of a model that forgives nothing. Its recurrent state is an
// order-sensitive fold of every token, convolved with the few before it, with their count; its KV
// row t is the state's hash just after token t, and the next token a function of the state and of a
// fold of all rows. With a window there is a layer that slides beside the one that does not: it
// keeps the same rows in pages of its own and folds the last ones. A state, row or token that is
// stale, foreign, missing or doubled changes the drawn tokens. The table of longrope is recorded
// (`is_long`) but changes no drawn token.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include <heddle/request.h>

#include "request/prefill_flops.h"

namespace heddle::testing {

// The work that it stands for, which eviction compares: of a model of the size of
// Qwen3-Next-80B-A3B, with 3e9 active parameters, and 12 layers of 16 heads of 256 channels.
inline constexpr request::PrefillFlops kToyFlops{.per_token = 6e9, .per_pair = 98304};

inline uint64_t toy_mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ (value + 0x9e3779b97f4a7c15u)) * 0xff51afd7ed558ccdu;
  return hash ^ (hash >> 29);
}

struct ToyState {
  int64_t count = 0;
  uint64_t hash = 0;
  std::array<uint32_t, 3> convolved{};  // the tokens that the next one is convolved with
  bool is_long = false;                 // computed with the second table of longrope

  void advance(TokenId token) {
    ++count;
    const auto last = static_cast<uint32_t>(token);
    const auto& [third, second, first] = convolved;
    hash = toy_mix(hash, last + uint64_t{first} * 0x10001 + uint64_t{second} * 0x2000003 +
                             uint64_t{third} * 0x300000007);
    convolved = {second, first, last};
  }

  friend bool operator==(const ToyState&, const ToyState&) = default;
};

struct ToyRow {
  TokenId token = 0;
  uint64_t hash = 0;  // of the state after the token
  bool is_long = false;

  friend bool operator==(const ToyRow&, const ToyRow&) = default;
};

// Made by attention of the rows it reads.
struct ToyAttention {
  uint64_t hash = 1;

  void read(const ToyRow& row) { hash = toy_mix(hash, row.hash); }
};

// Made by a layer that slides of the last rows that it sees, the oldest first.
template <typename Rows>
uint64_t toy_window(const Rows& rows) {
  uint64_t hash = 3;
  for (const ToyRow& row : rows) hash = toy_mix(hash, row.hash);
  return hash;
}

// Read by the LM head.
struct ToyHidden {
  int64_t count = 0;
  uint64_t hash = 0;
  bool is_long = false;

  friend bool operator==(const ToyHidden&, const ToyHidden&) = default;
};

inline ToyHidden toy_hidden(const ToyState& state, const ToyAttention& attention) {
  return {state.count, toy_mix(state.hash, attention.hash), state.is_long};
}

// With a layer that slides beside those before, which has made toy_window() of its rows.
inline ToyHidden toy_hidden(const ToyHidden& others, uint64_t window) {
  return {others.count, toy_mix(others.hash, window), others.is_long};
}

// Of layers that see so many of the last rows each.
inline ToyHidden toy_hidden(const ToyState& state, const ToyAttention& attention,
                            std::span<const int64_t> windows, std::span<const ToyRow> rows) {
  ToyHidden hidden = toy_hidden(state, attention);
  for (const int64_t window : windows) {
    const int64_t seen = std::min(window, std::ssize(rows));
    hidden = toy_hidden(hidden, toy_window(rows.last(static_cast<size_t>(seen))));
  }
  return hidden;
}

struct ToyVocabulary {
  TokenId num_tokens = 256;  // ids from 0 that can be drawn
  bool seeded = false;       // the coin of a draw is part of it
};

// Of a draw behind so many tokens.
inline uint64_t toy_coin(uint64_t seed, int64_t position) {
  return toy_mix(seed, static_cast<uint64_t>(position));
}

// Nothing when every token is forbidden.
inline std::optional<TokenId> toy_draw(const ToyVocabulary& vocabulary, const ToyHidden& hidden,
                                       uint64_t coin, std::span<const TokenId> forbidden) {
  const uint64_t hash = vocabulary.seeded ? toy_mix(hidden.hash, coin) : hidden.hash;
  auto token = static_cast<TokenId>((hash >> 7) % static_cast<uint64_t>(vocabulary.num_tokens));
  for (TokenId i = 0; i < vocabulary.num_tokens; ++i) {
    if (std::find(forbidden.begin(), forbidden.end(), token) == forbidden.end()) return token;
    token = (token + 1) % vocabulary.num_tokens;
  }
  return std::nullopt;
}

// The first token from `token` on, and then from 0, that the mask allows; nothing where it allows
// none.
inline std::optional<TokenId> toy_allowed(std::span<const uint32_t> mask, TokenId token) {
  const auto size = static_cast<TokenId>(mask.size() * 32);
  for (TokenId i = 0; i < size; ++i, token = (token + 1) % size) {
    if (token >= size) token = 0;
    if ((mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0) return token;
  }
  return std::nullopt;
}

// The hidden vector after `tokens`, computed in one piece from nothing.
inline ToyHidden toy_hidden_after(std::span<const TokenId> tokens) {
  ToyState state;
  ToyAttention attention;
  for (const TokenId token : tokens) {
    state.advance(token);
    attention.read({token, state.hash});
  }
  return toy_hidden(state, attention);
}

}  // namespace heddle::testing
