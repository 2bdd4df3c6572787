// SPDX-License-Identifier: Apache-2.0
// NgramDrafter: proposes the tokens that followed earlier occurrences of a text's last tokens: in
// the text itself (code that is edited, documents that are quoted, lists that continue) or in texts
// that ended recently. It needs no model.
//
// It adapts the number of drafts to each sequence: twice as many after drafts that were all
// accepted, half as many after drafts of which none was. If not even one draft is accepted, it
// proposes nothing for a while, longer each time.
//
// If the same tokens were continued differently, it drafts up to `num_branches` continuations: half
// of the drafts continue the longest match, the others share the rest.
//
// Texts of requests with a cache namespace are used for that namespace only, and it uses no other
// texts: the number of accepted drafts would reveal what others wrote.
//
// Memory: at most 40 bytes per token of a running sequence, and 20 for each of kSharedTokens.
// Cost:   microseconds per stream and step; observe() some nanoseconds per token of a text.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "speculative/drafter.h"
#include "speculative/text_index.h"

namespace heddle::speculative {

class NgramDrafter final : public Drafter {
 public:
  static constexpr int64_t kSharedTokens = 1 << 18;
  static constexpr int64_t kMaxSilence = 32;     // longest pause after failed drafts, in tokens
  static constexpr int64_t kFirstBudget = 1024;  // initial limit of drafts, so large that the
                                                 // caller's limit applies

  explicit NgramDrafter(int32_t num_branches = 1)
      : num_branches_(num_branches), shared_(kSharedTokens) {}

  void observe(const request::Sequence& sequence) override;
  void propose(const request::Sequence& sequence, int64_t most, Drafts& drafts) override;
  void forget(const request::Sequence& sequence) override;

 private:
  struct Text {
    explicit Text(int64_t num_tokens) : index(num_tokens) {}

    TextIndex index;
    int64_t num_indexed = 0;  // tokens of the sequence that are in the index
    Drafts proposed;          // last proposed drafts, for a text of proposed_at tokens
    int64_t proposed_at = 0;
    int64_t budget = kFirstBudget;  // most drafts to propose
    int64_t silence = 0;            // length of the pause after the next failure, in tokens
    int64_t silent_until = 0;       // length of the sequence up to which nothing is proposed
  };

  // A match, either in the sequence's own text or in the shared texts.
  struct Way {
    const TextIndex* index;
    TextIndex::Match match;
  };

  static void judge(const request::Sequence& sequence, Text& text);
  void find_ways(const request::Sequence& sequence, const Text& text);
  void draft_way(const Way& way, int64_t most, const Text& text, Drafts& drafts);

  int32_t num_branches_;
  std::unordered_map<int64_t, Text> texts_;  // texts of running sequences, by sequence id
  TextIndex shared_;
  std::vector<Way> ways_;  // matches for the current text, the likeliest first
  std::vector<TextIndex::Match> matches_;
  std::vector<TokenId> next_;
};

}  // namespace heddle::speculative
