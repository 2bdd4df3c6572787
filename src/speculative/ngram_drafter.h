// SPDX-License-Identifier: Apache-2.0
// NgramDrafter: drafts are what followed the last tokens of a text where they occurred before: in
// the text itself (code that is edited, documents that are quoted, lists that go on) or in one of
// the texts that ended lately. Needs no model.
//
// It drafts as many tokens as the sequence accepts: twice as many after drafts that were accepted
// to their end, half as many after drafts of which none was; and where not even one is accepted it
// is silent for a while, longer each time.
//
// Where the same tokens went on differently, up to `num_branches` ways are drafted: half of the
// drafts go on with the longest match, the others share the rest.
//
// Texts of requests with a cache namespace are drafts for that namespace alone, and it takes drafts
// from no other: the number of accepted drafts would reveal what others wrote.
//
// Memory: at most 40 bytes for each token of a running sequence, and 20 for each of kSharedTokens.
// Cost: microseconds a stream and step; observe() some nanoseconds for each token of a text.
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
  static constexpr int64_t kMaxSilence = 32;     // tokens
  static constexpr int64_t kFirstBudget = 1024;  // so many that the limit of the caller decides

  explicit NgramDrafter(int32_t num_branches = 1)
      : num_branches_(num_branches), shared_(kSharedTokens) {}

  void observe(const request::Sequence& sequence) override;
  void propose(const request::Sequence& sequence, int64_t most, Drafts& drafts) override;
  void forget(const request::Sequence& sequence) override;

 private:
  struct Text {
    explicit Text(int64_t num_tokens) : index(num_tokens) {}

    TextIndex index;
    int64_t num_indexed = 0;  // tokens of the sequence
    Drafts proposed;          // last, behind the first num_indexed tokens of then
    int64_t proposed_at = 0;
    int64_t budget = kFirstBudget;  // drafts it may propose
    int64_t silence = 0;            // tokens, after the next failure
    int64_t silent_until = 0;       // length of the sequence up to which it proposes nothing
  };

  // A match in the text itself or in the shared texts.
  struct Way {
    const TextIndex* index;
    TextIndex::Match match;
  };

  static void judge(const request::Sequence& sequence, Text& text);
  void find_ways(const request::Sequence& sequence, const Text& text);
  void draft_way(const Way& way, int64_t most, const Text& text, Drafts& drafts);

  int32_t num_branches_;
  std::unordered_map<int64_t, Text> texts_;  // keyed by sequence id
  TextIndex shared_;
  std::vector<Way> ways_;  // matches for the text that is drafted for, the likeliest first
  std::vector<TextIndex::Match> matches_;
  std::vector<TokenId> next_;
};

}  // namespace heddle::speculative
