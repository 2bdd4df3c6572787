// SPDX-License-Identifier: Apache-2.0
// TokenGrammar: a grammar over the tokens of a vocabulary, and Matcher, an answer's way through it.
//
// Cost of a mask: one pass over V / 32 words for each place the grammar may be at (usually one),
// and the tokens that leave the innermost rule: some 4 us at 150,000 tokens. The first mask of a
// kind of place may take milliseconds (vocabulary_masks.h); TokenGrammar::make_masks() makes those
// that are likely to be needed and cost the most. In the outermost rule, as in the text around the
// calls of tools, a place is mostly like another one but for a few bytes: what their masks share is
// copied.
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

// Threading: immutable but for the shared VocabularyMasks; thread-safe.
class TokenGrammar : public Constraint, public std::enable_shared_from_this<TokenGrammar> {
 public:
  TokenGrammar(Automaton automaton, std::shared_ptr<VocabularyMasks> masks);

  [[nodiscard]] int64_t vocab_size() const override { return masks_->vocab_size(); }

  [[nodiscard]] std::unique_ptr<ConstraintState> start() const override;

  // Makes masks before an answer needs them, on another thread than its own: those of the places
  // where answers begin; and of the kinds of places that many tokens may follow, as the inside of a
  // string, those that most states are of.
  // Cost: kMaxMadeMasks masks, and those of the beginning, of up to some milliseconds each, less
  // those that are kept already.
  void make_masks() const HEDDLE_EXCLUDES(mutex_);

  static constexpr size_t kMaxMadeMasks = 32;

  [[nodiscard]] const Automaton& automaton() const { return automaton_; }

  [[nodiscard]] VocabularyMasks& masks() const { return *masks_; }

  // The mask of the state's own edges for a count of its rule's run.
  [[nodiscard]] std::shared_ptr<const FrameMask> frame_mask(StateId state, uint32_t count) const
      HEDDLE_EXCLUDES(mutex_);

 private:
  struct Made {
    StateId state = 0;
    std::shared_ptr<const FrameMask> mask;
  };

  // Masks of the outermost rule that others are made from.
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

  // Cost: some microseconds where a text is forced (spelling.h), else next to nothing.
  void forced_tokens(int64_t most, std::vector<TokenId>& tokens) override;

 private:
  struct Step {
    StackMachine::Places places;
    bool is_over = false;  // a token that ends the text was taken
  };

  // Unused stacks are removed from time to time.
  static constexpr size_t kMinCollectedFrames = 4096;

  void push(Step next);
  void add_place(const StackMachine::Place& place, std::span<uint32_t> mask);
  [[nodiscard]] bool is_deep(const StackMachine::Place& place) const;
  [[nodiscard]] std::optional<uint8_t> only_byte(const StackMachine::Places& places) const;
  void collect();

  const std::shared_ptr<const TokenGrammar> grammar_;
  StackMachine machine_;
  std::deque<Step> steps_;  // the last one is where the answer stands
  size_t collect_at_ = kMinCollectedFrames;
  TrieWalk walk_;
  StackMachine::Places scratch_;
  StackMachine::Places forced_;  // places after forced_tokens()
  bool is_mask_complete_ = true;
};

}  // namespace heddle::grammar
