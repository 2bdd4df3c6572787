// SPDX-License-Identifier: Apache-2.0
#include "cache/prefix_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/check.h"

namespace heddle::cache {

using request::MoveKind;
using request::PlannedSequence;
using request::Sequence;

namespace {

PrefixTreeOptions tree_options(const PrefixCacheOptions& options, const PoolSizes& pools) {
  PrefixTreeOptions tree{.needs_state = pools.has_states(),
                         .eviction = options.eviction,
                         .flops = pools.flops,
                         .page_bytes = pools.page_bytes,
                         .state_bytes = pools.snapshot_bytes()};
  if (pools.shared_bytes > 0) tree.expected_states = pools.shared_bytes / tree.state_bytes;
  return tree;
}

void add_copy(uint32_t table, const ops::IdCopy& copy, request::BatchPlan& plan) {
  if (copy.to == 0) return;
  plan.add_move({.kind = MoveKind::kCopyPage, .table = table, .from = copy.from, .to = copy.to});
}

}  // namespace

PrefixCache::PrefixCache(const PrefixCacheOptions& options, const Clock* clock)
    : options_(options),
      pools_(options.pools),
      tree_(tree_options(options, pools_.sizes()), pools_.pages(), pools_.windows(),
            pools_.snapshots()),
      room_(pools_, tree_, clock) {
  HEDDLE_CHECK_EQ(options.grid % options.pools.page_size, 0);
  HEDDLE_CHECK_EQ(options.decode_interval % options.grid, 0);
}

PrefixMatch PrefixCache::match(const Sequence& sequence) const {
  if (!options_.enabled) return {};
  // At least one token is computed, so that there are logits, unless the tokens end where those of
  // an earlier sequence ended.
  PrefixMatch match =
      tree_.match(sequence.tokens, sequence.cache_namespace, sequence.max_cached_tokens());
  if (sequence.wants_scores()) match.exact = nullptr;
  return match;
}

CacheLoss PrefixCache::loss(const Sequence& sequence, const PrefixMatch& match) const {
  if (!options_.enabled || plan_resume(options_, sequence, match).repeats) return {};
  const int64_t usable_once = tree_.usable_without_eviction(sequence.tokens, sequence.prefix_hashes,
                                                            match, sequence.max_cached_tokens());
  return explain_loss(options_, sequence, match, usable_once);
}

// ---- Room for a sequence ----

bool PrefixCache::admit(Sequence& sequence, const PrefixMatch& match, int64_t headroom,
                        CachedSequence& cached) {
  const ResumePlan resume = plan_resume(options_, sequence, match);
  const int64_t start = resume.start;
  const int64_t shared = resume.shared;
  const bool has_states = options_.pools.has_states();

  // Locks first, so that making room does not evict the prefix that the sequence resumes from.
  PrefixLock path =
      tree_.lock(shared > start ? tree_.covering(match.kv_node, shared) : resume.node, false);
  PrefixLock source = has_states ? tree_.lock(resume.node, true) : PrefixLock{};
  const int64_t num_states = has_states ? 1 : 0;
  if (!room_.has_room({.pages = resume.own_pages + headroom, .states = num_states}) ||
      !room_.make_room({.pages = resume.own_pages, .states = num_states})) {
    tree_.unlock(source);
    tree_.unlock(path);
    return false;
  }

  sequence.pages.clear();
  tree_.append_pages(tree_.covering(path.node, shared), shared, sequence.pages);
  pools_.take_pages(resume.own_pages, sequence.pages);
  if (has_states) {
    sequence.state_slot = pools_.take_state();
    pools_.states().set_label(sequence.state_slot, start);
  }
  sequence.num_computed = start;
  tree_.touch(resume.node);

  cached.path = path;
  cached.has_published = false;
  cached.source = source;
  cached.shared_tokens = shared;
  cached.kv_tokens = std::max(shared, start);
  cached.began = tree_.clock();
  cached.starts = true;
  cached.copy_state_from = has_states ? tree_.state_slot(resume.node) : 0;
  cached.hidden_slot = resume.repeats ? cached.copy_state_from : 0;
  cached.copy_page = {};
  if (shared < start) {  // the sequence resumes inside a page
    std::vector<int32_t> path_pages;
    tree_.append_pages(resume.node, start, path_pages);
    cached.copy_page = {
        .from = path_pages.back(),
        .to = sequence.pages[static_cast<size_t>(start / options_.pools.page_size)]};
  }
  begin_windows(sequence, cached, resume);
  cached.forks.clear();
  if (has_states && resume.fork > start) cached.forks.push_back(resume.fork);
  return true;
}

bool PrefixCache::grow(Sequence& sequence, int64_t num_tokens) {
  const int64_t missing = pools_.pages().pages_for(num_tokens) - std::ssize(sequence.pages);
  if (missing <= 0) return true;
  if (!room_.make_room({.pages = missing})) return false;
  pools_.take_pages(missing, sequence.pages);
  return true;
}

void PrefixCache::free_own_pages(const Sequence& sequence, int64_t begin, int64_t end) {
  for (int64_t index = begin; index < end; ++index) {
    const int32_t page = sequence.pages[static_cast<size_t>(index)];
    if (pools_.pages().ids().owner(page) == Owner::kRequest) pools_.pages().ids().free_one(page);
  }
}

bool PrefixCache::shrink(const Sequence& sequence, CachedSequence& cached) {
  const int64_t window = options_.pools.kv_window;
  if (window == 0) return false;
  const int64_t before = available_pages();
  const int64_t dead_tokens = std::max<int64_t>(sequence.num_computed + 1 - window, 0);
  const int64_t dead_pages = std::max(cached.dead_pages, dead_tokens / options_.pools.page_size);
  // The list keeps its entries: a step in flight may read the list, though not these pages.
  free_own_pages(sequence, cached.dead_pages, dead_pages);
  cached.dead_pages = dead_pages;
  // The path may end inside a page whose last rows this sequence wrote and still reads.
  if (pools_.pages().pages_for(tree_.depth(cached.path.node)) <= cached.dead_pages) {
    tree_.unlock(cached.path);
    cached.decode_node = nullptr;  // decode_node is only valid while the path is locked
  }
  return available_pages() > before;
}

// ---- Tables with a window ----

// Pins the pages of the windows that the tree has for the sequence.
void PrefixCache::begin_windows(const Sequence& sequence, CachedSequence& cached,
                                const ResumePlan& resume) {
  const std::span<WindowPages> windows = pools_.windows();
  // Reserves all entries that the lists will ever have: steps in flight read the lists.
  const int64_t most_tokens = std::max(sequence.max_stored_tokens(), sequence.num_tokens());
  const bool inside_page = resume.start % options_.pools.page_size != 0;
  cached.windows.resize(windows.size());
  for (size_t i = 0; i < windows.size(); ++i) {
    WindowPages& pages = windows[i];
    PinnedWindow& pinned = cached.windows[i];
    found_.clear();
    tree_.append_window(resume.node, resume.start, i, found_);
    pages.begin(pinned, pages.first_page(resume.start), pools_.pages().pages_for(most_tokens));
    const size_t num_shared = found_.size() - (inside_page ? 1 : 0);
    for (size_t page = 0; page < num_shared; ++page) pages.share(pinned, found_[page]);
    if (!inside_page) continue;
    pages.begin_copy(pinned, found_.back());
    HEDDLE_CHECK(pages.grow(pinned, pools_.pages().pages_for(resume.start)));
    pinned.copy.to = pinned.pages.back();
  }
}

bool PrefixCache::grow_windows(CachedSequence& cached, int64_t num_tokens) {
  const std::span<WindowPages> windows = pools_.windows();
  const int64_t num_pages = pools_.pages().pages_for(num_tokens);
  for (size_t i = 0; i < windows.size(); ++i) {
    if (!windows[i].can_grow(cached.windows[i], num_pages)) return false;
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    HEDDLE_CHECK(windows[i].grow(cached.windows[i], num_pages));
  }
  return true;
}

int64_t PrefixCache::window_room(const CachedSequence& cached, int64_t num_planned) const {
  const std::span<const WindowPages> windows = pools_.windows();
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < windows.size(); ++i) {
    const PinnedWindow& pinned = cached.windows[i];
    const int64_t most = std::ssize(pinned.pages) + windows[i].room(pinned.num_pinned());
    least = std::min(least, most * options_.pools.page_size - num_planned);
  }
  return least;
}

