// SPDX-License-Identifier: Apache-2.0
#include "cache/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace heddle::cache {

using request::PlannedSequence;
using request::Sequence;

namespace {

// Pools that hold nothing cost a byte for each id, so that sizes may divide.
PrefixCacheOptions with_sizes(PrefixCacheOptions options) {
  PoolSizes& pools = options.pools;
  for (int64_t* bytes : {&pools.page_bytes, &pools.state_slot_bytes, &pools.snapshot_slot_bytes}) {
    *bytes = std::max<int64_t>(*bytes, 1);
  }
  return options;
}

PrefixTreeOptions tree_options(const PrefixCacheOptions& options) {
  const PoolSizes& pools = options.pools;
  PrefixTreeOptions tree{.needs_state = pools.has_states(),
                         .eviction = options.eviction,
                         .flops = options.flops,
                         .page_bytes = pools.page_bytes,
                         .state_bytes = pools.snapshot_bytes()};
  if (pools.shared_bytes > 0) tree.expected_states = pools.shared_bytes / tree.state_bytes;
  return tree;
}

MemoryBudget::Options budget_options(const PrefixCacheOptions& options) {
  MemoryBudget::Options budget{.shared_bytes = options.pools.shared_bytes};
  budget.pools[MemoryKind::kPages] = {options.pools.num_pages, options.pools.page_bytes};
  budget.pools[MemoryKind::kStates] = {options.pools.num_state_slots,
                                       options.pools.state_slot_bytes};
  budget.pools[MemoryKind::kSnapshots] = {options.pools.num_snapshot_slots,
                                          options.pools.snapshot_bytes()};
  return budget;
}

}  // namespace

PrefixCache::PrefixCache(const PrefixCacheOptions& options)
    : options_(with_sizes(options)),
      budget_(budget_options(options_)),
      pages_(options.pools.num_pages, options.pools.page_size),
      states_(options.pools.num_state_slots),
      own_snapshot_slots_(options.pools.num_snapshot_slots, "snapshot slot"),
      snapshots_(has_own_snapshot_slots() ? own_snapshot_slots_ : states_),
      tree_(tree_options(options_), pages_, snapshots_) {
  HEDDLE_CHECK_EQ(options.grid % options.pools.page_size, 0);
  HEDDLE_CHECK_EQ(options.decode_interval % options.grid, 0);
  HEDDLE_CHECK(options.pools.has_states() || options.pools.num_snapshot_slots == 0);
  pages_.ids().set_free_observer(&freed_pages_);
  states_.ids().set_free_observer(&freed_states_);
  own_snapshot_slots_.ids().set_free_observer(&freed_snapshots_);
}

void PrefixCache::FreedSnapshots::freed(std::span<const int32_t> ids) {
  FreedIds::freed(ids);
  std::erase_if(saves, [&](const request::IdCopy& save) {
    return std::find(ids.begin(), ids.end(), save.to) != ids.end();
  });
}

// ---- What a sequence finds ----

PrefixMatch PrefixCache::match(const Sequence& sequence) const {
  if (!options_.enabled) return {};
  // At least one token runs, so that there are logits, unless the tokens end where others ended.
  return tree_.match(sequence.tokens, sequence.request.cache_namespace, sequence.num_tokens() - 1);
}

bool PrefixCache::repeats(const Sequence& sequence, const PrefixMatch& match) const {
  return match.exact != nullptr && options_.pools.keeps_hidden && sequence.wants_tokens();
}

int64_t PrefixCache::resume_tokens(const Sequence& sequence, const PrefixMatch& match) const {
  return repeats(sequence, match) ? sequence.num_tokens() : match.usable_tokens;
}

// Where the prompt parts from what is cached, as far as a sequence like it could resume there: with
// the whole prompt known that is before its last token.
int64_t PrefixCache::fork_tokens(const Sequence& sequence, const PrefixMatch& match) const {
  const int64_t known = std::min(match.kv_tokens, sequence.num_tokens() - 1);
  return known - known % options_.grid;
}

// KV rows beyond the point of resumption are shared up to the fork: the snapshot that is planted
// there makes a node of its own, which the sequence then holds instead of the whole other branch.
int64_t PrefixCache::shared_tokens(const Sequence& sequence, const PrefixMatch& match) const {
  const int64_t start = resume_tokens(sequence, match);
  const int64_t whole_pages = start - start % options_.pools.page_size;
  if (!options_.pools.has_states() || !chunks_on_grid(options_.policy)) return whole_pages;
  return std::max(whole_pages, fork_tokens(sequence, match));
}

