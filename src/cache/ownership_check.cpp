// SPDX-License-Identifier: Apache-2.0
#include "cache/ownership_check.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cache/snapshot_policy.h"
#include "core/check.h"

namespace heddle::cache {
namespace {

class OwnershipCheck {
 public:
  OwnershipCheck(const PrefixCacheOptions& options, const CachePools& pools, const PrefixTree& tree)
      : options_(options), pools_(pools), tree_(tree), holders_(pools.windows().size()) {}

  void add(const AdmittedSequence& running) {
    check_pages(*running.sequence, *running.cached);
    check_windows(*running.sequence, *running.cached);
    check_working_state(*running.sequence);
    check_source(*running.sequence, *running.cached);
    check_pending(*running.sequence, *running.cached);
  }

  // I3, I11: every id is free or owned by a sequence or the tree.
  void check_totals() const {
    HEDDLE_CHECK_EQ(std::ssize(pages_), pools_.pages().ids().count(Owner::kRequest));
    for (size_t i = 0; i < holders_.size(); ++i) check_holders(pools_.windows()[i], holders_[i]);
    int64_t slots = pools_.states().ids().count(Owner::kRequest);
    if (options_.pools.has_own_snapshot_slots()) {
      slots += pools_.snapshots().ids().count(Owner::kRequest);
    }
    HEDDLE_CHECK_EQ(std::ssize(slots_), slots);
    // I13: no step in flight reads a state that a step in flight writes.
    for (const int32_t source : sources_) {
      HEDDLE_CHECK(!slots_.contains({&pools_.snapshots(), source}));
    }
  }

  // I9: with the policy extra_buffer, which saves one snapshot per step, all labels are on the
  // grid.
  void check_labels() const {
    if (options_.policy != SnapshotPolicy::kExtraBuffer) return;
    tree_.nodes().for_each_node([&](const PrefixNode& node) {
      if (node.has_state()) HEDDLE_CHECK_EQ(node.depth() % options_.grid, 0);
    });
  }

 private:
  // A page owned by a sequence must be pinned once, a page of the tree as often as its counter
  // says.
  template <typename Window>
  static void check_holders(const Window& window, const std::map<int32_t, int64_t>& pinned) {
    int64_t num_own = 0;
    for (const auto& [page, holders] : pinned) {
      if (window.ids().owner(page) == Owner::kRequest) {
        HEDDLE_CHECK_EQ(holders, 1);
        ++num_own;
      }
    }
    HEDDLE_CHECK_EQ(num_own, window.ids().count(Owner::kRequest));
    for (int32_t page = 1; page <= window.ids().size(); ++page) {
      const auto held = pinned.find(page);
      if (window.ids().owner(page) != Owner::kTree) continue;
      HEDDLE_CHECK_EQ(window.holders(page), held == pinned.end() ? 0 : held->second);
    }
  }

  // I3: each page of a sequence belongs to it alone, or is shared and belongs to the tree. I12:
  // every token has a page, and some tokens are left to compute unless a kept hidden vector draws
  // the next one.
  void check_pages(const request::Sequence& sequence, const CachedSequence& cached) {
    const PageAllocator& pages = pools_.pages();
    HEDDLE_CHECK_GE(std::ssize(sequence.pages), pages.pages_for(sequence.num_computed));
    HEDDLE_CHECK_LE(sequence.num_computed, sequence.num_tokens());
    if (cached.starts && cached.hidden_slot == 0) {
      HEDDLE_CHECK_LT(sequence.num_computed, sequence.num_tokens());
    }
    for (auto i = static_cast<size_t>(cached.dead_pages); i < sequence.pages.size(); ++i) {
      const int32_t page = sequence.pages[i];
      if (pages.ids().owner(page) == Owner::kTree) continue;
      HEDDLE_CHECK(pages.ids().owner(page) == Owner::kRequest);
      HEDDLE_CHECK_LT(cached.shared_tokens, (static_cast<int64_t>(i) + 1) * pages.page_size());
      HEDDLE_CHECK(pages_.insert(page).second);
    }
  }