int64_t PrefixCache::window_room(const Sequence& sequence, const PrefixMatch& match) const {
  int64_t least = std::numeric_limits<int64_t>::max();
  if (pools_.windows().empty()) return least;
  const int64_t start = plan_resume(options_, sequence, match).start;
  const int64_t copied = start % options_.pools.page_size != 0 ? 1 : 0;
  for (const WindowPages& pages : pools_.windows()) {
    const int64_t most = pages.first_page(start) + pages.room(0) - copied;
    least = std::min(least, most * options_.pools.page_size - start);
  }
  return least;
}

// Unpins the pages that no later token reads, neither of this sequence nor of one that resumes
// after its last whole page.
void PrefixCache::slide_windows(const Sequence& sequence, CachedSequence& cached) {
  const std::span<WindowPages> windows = pools_.windows();
  const int64_t prompt = whole_pages(sequence.num_prompt_tokens);
  for (size_t i = 0; i < windows.size(); ++i) {
    WindowPages& pages = windows[i];
    pages.end_copy(cached.windows[i]);
    pages.slide(cached.windows[i], pages.first_page(whole_pages(sequence.num_computed)),
                pages.first_page(prompt), pools_.pages().pages_for(prompt));
  }
}

void PrefixCache::take_windows(CachedSequence& cached, int64_t end, int64_t context_tokens) {
  HEDDLE_CHECK(grow_windows(cached, end));
  for (size_t i = 0; i < cached.windows.size(); ++i) {
    HEDDLE_CHECK_LE(cached.windows[i].first, pools_.windows()[i].first_page(context_tokens));
  }
}