int64_t PrefixCache::pages_to_own(const Sequence& sequence, const PrefixMatch& match) const {
  return pages_.pages_for(sequence.num_tokens()) -
         shared_tokens(sequence, match) / options_.pools.page_size;
}

// ---- The life of a sequence ----

bool PrefixCache::admit(Sequence& sequence, const PrefixMatch& match, int64_t headroom,
                        CachedSequence& cached) {
  const bool exact = repeats(sequence, match);
  PrefixNode* const resume = exact ? match.exact : match.resume;
  const int64_t start = resume_tokens(sequence, match);
  const int64_t shared = shared_tokens(sequence, match);
  const int64_t own = pages_to_own(sequence, match);

  // Held first, so that making room does not take away what the sequence resumes from.
  PrefixLock path =
      tree_.lock(shared > start ? tree_.covering(match.kv_node, shared) : resume, false);
  PrefixLock source = options_.pools.has_states() ? tree_.lock(resume, true) : PrefixLock{};
  const int64_t num_states = options_.pools.has_states() ? 1 : 0;
  if (!has_room({.pages = own + headroom, .states = num_states}) ||
      !make_room({.pages = own, .states = num_states})) {
    tree_.unlock(source);
    tree_.unlock(path);
    return false;
  }

  sequence.pages.clear();
  tree_.append_pages(tree_.covering(path.node, shared), shared, sequence.pages);
  take_pages(own, sequence.pages);
  if (options_.pools.has_states()) {
    sequence.state_slot = take_state();
    states_.set_label(sequence.state_slot, start);
  }
  sequence.num_computed = start;
  tree_.touch(resume);

  cached.path = path;
  cached.source = source;
  cached.shared_tokens = shared;
  cached.kv_tokens = std::max(shared, start);
  cached.began = tree_.clock();
  cached.starts = true;
  cached.copy_state_from = options_.pools.has_states() ? tree_.state_slot(resume) : 0;
  cached.hidden_slot = exact ? cached.copy_state_from : 0;
  cached.copy_page = {};
  if (shared < start) {  // resumes inside a page
    std::vector<int32_t> path_pages;
    tree_.append_pages(resume, start, path_pages);
    cached.copy_page = {
        .from = path_pages.back(),
        .to = sequence.pages[static_cast<size_t>(start / options_.pools.page_size)]};
  }
  cached.forks.clear();
  const int64_t fork = fork_tokens(sequence, match);
  if (options_.pools.has_states() && fork > start) cached.forks.push_back(fork);
  return true;
}

bool PrefixCache::grow(Sequence& sequence, int64_t num_tokens) {
  const int64_t missing =
      pages_.pages_for(num_tokens) - static_cast<int64_t>(sequence.pages.size());
  if (missing <= 0) return true;
  if (!make_room({.pages = missing})) return false;
  take_pages(missing, sequence.pages);
  return true;
}

bool PrefixCache::shrink(const Sequence& sequence, CachedSequence& cached) {
  if (options_.pools.kv_window == 0) return false;
  const int64_t dead = std::max<int64_t>(sequence.num_computed + 1 - options_.pools.kv_window, 0);
  const int64_t before = available_pages();
  for (; cached.dead_pages < dead / options_.pools.page_size; ++cached.dead_pages) {
    // The entry stays as it is: a step in flight may be reading the list, though not the page.
    const int32_t page = sequence.pages[static_cast<size_t>(cached.dead_pages)];
    if (pages_.ids().owner(page) == Owner::kRequest) pages_.ids().free_one(page);
  }
  // The path may end inside a page, whose last rows this sequence wrote and still reads.
  if (pages_.pages_for(tree_.depth(cached.path.node)) <= cached.dead_pages) {
    tree_.unlock(cached.path);
    cached.decode_node = nullptr;  // nothing keeps it any more
  }
  return available_pages() > before;
}

bool PrefixCache::make_room_for(const CachedSequence& cached, const SnapshotRequest& wanted) {
  if (free_snapshot_slots() > 0) return true;
  if (wanted.evicts) return make_room({.snapshots = 1});
  return wanted.spacing > 0 &&
         tree_.evict_state_for_middle(std::max<int64_t>(wanted.tokens - wanted.spacing, 0),
                                      wanted.tokens, cached.began) &&
         free_snapshot_slots() > 0;
}

