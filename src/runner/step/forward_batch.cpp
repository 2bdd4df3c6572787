// SPDX-License-Identifier: Apache-2.0
#include "runner/step/forward_batch.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/check.h"
#include "ops/rope/rope.h"

namespace heddle::runner {

namespace {

bool wants_logits(const request::PlannedSequence& sequence,
                  std::span<const request::PlannedSnapshot> snapshots) {
  return sequence.sample || std::any_of(snapshots.begin(), snapshots.end(),
                                        [](const auto& c) { return c.keep_hidden; });
}

}  // namespace

ForwardBatch::ForwardBatch(const Sizes& sizes) : sizes_(sizes) {
  const auto tokens = static_cast<size_t>(sizes.max_tokens);
  const auto sequences = static_cast<size_t>(sizes.max_sequences);
  ids_.reserve(tokens);
  positions_.reserve(tokens);
  logit_rows_.reserve(tokens);
  tree_masks_.reserve(tokens);
  tree_starts_.reserve(sequences);
  query_start_.reserve(sequences + 1);
  context_lens_.reserve(sequences);
  kv_lens_.reserve(sequences);
  state_slots_.reserve(sequences);
  snapshots_.reserve(sequences * 4 + static_cast<size_t>(sizes.max_draft_rows));
  HEDDLE_CHECK_LT(sizes.windows.size(), ops::kMaxPageTables);
  page_tables_.assign(
      1 + sizes.windows.size(),
      std::vector<int32_t>(sequences * static_cast<size_t>(sizes.max_pages_per_sequence)));
  sequences_.reserve(sequences);
  kept_hidden_.reserve(sequences);
  hidden_slots_.reserve(sequences);
  hidden_adapters_.reserve(sequences);
  adapter_slots_.reserve(sequences);
  draft_states_.reserve(sequences);
}

Status ForwardBatch::build(const request::BatchPlan& plan, const request::BatchSlots& slots,
                           LogitRows logit_rows, const TokenSource* tokens,
                           const KeptDrafts* kept) {
  ids_.clear();
  positions_.clear();
  query_start_.assign(1, 0);
  context_lens_.clear();
  kv_lens_.clear();
  state_slots_.clear();
  logit_rows_.clear();
  tree_starts_.clear();
  tree_masks_.clear();
  has_trees_ = false;
  snapshots_.clear();
  sequences_.clear();
  kept_hidden_.clear();
  hidden_slots_.clear();
  hidden_adapters_.clear();
  adapter_slots_.clear();
  has_adapters_ = false;
  draft_states_.clear();
  draft_rows_ = 0;
  if (const int64_t scored = plan.num_scored_rows(); scored > sizes_.max_scored_rows) {
    return invalid_argument(
        fmt::format("a step that scores {} tokens; at most {}", scored, sizes_.max_scored_rows));
  }
  if (static_cast<int64_t>(plan.sequences.size()) > sizes_.max_sequences ||
      plan.num_rows() > sizes_.max_tokens) {
    return invalid_argument(fmt::format("a step of {} sequences and {} tokens; at most {} and {}",
                                        plan.sequences.size(), plan.num_rows(),
                                        sizes_.max_sequences, sizes_.max_tokens));
  }
  const Sources sources{.plan = plan, .logit_rows = logit_rows, .tokens = tokens, .kept = kept};
  for (const request::PlannedSequence& sequence : plan.sequences) {
    const Status status = add(sources, sequence, slots[sequence.batch_slot]);
    if (!status.ok()) {
      return status.with_context(fmt::format("sequence {}", sequence.sequence_id));
    }
  }
  if (logit_rows == LogitRows::kAll) {
    for (int32_t row = 0; row < query_start_.back(); ++row) logit_rows_.push_back(row);
  }
  return {};
}

Status ForwardBatch::add(const Sources& sources, const request::PlannedSequence& sequence,
                         const request::BatchSlot& slot) {
  const request::BatchPlan& plan = sources.plan;
  StepSequence& own = sequences_.emplace_back();
  own.planned = &sequence;
  own.slot = &slot;
  HEDDLE_RETURN_IF_ERROR(check_scored(sequence));
  HEDDLE_RETURN_IF_ERROR(check_hidden(sources, sequence));
  if (sequence.hidden_slot != 0) {
    if (sequence.num_new_tokens() > 0) {
      return invalid_argument("has new tokens beside a hidden vector that stands for all");
    }
    own.part = StepSequence::Part::kHidden;
    if (sequence.sample) {
      own.logit_row = static_cast<int32_t>(hidden_slots_.size());
      hidden_slots_.push_back(sequence.hidden_slot);
      hidden_adapters_.push_back(slot.start.adapter_slot);
    }
    return {};
  }
  HEDDLE_RETURN_IF_ERROR(find_fed(sources, own));
  if (own.part == StepSequence::Part::kSkipped) return {};
  HEDDLE_RETURN_IF_ERROR(take_draft_rows(sequence));
  std::span<const TokenId> drafts = plan.drafts(sequence);
  if (sources.kept != nullptr) {
    HEDDLE_RETURN_IF_ERROR(sources.kept->check(plan, sequence));
    drafts = sources.kept->tokens(plan, sequence);
  }
  own.batch_index = static_cast<int32_t>(context_lens_.size());
  own.first_row = query_start_.back();
  HEDDLE_RETURN_IF_ERROR(add_rows(sequence, plan.new_tokens(sequence), drafts, slot));
  HEDDLE_RETURN_IF_ERROR(add_tree(sequence, drafts, plan.parents_of_drafts(sequence)));
  const int32_t last_row = own.last_new_row();
  const int32_t first_scored = own.first_row + sequence.scored.begin;
  if (sources.logit_rows == LogitRows::kAll) {
    own.scored_row = first_scored;
    own.logit_row = last_row;
  } else {
    own.scored_row = static_cast<int32_t>(logit_rows_.size());
    for (int32_t i = 0; i < sequence.scored.count; ++i) logit_rows_.push_back(first_scored + i);
    if (wants_logits(sequence, plan.snapshots_of(sequence))) {
      own.logit_row = static_cast<int32_t>(logit_rows_.size());
      for (int32_t row = last_row; row < query_start_.back(); ++row) logit_rows_.push_back(row);
    }
  }
  HEDDLE_RETURN_IF_ERROR(add_snapshots(sequence, plan.snapshots_of(sequence)));
  if (own.draft_slot != 0) add_draft_states(sequence);
  return {};
}

Status ForwardBatch::check_hidden(const Sources& sources,
                                  const request::PlannedSequence& sequence) const {
  bool wants_hidden = sequence.hidden_slot != 0;
  for (const auto& snapshot : sources.plan.snapshots_of(sequence)) {
    wants_hidden |= snapshot.keep_hidden;
  }
  if (wants_hidden && sizes_.num_hidden_slots == 0) {
    return invalid_argument("this runner keeps no hidden vectors");
  }
  if (sequence.hidden_slot >= 0 && sequence.hidden_slot <= sizes_.num_hidden_slots) return {};
  return invalid_argument(
      fmt::format("hidden slot {}; there are {}", sequence.hidden_slot, sizes_.num_hidden_slots));
}

// Finds the drawn token that is fed after the new tokens, or the row from which the device draws
// it.
Status ForwardBatch::find_fed(const Sources& sources, StepSequence& sequence) {
  if (!sequence.planned->feeds_drawn_token) return {};
  const int32_t batch_slot = sequence.planned->batch_slot;
  const int64_t num_slots = sources.tokens == nullptr ? 0 : sources.tokens->num_slots();
  if (batch_slot >= num_slots) {
    return invalid_argument(fmt::format("feeds on the token drawn for batch slot {}; there are {}",
                                        batch_slot, num_slots));
  }
  const TokenSource::Drawn drawn = sources.tokens->last(batch_slot);
  if (drawn.place == TokenSource::Place::kDevice) {
    sequence.fed_from = drawn.row;
  } else if (drawn.place == TokenSource::Place::kNone ||
             std::ranges::binary_search(sequence.slot->ending_tokens, drawn.token)) {
    sequence.part = StepSequence::Part::kSkipped;
  } else {
    sequence.fed_token = drawn.token;
  }
  return {};
}

Status ForwardBatch::check_scored(const request::PlannedSequence& sequence) {
  const request::PlanRange scored = sequence.scored;
  if (scored.empty()) return {};
  const int32_t most = sequence.new_tokens.count - (sequence.sample ? 1 : 0);
  if (!sequence.feeds_drawn_token && scored.begin >= 0 && scored.begin <= most - scored.count) {
    return {};
  }
  return invalid_argument(
      fmt::format("scores the tokens behind its new ones {} to {}; what follows is known of {}",
                  scored.begin, scored.begin + scored.count, most));
}

Status ForwardBatch::take_draft_rows(const request::PlannedSequence& sequence) {
  if (sequence.drafts.empty()) return {};
  const int64_t rows = int64_t{sequence.drafts.count} + 1;
  if (!sequence.sample || draft_rows_ + rows > sizes_.max_draft_rows) {
    return invalid_argument(fmt::format(
        "{} drafts, {} are drawn from; a step has room for {} rows of drafts, {} are taken",
        sequence.drafts.count, sequence.sample ? "which" : "none of which", sizes_.max_draft_rows,
        draft_rows_));
  }
  if (sizes_.first_draft_slot != 0) {
    sequences_.back().draft_slot = sizes_.first_draft_slot + static_cast<int32_t>(draft_rows_);
  }
  draft_rows_ += rows;
  return {};
}

// Marks the rows of the drafts as nodes of a tree, if the drafts branch.
Status ForwardBatch::add_tree(const request::PlannedSequence& sequence,
                              std::span<const TokenId> drafts, std::span<const int32_t> parents) {
  tree_starts_.push_back(ops::kNoTree);
  tree_masks_.resize(ids_.size());
  if (parents.empty()) return {};
  HEDDLE_RETURN_IF_ERROR(tree_.assign(drafts, parents));
  if (!tree_.branches()) return {};
  has_trees_ = true;
  sequences_.back().has_tree = true;
  const int64_t first = sequence.context_tokens + sequence.num_new_tokens();
  tree_starts_.back() = static_cast<int32_t>(first);
  const size_t row = ids_.size() - drafts.size();
  for (size_t i = 0; i < drafts.size(); ++i) {
    // Ops count the drafts only as nodes: the last new token, node 0 of DraftTree, comes before
    // their tree.
    tree_masks_[row + i] = tree_.masks()[i + 1] >> 1;
    positions_[row + i] =
        ops::rope_position(first - 1 + tree_.depths()[i + 1], sequence.takes_long_rope);
  }
  return {};
}

// Plans a state for every row at which the draws may end. The state advances in the slot of the
// last row.
void ForwardBatch::add_draft_states(const request::PlannedSequence& sequence) {
  const int32_t slot = sequences_.back().draft_slot;
  draft_states_.push_back({.from = sequence.state_slot, .to = slot});
  state_slots_.back() = slot;
  if (sequences_.back().has_tree) return;  // the following slots belong to the nodes of the tree
  const auto b = static_cast<int32_t>(context_lens_.size()) - 1;
  const auto num_new = static_cast<int32_t>(sequence.num_new_tokens());
  for (int32_t i = 0; i < sequence.drafts.count; ++i) {
    snapshots_.push_back({.sequence = b, .num_tokens = num_new + i, .slot = slot + 1 + i});
  }
  const auto begin = std::ranges::find(snapshots_, b, &ops::StateSnapshot::sequence);
  std::ranges::sort(std::ranges::subrange(begin, snapshots_.end()), {},
                    &ops::StateSnapshot::num_tokens);
}

Status ForwardBatch::add_rows(const request::PlannedSequence& sequence,
                              std::span<const TokenId> new_tokens, std::span<const TokenId> drafts,
                              const request::BatchSlot& slot) {
  const int64_t end = sequence.context_tokens + sequence.num_rows();
  if (sequence.num_new_tokens() == 0) return invalid_argument("has no new tokens");
  HEDDLE_RETURN_IF_ERROR(add_pages(sequence, slot));
  ids_.insert(ids_.end(), new_tokens.begin(), new_tokens.end());
  // Fed tokens and drafts that the device supplies may have any value here.
  if (sequence.feeds_drawn_token) {
    ids_.push_back(sequences_.back().fed_from >= 0 ? 0 : sequences_.back().fed_token);
  }
  ids_.insert(ids_.end(), drafts.begin(), drafts.end());
  for (int64_t position = sequence.context_tokens; position < end; ++position) {
    positions_.push_back(ops::rope_position(position, sequence.takes_long_rope));
  }
  query_start_.push_back(static_cast<int32_t>(ids_.size()));
  context_lens_.push_back(static_cast<int32_t>(sequence.context_tokens));
  kv_lens_.push_back(static_cast<int32_t>(std::max(sequence.context_tokens, sequence.kv_tokens)));
  state_slots_.push_back(sequence.state_slot);
  adapter_slots_.push_back(slot.start.adapter_slot);
  has_adapters_ |= slot.start.adapter_slot >= 0;
  return {};
}

// Writes the entries of the page tables that are read. The rest keeps ids of earlier batches.
Status ForwardBatch::add_pages(const request::PlannedSequence& sequence,
                               const request::BatchSlot& slot) {
  const int64_t tokens = sequence.context_tokens + sequence.num_rows();
  const int64_t num_pages = (tokens + sizes_.page_size - 1) / sizes_.page_size;
  const auto row = std::ssize(context_lens_) * sizes_.max_pages_per_sequence;
  if (num_pages > sizes_.max_pages_per_sequence) {
    return invalid_argument(fmt::format("needs {} pages for {} tokens; at most {}", num_pages,
                                        tokens, sizes_.max_pages_per_sequence));
  }
  for (size_t table = 0; table < page_tables_.size(); ++table) {
    const request::PageList& pages = slot.pages[table];
    const int64_t first = table == 0 ? 0
                                     : sizes_.windows[table - 1].first_page(sequence.context_tokens,
                                                                            sizes_.page_size);
    const int64_t end = std::ssize(pages.ids);
    if (pages.first > first || end < num_pages) {
      return invalid_argument(fmt::format("needs pages {} to {} of table {}, has {} to {}", first,
                                          num_pages, table, pages.first, end));
    }
    std::copy_n(pages.ids.begin() + first, num_pages - first,
                page_tables_[table].begin() + row + first);
  }
  return {};
}

Status ForwardBatch::add_snapshots(const request::PlannedSequence& sequence,
                                   std::span<const request::PlannedSnapshot> snapshots) {
  const int64_t count = sequence.num_rows();
  for (const request::PlannedSnapshot& snapshot : snapshots) {
    const int64_t tokens = snapshot.tokens - sequence.context_tokens;
    if (tokens < 1 || tokens > count) {
      return invalid_argument(fmt::format("wants a snapshot at token {}, the step covers {} to {}",
                                          snapshot.tokens, sequence.context_tokens,
                                          sequence.context_tokens + count));
    }
    if (snapshot.keep_hidden) {
      if (tokens != count || !sequence.drafts.empty()) {
        return invalid_argument(fmt::format(
            "wants the hidden vector of token {} kept, which only the last token of a step has",
            snapshot.tokens));
      }
      kept_hidden_.push_back({.from = sequences_.back().logit_row, .to = snapshot.slot});
    }
    // Only after the draws is it known to which node of a tree the snapshot belongs.
    if (sequences_.back().has_tree && tokens > sequence.num_new_tokens()) continue;
    snapshots_.push_back({.sequence = static_cast<int32_t>(context_lens_.size()) - 1,
                          .num_tokens = static_cast<int32_t>(tokens),
                          .slot = snapshot.slot});
  }
  return {};
}

ops::ForwardContext ForwardBatch::context(const Pools& pools) const {
  ops::ForwardContext context{.query_start = query_start_,
                              .context_lens = context_lens_,
                              .kv_lens = kv_lens_,
                              .page_table_width = sizes_.max_pages_per_sequence,
                              .page_size = sizes_.page_size,
                              .state_slots = state_slots_,
                              .snapshots = snapshots_,
                              .logit_rows = logit_rows_,
                              .tree_starts = has_trees_ ? std::span<const int32_t>(tree_starts_)
                                                        : std::span<const int32_t>(),
                              .tree_masks = has_trees_ ? std::span<const uint64_t>(tree_masks_)
                                                       : std::span<const uint64_t>(),
                              .kv_layers = pools.kv_layers(),
                              .state_layers = pools.state_layers(),
                              .snapshot_layers = pools.snapshot_layers()};
  std::ranges::copy(page_tables_, context.page_tables.begin());
  return context;
}

}  // namespace heddle::runner