// ---- Planning steps ----

void PrefixCache::plan_snapshot(CachedSequence& cached, const SnapshotRequest& wanted, bool decode,
                                request::BatchPlan& plan) {
  if (!room_.make_room_for_snapshot(wanted, cached.began)) {
    ++skipped_snapshots_;
    return;
  }
  const int32_t slot = pools_.take_snapshot();
  cached.pending.push_back({.tokens = wanted.tokens,
                            .slot = slot,
                            .keeps_hidden = wanted.keeps_hidden,
                            .decode = decode,
                            .middle = wanted.spacing > 0});
  plan.snapshots.push_back(
      {.tokens = wanted.tokens, .slot = slot, .keep_hidden = wanted.keeps_hidden});
}

void PrefixCache::plan_prefill(const Sequence& sequence, CachedSequence& cached, int64_t end,
                               PlannedSequence& planned, request::BatchPlan& plan) {
  planned.kv_tokens = std::max(cached.kv_tokens, planned.context_tokens);
  take_windows(cached, end, planned.context_tokens);
  if (cached.starts) {
    cached.starts = false;
    planned.hidden_slot = cached.hidden_slot;
    if (cached.copy_state_from != 0) {
      plan.add_move(
          {.kind = MoveKind::kRestore, .from = cached.copy_state_from, .to = sequence.state_slot});
    } else if (sequence.state_slot != 0) {
      plan.add_move({.kind = MoveKind::kZero, .to = sequence.state_slot});
    }
    add_copy(0, cached.copy_page, plan);
    for (size_t i = 0; i < cached.windows.size(); ++i) {
      add_copy(static_cast<uint32_t>(1 + i), cached.windows[i].copy, plan);
    }
  }
  if (!options_.enabled || cached.publishes_only_at_end || end == planned.context_tokens) return;
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
                     .free_slots = room_.free_snapshots(),
                     .num_slots = room_.max_snapshots(),
                     .keeps_hidden = options_.pools.keeps_hidden && planned.sample},
                    snapshot_requests_);
  const auto begin = std::ssize(plan.snapshots);
  for (const SnapshotRequest& wanted : snapshot_requests_) {
    plan_snapshot(cached, wanted, false, plan);
  }
  const auto ascending = [](const auto& a, const auto& b) { return a.tokens < b.tokens; };
  std::sort(plan.snapshots.begin() + begin, plan.snapshots.end(), ascending);
  std::sort(cached.pending.begin(), cached.pending.end(), ascending);
  planned.snapshots = {.begin = static_cast<int32_t>(begin),
                       .count = static_cast<int32_t>(std::ssize(plan.snapshots) - begin)};
}