void PrefixCache::plan_snapshot(CachedSequence& cached, const SnapshotRequest& wanted,
                                bool decode) {
  if (!make_room_for(cached, wanted)) {
    ++skipped_snapshots_;
    return;
  }
  const int32_t slot = take_snapshot_slot();
  cached.pending.push_back({.tokens = wanted.tokens,
                            .slot = slot,
                            .keeps_hidden = wanted.keeps_hidden,
                            .decode = decode,
                            .middle = wanted.spacing > 0});
  cached.snapshots[cached.turn].push_back(
      {.tokens = wanted.tokens, .slot = slot, .keep_hidden = wanted.keeps_hidden});
}

void PrefixCache::plan_prefill(const Sequence& sequence, CachedSequence& cached, int64_t end,
                               PlannedSequence& planned, request::BatchPlan& plan) {
  planned.kv_tokens = std::max(cached.kv_tokens, planned.context_tokens);
  if (cached.starts) {
    cached.starts = false;
    planned.hidden_slot = cached.hidden_slot;
    if (cached.copy_state_from != 0) {
      plan.restore_snapshots.push_back({.from = cached.copy_state_from, .to = sequence.state_slot});
    } else if (sequence.state_slot != 0) {
      plan.zero_state_slots.push_back(sequence.state_slot);
    }
    if (cached.copy_page.to != 0) plan.copy_pages.push_back(cached.copy_page);
  }
  if (!options_.enabled || cached.keeps_to_itself || end == planned.context_tokens) return;
  if (!options_.pools.has_states()) {
    cached.publishes_prefix = true;
    return;
  }
  request_snapshots(options_.policy, options_.grid,
                    {.begin = planned.context_tokens,
                     .end = end,
                     .num_tokens = sequence.num_tokens(),
                     .forks = cached.forks,
                     .role_boundaries = sequence.request.role_boundaries,
                     .free_slots = free_snapshot_slots(),
                     .num_slots = max_snapshot_slots(),
                     .keeps_hidden = options_.pools.keeps_hidden && planned.sample},
                    snapshot_requests_);
  cached.turn ^= 1;
  std::vector<request::StateSnapshot>& snapshots = cached.snapshots[cached.turn];
  snapshots.clear();
  for (const SnapshotRequest& wanted : snapshot_requests_) plan_snapshot(cached, wanted, false);
  const auto ascending = [](const auto& a, const auto& b) { return a.tokens < b.tokens; };
  std::sort(snapshots.begin(), snapshots.end(), ascending);
  std::sort(cached.pending.begin(), cached.pending.end(), ascending);
  planned.snapshots = snapshots;
}

void PrefixCache::plan_decode(const Sequence& sequence, CachedSequence& cached, int64_t end,
                              PlannedSequence& planned) {
  planned.kv_tokens = planned.context_tokens;
  if (!options_.enabled || cached.keeps_to_itself || sequence.state_slot == 0 ||
      !wants_decode_snapshot(options_.policy, options_.decode_interval, end)) {
    return;
  }
  cached.turn ^= 1;
  cached.snapshots[cached.turn].clear();
  plan_snapshot(cached, {.tokens = end, .evicts = true}, true);
  planned.snapshots = cached.snapshots[cached.turn];
}

void PrefixCache::want_snapshot(CachedSequence& cached, int64_t fork, int64_t num_planned) const {
  if (fork <= num_planned || !options_.pools.has_states()) return;
  if (std::find(cached.forks.begin(), cached.forks.end(), fork) == cached.forks.end()) {
    cached.forks.push_back(fork);
  }
}

bool PrefixCache::will_publish(const CachedSequence& cached, int64_t enough, int64_t fork,
                               int64_t num_planned) const {
  if (!options_.pools.has_states()) return fork > num_planned || cached.publishes_prefix;
  const auto within = [&](int64_t tokens) { return tokens >= enough && tokens <= fork; };
  return std::any_of(cached.forks.begin(), cached.forks.end(),
                     [&](int64_t tokens) { return tokens > num_planned && within(tokens); }) ||
         std::any_of(cached.pending.begin(), cached.pending.end(),
                     [&](const auto& pending) { return within(pending.tokens); });
}

void PrefixCache::confirm(Sequence& sequence, CachedSequence& cached) {
  tree_.unlock(cached.source);  // its copy is done
  if (sequence.state_slot != 0) states_.set_label(sequence.state_slot, sequence.num_computed);
  if (std::exchange(cached.publishes_prefix, false)) {
    const int64_t whole_pages =
        sequence.num_computed - sequence.num_computed % options_.pools.page_size;
    if (whole_pages > 0) publish(sequence, cached, {.tokens = whole_pages});
  }
  size_t count = 0;
  for (; count < cached.pending.size() && cached.pending[count].tokens <= sequence.num_computed;
       ++count) {
    const CachedSequence::Pending pending = cached.pending[count];
    PrefixNode* const node = publish(sequence, cached, pending);
    if (pending.decode) cached.decode_node = node;
  }
  cached.pending.erase(cached.pending.begin(),
                       cached.pending.begin() + static_cast<int64_t>(count));
}

