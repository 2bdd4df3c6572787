// SPDX-License-Identifier: Apache-2.0
// A prefix tree with its pools for tests, and sequences that arrive without a match, insert their
// tokens and end.
#pragma once

#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "cache/prefix_tree.h"
#include "support/toy_model.h"

namespace heddle::cache {

using Tokens = std::vector<TokenId>;

inline Tokens first(const Tokens& tokens, int64_t length) {
  return Tokens(tokens.begin(), tokens.begin() + length);
}

inline Tokens joined(Tokens head, const Tokens& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

struct TreeFixtureOptions {
  int32_t page_size = 1;
  int64_t num_pages = 100000;
  int64_t num_states = 1000;
  std::vector<PageWindow> windows;
  int32_t max_sequences = 0;  // sequences that pin pages of `windows`
  PrefixTreeOptions tree;     // the toy model's options, unless costs are given
};

struct TreeFixture {
  explicit TreeFixture(const TreeFixtureOptions& options)
      : pages(options.num_pages, options.page_size),
        windows(WindowPages::of({.page_size = options.page_size,
                                 .max_sequences = options.max_sequences,
                                 .windows = options.windows})),
        states(options.tree.needs_state ? options.num_states : 0),
        tree(with_work(options.tree), pages, windows, states),
        needs_state(options.tree.needs_state) {}

  static PrefixTreeOptions with_work(PrefixTreeOptions options) {
    if (!options.flops.is_set()) options.flops = testing::kToyFlops;
    return options;
  }

  PageAllocator pages;
  std::vector<WindowPages> windows;
  StateAllocator states;
  PrefixTree tree;
  bool needs_state;
  bool checks = true;  // the invariants, after every insertion
  TokenId next_token = 1000;

  // Tokens that no other sequence has.
  Tokens unique(int64_t count) {
    Tokens tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(next_token++);
    return tokens;
  }

  // Inserts the first `length` tokens with a state, on new pages. Pages that the tree does not take
  // are freed, as at the end of a sequence.
  PrefixInserted insert(std::span<const TokenId> tokens, int64_t length,
                        std::string_view name_space = "", bool keeps_hidden = false,
                        PrefixNode* begins_at = nullptr) {
    std::vector<int32_t> own;
    EXPECT_TRUE(pages.grow(length, own));
    const int32_t slot = needs_state ? states.allocate() : 0;
    if (needs_state) states.set_label(slot, length);
    const auto kept = tokens.first(static_cast<size_t>(length));
    const PrefixInserted inserted = tree.insert({.tokens = kept,
                                                 .name_space = name_space,
                                                 .hashes = request::PrefixHashes(kept, name_space),
                                                 .pages = own,
                                                 .state_slot = slot,
                                                 .keeps_hidden = keeps_hidden,
                                                 .begins_at = begins_at});
    for (const int32_t page : own) {
      if (pages.ids().owner(page) == Owner::kRequest) pages.ids().free_one(page);
    }
    if (needs_state && !inserted.state_taken) states.release(slot);
    if (checks) tree.check_invariants();
    return inserted;
  }

  PrefixInserted insert(const Tokens& tokens) {
    return insert(tokens, static_cast<int64_t>(tokens.size()));
  }

  [[nodiscard]] PrefixMatch match(const Tokens& tokens) const {
    return tree.match(tokens, "", static_cast<int64_t>(tokens.size()));
  }
};

}  // namespace heddle::cache