  // I3, I12: in each table with a window, every computed token from the first page that the next
  // token reads has a page that is not free.
  void check_windows(const request::Sequence& sequence, const CachedSequence& cached) {
    HEDDLE_CHECK_EQ(cached.windows.size(), holders_.size());
    for (size_t i = 0; i < holders_.size(); ++i) {
      const auto& window = pools_.windows()[i];
      const PinnedWindow& pinned = cached.windows[i];
      HEDDLE_CHECK_LE(pinned.first, window.first_page(sequence.num_computed));
      HEDDLE_CHECK_GE(std::ssize(pinned.pages), pools_.pages().pages_for(sequence.num_computed));
      for (auto index = static_cast<size_t>(pinned.first); index < pinned.pages.size(); ++index) {
        HEDDLE_CHECK(window.ids().owner(pinned.pages[index]) != Owner::kFree);
        ++holders_[i][pinned.pages[index]];
      }
      if (pinned.copy.from != 0) ++holders_[i][pinned.copy.from];
    }
  }

  // The label of the working slot equals the number of computed tokens.
  void check_working_state(const request::Sequence& sequence) {
    HEDDLE_CHECK_EQ(sequence.state_slot != 0, options_.pools.has_states());
    if (sequence.state_slot == 0) return;
    own_slot(pools_.states(), sequence.state_slot);
    HEDDLE_CHECK_EQ(pools_.states().label(sequence.state_slot), sequence.num_computed);
  }

  // I10, and I8 for the state that the first step copies: its label is the number of reused tokens.
  void check_source(const request::Sequence& sequence, const CachedSequence& cached) {
    if (!cached.source.locks_state) return;
    const int32_t slot = tree_.state_slot(cached.source.node);
    HEDDLE_CHECK_EQ(slot, cached.copy_state_from);
    HEDDLE_CHECK(pools_.snapshots().ids().owner(slot) == Owner::kTree);
    HEDDLE_CHECK_EQ(pools_.snapshots().label(slot), sequence.num_computed);
    const int64_t most = sequence.num_tokens() - (cached.hidden_slot != 0 ? 0 : 1);
    HEDDLE_CHECK_LE(pools_.snapshots().label(slot), most);
    sources_.push_back(slot);
  }

  // I13: slots that steps in flight write belong to one sequence. I9: labels are on the grid,
  // except the end of a prompt with its hidden vector, and except for the policy no_buffer.
  void check_pending(const request::Sequence& sequence, const CachedSequence& cached) {
    int64_t last = sequence.num_computed;
    for (const CachedSequence::Pending& pending : cached.pending) {
      own_slot(pools_.snapshots(), pending.slot);
      HEDDLE_CHECK_LT(last, pending.tokens);
      last = pending.tokens;
      const bool exact_end = pending.keeps_hidden || !chunks_on_grid(options_.policy);
      if (!exact_end) HEDDLE_CHECK_EQ(pending.tokens % options_.grid, 0);
    }
  }

  void own_slot(const StateAllocator& allocator, int32_t slot) {
    HEDDLE_CHECK(allocator.ids().owner(slot) == Owner::kRequest);
    HEDDLE_CHECK(slots_.emplace(&allocator, slot).second);
  }

  const PrefixCacheOptions& options_;
  const CachePools& pools_;
  const PrefixTree& tree_;
  std::set<int32_t> pages_;                          // pages that sequences own
  std::vector<std::map<int32_t, int64_t>> holders_;  // by table with a window: how many sequences
                                                     // pin a page
  std::set<std::pair<const StateAllocator*, int32_t>> slots_;
  std::vector<int32_t> sources_;
};

}  // namespace

void check_ownership(const PrefixCacheOptions& options, const CachePools& pools,
                     const PrefixTree& tree, std::span<const AdmittedSequence> running) {
  OwnershipCheck check(options, pools, tree);
  for (const AdmittedSequence& one : running) check.add(one);
  check.check_totals();
  check.check_labels();
}

}  // namespace heddle::cache
