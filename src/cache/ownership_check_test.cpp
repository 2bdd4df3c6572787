// SPDX-License-Identifier: Apache-2.0
// Breaks each proof of check_ownership() once on purpose. The numbers are those of prefix_tree.h.
#include "cache/ownership_check.h"

#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cache/prefix_cache.h"
#include "support/toy_model.h"

namespace heddle::cache {
namespace {

// Two sequences run beside a cached prompt of 20 tokens. The second one continues it from its end
// and has not run yet; the first one's step in flight takes snapshots.
struct SmallService {
  explicit SmallService(SnapshotPolicy policy = SnapshotPolicy::kMulti)
      : cache({.pools = {.num_pages = 60,
                         .page_size = 4,
                         .num_state_slots = 20,
                         .flops = testing::kToyFlops},
               .policy = policy,
               .grid = 8,
               .decode_interval = 16}),
        sequences(three_prompts()) {
    start(0);
    step(0);
    sequences[0].num_computed = 20;
    cache.confirm(sequences[0], cached[0]);
    cache.release(sequences[0], cached[0], PrefixCache::Keep::kEnd);
    start(1);
    step(1);
    start(2);
    check();
  }

  static std::vector<request::Sequence> three_prompts() {
    std::vector<request::Sequence> prompts;
    prompts.push_back(prompt(20, 0));
    prompts.push_back(prompt(24, 500));
    prompts.push_back(prompt(30, 0));
    return prompts;
  }

  static request::Sequence prompt(int64_t length, TokenId first) {
    Request request;
    request.prompt.resize(static_cast<size_t>(length));
    std::iota(request.prompt.begin(), request.prompt.end(), first);
    request.stop.max_new_tokens = 4;
    return {1, std::move(request), 0, std::span<const TokenId>()};
  }

  void start(size_t index) {
    request::Sequence& sequence = sequences[index];
    ASSERT_TRUE(cache.admit(sequence, cache.match(sequence), 0, cached[index]));
  }

  void step(size_t index) {
    request::PlannedSequence planned;
    planned.context_tokens = sequences[index].num_computed;
    cache.plan_prefill(sequences[index], cached[index], sequences[index].num_tokens(), planned,
                       plan);
  }

  void check() const {
    const std::vector<AdmittedSequence> running = {{&sequences[1], &cached[1]},
                                                   {&sequences[2], &cached[2]}};
    cache.check_invariants(running);
  }

  PrefixCache cache;
  std::vector<request::Sequence> sequences;
  CachedSequence cached[3];
  request::BatchPlan plan;
};

struct WrongOwner {
  const char* name;
  std::function<void(SmallService&)> put_in;
  const char* message;
};

void PrintTo(const WrongOwner& defect, std::ostream* out) { *out << defect.name; }

class OwnershipCheckDeathTest : public ::testing::TestWithParam<WrongOwner> {};

TEST_P(OwnershipCheckDeathTest, IsFound) {
  SmallService small;
  ASSERT_FALSE(small.cached[1].pending.empty());
  ASSERT_TRUE(small.cached[2].source.locks_state);
  EXPECT_DEATH(
      {
        GetParam().put_in(small);
        small.check();
      },
      GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Defects, OwnershipCheckDeathTest,
    ::testing::Values(
        WrongOwner{"I3PageOfTwoSequences",
                   [](SmallService& small) {
                     small.sequences[2].pages.back() = small.sequences[1].pages.back();
                   },
                   "pages_.insert"},
        WrongOwner{"I3SlotOfTwoSequences",
                   [](SmallService& small) {
                     small.cached[1].pending.push_back(
                         {.tokens = 32, .slot = small.cached[1].pending.back().slot});
                   },
                   "slots_.emplace"},
        WrongOwner{"I8StateOfOtherTokens",
                   [](SmallService& small) { ++small.sequences[1].num_computed; }, "label"},
        WrongOwner{"I9SnapshotOffTheGrid",
                   [](SmallService& small) { ++small.cached[1].pending.front().tokens; }, "grid"},
        WrongOwner{"I10StateOfTheWholePrompt",
                   [](SmallService& small) { small.sequences[2].tokens.resize(20); },
                   "num_tokens|most"},
        WrongOwner{"I11PageThatNoSequenceNames",
                   [](SmallService& small) { small.sequences[2].pages.pop_back(); }, "pages"},
        WrongOwner{"I12MoreComputedThanThereAre",
                   [](SmallService& small) { small.sequences[2].tokens.resize(19); }, "num_tokens"},
        WrongOwner{"I13ReadsWhatAStepWrites",
                   [](SmallService& small) {
                     small.cached[2].copy_state_from = small.cached[1].pending.front().slot;
                   },
                   "copy_state_from"}),
    [](const auto& defect) { return std::string(defect.param.name); });

TEST(OwnershipCheck, HoldsUnderEveryPolicy) {
  for (const auto policy : {SnapshotPolicy::kMulti, SnapshotPolicy::kExtraBuffer}) {
    SmallService small(policy);
    for (const size_t index : {size_t{1}, size_t{2}}) {
      small.cache.release(small.sequences[index], small.cached[index], PrefixCache::Keep::kEnd);
    }
    small.cache.check_invariants({});
  }
}

}  // namespace
}  // namespace heddle::cache
