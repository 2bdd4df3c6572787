// SPDX-License-Identifier: Apache-2.0
// TokenGrammar: a grammar over the tokens of a vocabulary. Matcher: the progress of one answer in
// it.
//
// Cost of a mask: one pass over V / 32 words for each place that the grammar may be at (usually
// one), and over the tokens that leave the innermost rule: some 4 us at 150,000 tokens. The first
// mask of a new kind of place may take milliseconds (vocabulary_masks.h);
// TokenGrammar::make_masks() makes in advance those that are likely to be needed and most
// expensive. In the outermost rule, such as the text around tool calls, most places differ only in
// a few bytes: the common part of their masks is copied.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include <heddle/constraint.h>

#include "core/mutex.h"
#include "grammar/automaton.h"
#include "grammar/stack_machine.h"
#include "grammar/trie_walk.h"
#include "grammar/vocabulary_masks.h"

namespace heddle::grammar {

// Threading: immutable except for the shared VocabularyMasks; thread-safe.
class TokenGrammar : public Constraint, public std::enable_shared_from_this<TokenGrammar> {
 public:
  TokenGrammar(Automaton automaton, std::shared_ptr<VocabularyMasks> masks);

  [[nodiscard]] int64_t vocab_size() const override { return masks_->vocab_size(); }

  [[nodiscard]] std::unique_ptr<ConstraintState> start() const override;

  // Makes masks before an answer needs them; meant for another thread than the answer's. Makes the
  // masks of places where answers begin, and of the most frequent kinds of places that many tokens
  // may follow, such as the inside of a string.
  // Cost: kMaxMadeMasks masks and those of the beginning, up to some milliseconds each, except
  // masks that are cached already.
  void make_masks() const HEDDLE_EXCLUDES(mutex_);

  static constexpr size_t kMaxMadeMasks = 32;

  [[nodiscard]] const Automaton& automaton() const { return automaton_; }

  [[nodiscard]] VocabularyMasks& masks() const { return *masks_; }

  // The mask of the state's own edges, for the count `count` of its rule.
  [[nodiscard]] std::shared_ptr<const FrameMask> frame_mask(StateId state, uint32_t count) const
      HEDDLE_EXCLUDES(mutex_);

 private:
  struct Made {
    StateId state = 0;
    std::shared_ptr<const FrameMask> mask;
  };

  // Most masks of the outermost rule from which others are copied.
  static constexpr size_t kMaxModels = 8;

  [[nodiscard]] uint64_t signature(StateId state, uint32_t count) const {
    return signatures_.of_edges[state] ^
           automaton_.count_signature(state, count, static_cast<int>(kMaxTokenBytes));
  }

  [[nodiscard]] std::optional<MaskModel> find_model(StateId state) const HEDDLE_EXCLUDES(mutex_);

  const Automaton automaton_;
  const Automaton::Signatures signatures_;
  const std::shared_ptr<VocabularyMasks> masks_;
  mutable Mutex mutex_;
  mutable std::vector<Made> models_ HEDDLE_GUARDED_BY(mutex_);
};

class Matcher : public ConstraintState {
 public:
  // `grammar` is shared with the thread that compiled it.
  explicit Matcher(std::shared_ptr<const TokenGrammar> grammar);

  [[nodiscard]] bool accept(TokenId token) override;
  [[nodiscard]] bool accept_text(TokenId token) override;
  void roll_back(int64_t count) override;
  [[nodiscard]] bool is_complete() const override;
  [[nodiscard]] bool is_over() const override;
  [[nodiscard]] Status fill_mask(std::span<uint32_t> mask) override;
  [[nodiscard]] Status fill_text_mask(std::span<uint32_t> mask) override;

  // Cost: some microseconds if a text is forced (spelling.h), otherwise negligible.
  void forced_tokens(int64_t most, std::vector<TokenId>& tokens) override;

 private:
  struct Step {
    StackMachine::Places places;
    bool is_over = false;  // a token that ends the text was accepted
  };

  // Unused stacks are collected when there are at least this many frames.
  static constexpr size_t kMinCollectedFrames = 4096;

  void push(Step next);
  void add_place(const StackMachine::Place& place, std::span<uint32_t> mask);
  [[nodiscard]] bool is_deep(const StackMachine::Place& place) const;
  [[nodiscard]] std::optional<uint8_t> only_byte(const StackMachine::Places& places) const;
  void collect();

  const std::shared_ptr<const TokenGrammar> grammar_;
  StackMachine machine_;
  std::deque<Step> steps_;  // one per accepted token; the last one is the current state
  size_t collect_at_ = kMinCollectedFrames;
  TrieWalk walk_;
  StackMachine::Places scratch_;
  StackMachine::Places forced_;  // places after forced_tokens()
  bool is_mask_complete_ = true;
};

}  // namespace heddle::grammar