PrefixNode* PrefixCache::publish(Sequence& sequence, CachedSequence& cached,
                                 const CachedSequence::Pending& taken) {
  const int64_t num_tokens = taken.tokens;
  const int32_t slot = taken.slot;
  if (cached.dead_pages > 0 &&
      match(sequence).kv_tokens < cached.dead_pages * options_.pools.page_size) {
    if (slot != 0) snapshots_.release(slot);
    return nullptr;  // rows on the way there have been given up
  }
  if (slot != 0) snapshots_.set_label(slot, num_tokens);
  sequence.prefix_hashes.extend(sequence.tokens);
  const PrefixInserted inserted = tree_.insert(
      {.tokens = std::span<const TokenId>(sequence.tokens).first(static_cast<size_t>(num_tokens)),
       .name_space = sequence.request.cache_namespace,
       .hashes = sequence.prefix_hashes,
       .pages = sequence.pages,
       .state_slot = slot,
       .keeps_hidden = taken.keeps_hidden,
       .middle = taken.middle});
  if (slot != 0) {
    if (inserted.state_taken) {
      ++published_states_;
    } else {
      snapshots_.release(slot);
    }
  }
  if (num_tokens >= cached.shared_tokens) {
    PrefixLock deeper = tree_.lock(inserted.node, false);
    // The decode snapshot above is replaced. While its node is held it cannot have been merged.
    if (cached.decode_node != nullptr && cached.decode_node != inserted.node) {
      tree_.drop_unused_state(cached.decode_node);
    }
    cached.decode_node = nullptr;
    tree_.unlock(cached.path);
    cached.path = deeper;
  }
  return inserted.node;
}

// The state a sequence ends with is in its working slot.
void PrefixCache::publish_end(Sequence& sequence, CachedSequence& cached) {
  const int64_t end = sequence.num_computed;
  const int32_t working = std::exchange(sequence.state_slot, 0);
  if (!has_own_snapshot_slots()) {
    publish(sequence, cached, {.tokens = end, .slot = working});
    return;
  }
  states_.release(working);  // what is in it stays until the next plan
  if (free_snapshot_slots() < 1) {
    const auto tokens = std::span<const TokenId>(sequence.tokens).first(static_cast<size_t>(end));
    const PrefixMatch match = tree_.match(tokens, sequence.request.cache_namespace, end);
    if (match.usable_tokens == end) return;  // it is there already
    if (!make_room({.snapshots = 1})) {
      ++skipped_snapshots_;
      return;
    }
  }
  const int32_t slot = take_snapshot_slot();
  saves_.push_back({.from = working, .to = slot});
  publish(sequence, cached, {.tokens = end, .slot = slot});
}

void PrefixCache::release(Sequence& sequence, CachedSequence& cached, Keep keep) {
  tree_.unlock(cached.source);
  for (const CachedSequence::Pending& pending : cached.pending) snapshots_.release(pending.slot);
  cached.pending.clear();
  const bool keeps_end = options_.enabled && keep == Keep::kEnd && sequence.num_computed > 0 &&
                         keeps_exact_end(options_.policy);
  if (keeps_end && options_.pools.has_states()) {
    publish_end(sequence, cached);
  } else if (keeps_end) {
    const int64_t whole_pages =
        sequence.num_computed - sequence.num_computed % options_.pools.page_size;
    if (whole_pages > 0) publish(sequence, cached, {.tokens = whole_pages});
  }
  if (sequence.state_slot != 0) states_.release(std::exchange(sequence.state_slot, 0));
  for (size_t i = static_cast<size_t>(cached.dead_pages); i < sequence.pages.size(); ++i) {
    const int32_t page = sequence.pages[i];
    if (pages_.ids().owner(page) == Owner::kRequest) pages_.ids().free_one(page);
  }
  sequence.pages.clear();
  sequence.num_computed = 0;
  tree_.unlock(cached.path);
  cached.shared_tokens = 0;
  cached.dead_pages = 0;
  cached.kv_tokens = 0;
  cached.forks.clear();
  cached.decode_node = nullptr;
  cached.keeps_to_itself = false;
  cached.publishes_prefix = false;
  cached.starts = false;
  cached.hidden_slot = 0;
}

}  // namespace heddle::cache