void PrefixCache::plan_decode(const Sequence& sequence, CachedSequence& cached, int64_t end,
                              PlannedSequence& planned, request::BatchPlan& plan) {
  planned.kv_tokens = planned.context_tokens;
  take_windows(cached, end, planned.context_tokens);
  if (!options_.enabled || cached.publishes_only_at_end || sequence.state_slot == 0) return;
  const int64_t interval = options_.decode_interval;
  int64_t tokens = planned.context_tokens - planned.context_tokens % interval + interval;
  if (tokens > end) return;  // usual: no multiple of the interval is in this step
  const auto begin = std::ssize(plan.snapshots);
  for (; tokens <= end; tokens += interval) {
    if (!wants_decode_snapshot(options_.policy, interval, tokens)) continue;
    plan_snapshot(cached, {.tokens = tokens, .evicts = true}, true, plan);
  }
  planned.snapshots = {.begin = static_cast<int32_t>(begin),
                       .count = static_cast<int32_t>(std::ssize(plan.snapshots) - begin)};
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

// ---- Publishing ----

void PrefixCache::confirm(Sequence& sequence, CachedSequence& cached) {
  tree_.unlock(cached.source);  // the step that copied the state is complete
  if (sequence.state_slot != 0) {
    pools_.states().set_label(sequence.state_slot, sequence.num_computed);
  }
  if (std::exchange(cached.publishes_prefix, false)) {
    const int64_t tokens = whole_pages(sequence.num_computed);
    if (tokens > 0) publish(sequence, cached, {.tokens = tokens});
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
  slide_windows(sequence, cached);
}

void PrefixCache::drop_pending(CachedSequence& cached) {
  for (const CachedSequence::Pending& pending : cached.pending) {
    pools_.snapshots().release(pending.slot);
  }
  cached.pending.clear();
}

// Inserts the tokens up to a snapshot into the tree. The tree takes over the snapshot's slot, or it
// is freed.
PrefixNode* PrefixCache::publish(Sequence& sequence, CachedSequence& cached,
                                 const CachedSequence::Pending& taken) {
  const int64_t num_tokens = taken.tokens;
  const int32_t slot = taken.slot;
  if (cached.dead_pages > 0 &&
      match(sequence).kv_tokens < cached.dead_pages * options_.pools.page_size) {
    if (slot != 0) pools_.snapshots().release(slot);
    return nullptr;  // pages of these tokens have been released
  }
  if (slot != 0) pools_.snapshots().set_label(slot, num_tokens);
  sequence.prefix_hashes.extend(sequence.tokens);
  PrefixNode* const begins_at = cached.has_published && tree_.depth(cached.path.node) <= num_tokens
                                    ? cached.path.node
                                    : nullptr;
  const PrefixInserted inserted = tree_.insert(
      {.tokens = std::span<const TokenId>(sequence.tokens).first(static_cast<size_t>(num_tokens)),
       .name_space = sequence.cache_namespace,
       .hashes = sequence.prefix_hashes,
       .pages = sequence.pages,
       .windows = cached.windows,
       .state_slot = slot,
       .keeps_hidden = taken.keeps_hidden,
       .middle = taken.middle,
       .begins_at = begins_at});
  if (slot != 0) {
    if (inserted.state_taken) {
      ++published_states_;
    } else {
      pools_.snapshots().release(slot);
    }
  }
  if (num_tokens >= cached.shared_tokens) {
    // Drops the earlier decode snapshot. Its node has been locked since, so it still exists.
    if (cached.decode_node != nullptr && cached.decode_node != inserted.node) {
      tree_.drop_unused_state(cached.decode_node);
    }
    cached.decode_node = nullptr;
    tree_.move(cached.path, inserted.node);
    cached.has_published = true;
  }
  return inserted.node;
}

// Publishes the last state of a sequence, which is in its working slot.
void PrefixCache::publish_end(Sequence& sequence, CachedSequence& cached) {
  const int64_t end = sequence.num_computed;
  const int32_t working = std::exchange(sequence.state_slot, 0);
  if (!options_.pools.has_own_snapshot_slots()) {
    publish(sequence, cached, {.tokens = end, .slot = working});
    return;
  }
  pools_.states().release(working);  // the state's contents stay valid until the next plan
  if (room_.free_snapshots() < 1) {
    const auto tokens = std::span<const TokenId>(sequence.tokens).first(static_cast<size_t>(end));
    const PrefixMatch match = tree_.match(tokens, sequence.cache_namespace, end);
    if (match.usable_tokens == end) return;  // the tree has a state after these tokens already
    if (!room_.make_room({.snapshots = 1})) {
      ++skipped_snapshots_;
      return;
    }
  }
  const int32_t slot = pools_.take_snapshot();
  pools_.save_at_next_step(working, slot);
  publish(sequence, cached, {.tokens = end, .slot = slot});
}

void PrefixCache::release(Sequence& sequence, CachedSequence& cached, Keep keep) {
  tree_.unlock(cached.source);
  drop_pending(cached);
  const bool keeps_end = options_.enabled && keep == Keep::kEnd && sequence.num_computed > 0 &&
                         keeps_exact_end(options_.policy);
  if (keeps_end && options_.pools.has_states()) {
    publish_end(sequence, cached);
  } else if (keeps_end) {
    const int64_t tokens = whole_pages(sequence.num_computed);
    if (tokens > 0) publish(sequence, cached, {.tokens = tokens});
  }
  if (sequence.state_slot != 0) pools_.states().release(std::exchange(sequence.state_slot, 0));
  for (size_t i = 0; i < cached.windows.size(); ++i) pools_.windows()[i].end(cached.windows[i]);
  free_own_pages(sequence, cached.dead_pages, std::ssize(sequence.pages));
  sequence.pages.clear();
  sequence.num_computed = 0;
  tree_.unlock(cached.path);
  cached.shared_tokens = 0;
  cached.dead_pages = 0;
  cached.kv_tokens = 0;
  cached.forks.clear();
  cached.decode_node = nullptr;
  cached.publishes_only_at_end = false;
  cached.publishes_prefix = false;
  cached.starts = false;
  cached.hidden_slot = 0;
}

// ---- Statistics and proof ----

PrefixCacheStats PrefixCache::stats() const {
  const PrefixTreeStats tree = tree_.stats();
  PrefixCacheStats stats{.pages_used = pools_.pages().num_used(),
                         .pages_cached = tree.evictable_pages,
                         .pages_locked = tree.pages - tree.evictable_pages,
                         .state_slots_used = pools_.num_slots_used(),
                         .state_slots_cached = tree.evictable_states,
                         .state_slots_locked = tree.states - tree.evictable_states,
                         .evicted_tokens = tree.evicted_tokens,
                         .evicted_states = tree.evicted_states,
                         .eviction_seconds = room_.eviction_seconds(),
                         .published_states = published_states_,
                         .skipped_snapshots = skipped_snapshots_};
  for (const WindowPages& window : pools_.windows()) {
    stats.windows_used += window.ids().num_used();
    stats.windows_cached += window.num_evictable();
    stats.windows_evicted += window.num_evicted();
  }
  return stats;
}

void PrefixCache::check_invariants(std::span<const AdmittedSequence> running) const {
  pools_.check_invariants();
  tree_.check_invariants(running.empty());
  check_ownership(options_, pools_, tree_, running);
}

}  // namespace heddle::cache
