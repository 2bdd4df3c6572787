// SPDX-License-Identifier: Apache-2.0
#include "runner/drafting/draft_maker.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "core/check.h"
#include "runner/runner.h"

namespace heddle::runner {

namespace {

using request::PlannedSequence;
using request::SampledToken;

// Whether the sequence continues after the drawn tokens.
bool goes_on(std::span<const SampledToken> drawn, const request::BatchSlot& slot) {
  return !drawn.empty() && drawn.back().error.ok() &&
         !std::ranges::binary_search(slot.ending_tokens, drawn.back().token);
}

}  // namespace

Result<std::unique_ptr<DraftMaker>> DraftMaker::create(std::unique_ptr<DraftPass> pass,
                                                       ForwardPass& target, int64_t max_pages,
                                                       const speculative::TreeShape& shape) {
  std::unique_ptr<DraftMaker> maker(new DraftMaker(std::move(pass), target, max_pages, shape));
  device::Device& device = target.device();
  const int64_t max_rows = maker->pass_->max_rows();
  const int64_t vocab_size = maker->pass_->vocab_size();
  if (shape.topk == 1) {
    HEDDLE_ASSIGN_OR_RETURN(
        maker->greedy_tokens_,
        GreedyTokens::create(device, target.stream(), shape.num_drafts, max_rows, vocab_size));
    if (!maker->greedy_tokens_->known_at_once()) {
      maker->feed_.emplace(device, kMaxStepsInFlight * int64_t{shape.num_drafts});
      maker->first_feed_.emplace(device, kMaxStepsInFlight);
    }
  } else if (device.kind() != device::DeviceKind::kCpu) {
    HEDDLE_ASSIGN_OR_RETURN(
        maker->trees_, DeviceTrees::create(device, target.stream(), shape, max_rows, vocab_size));
    maker->feed_.emplace(device, kMaxStepsInFlight * int64_t{shape.num_steps});
  }
  return maker;
}

DraftMaker::DraftMaker(std::unique_ptr<DraftPass> pass, ForwardPass& target, int64_t max_pages,
                       const speculative::TreeShape& shape)
    : pass_(std::move(pass)), target_(&target), max_pages_(max_pages), shape_(shape) {
  const auto max_rows = static_cast<size_t>(pass_->max_rows());
  streams_.resize(max_rows / static_cast<size_t>(shape_.topk));
  page_table_.resize(max_rows * static_cast<size_t>(max_pages));
}

Status DraftMaker::begin(const DraftedStep& step) {
  begun_ = !step.batch.empty() && step.plan.computes_draft_slots;
  if (!begun_) return {};
  missing_ = nullptr;
  lay_out_first(step);
  return enqueue_first(step.batch, step.pools, nullptr);
}

Status DraftMaker::begin_ahead(const DraftedStep& step, const int32_t* drawn,
                               const int32_t* missing) {
  begun_ = true;
  missing_ = missing;
  lay_out_ahead(step, drawn, missing);
  return enqueue_first(step.batch, step.pools, &*first_feed_);
}

Status DraftMaker::enqueue_first(const ForwardBatch& batch, const Pools& pools, DrawnFeed* feed) {
  ops::ForwardContext forward = batch.context(pools);
  page_size_ = forward.page_size;
  forward.kv_layers = pools.draft_kv_layers();
  forward.state_layers = {};
  forward.snapshot_layers = {};
  forward.snapshots = {};
  forward.logit_rows = logit_rows_;
  HEDDLE_RETURN_IF_ERROR(pass_->enqueue_first(ids_, batch.positions(), forward, feed));
  warmed_up_ = pass_->warmed_up();
  return {};
}

Status DraftMaker::go_on(const Pools& pools) {
  if (!begun_) return {};
  const ops::ForwardContext forward{.page_size = page_size_, .kv_layers = pools.draft_kv_layers()};
  if (shape_.topk == 1) return make_chains(forward);
  return trees_ ? make_trees_on_device(forward) : make_trees(forward);
}

Status DraftMaker::finish(const DraftedStep& step, KeptDrafts& kept, request::StepOutput& output) {
  const bool begun = std::exchange(begun_, false);
  // After a failed step streams of that step may be left, although this one has none.
  if (!begun || !step.plan.computes_draft_slots) return {};
  output.warms_up |= warmed_up_;
  for (Stream& stream : std::span(streams_).first(num_streams_)) {
    const std::span<const SampledToken> drawn = step.drawn(*stream.sequence);
    if (goes_on(drawn, *stream.sequence->slot)) finish(stream, kept, output);
  }
  return {};
}

void DraftMaker::finish(Stream& stream, KeptDrafts& kept, request::StepOutput& output) {
  const PlannedSequence& sequence = *stream.sequence->planned;
  drafts_.clear();
  const bool known = shape_.topk > 1 || !feed_ || !may_keep_;
  if (trees_) {
    trees_->drafts(static_cast<size_t>(&stream - streams_.data()), drafts_);
  } else if (shape_.topk > 1) {
    stream.growth.select(sequence.wanted_drafts, drafts_);
  } else if (known) {
    std::ranges::transform(
        stream.places, std::back_inserter(drafts_.tokens),
        [this](int32_t place) { return as_draft(greedy_tokens_->token(place)); });
  } else {
    kept.keep_places(sequence.batch_slot, sequence.sequence_id, stream.places,
                     greedy_tokens_->table());
    drafts_.tokens.resize(stream.places.size());
  }
  if (may_keep_ && known) kept.keep(sequence.batch_slot, sequence.sequence_id, drafts_.tokens);
  for (size_t i = 0; i < drafts_.tokens.size(); ++i) {
    const bool chain = drafts_.parents.empty();
    output.drafts.push_back({.sequence_id = sequence.sequence_id,
                             .token = may_keep_ ? request::kKeptDraft : drafts_.tokens[i],
                             .parent = chain ? static_cast<int32_t>(i) - 1 : drafts_.parents[i]});
  }
}

void DraftMaker::read_back(KeptDrafts& kept) const {
  kept.read_back([this](int32_t place, int32_t table) {
    return as_draft(greedy_tokens_->token(place, table));
  });
}

// The network's slot for a token reads the token after it, so the ids are shifted by one.
void DraftMaker::begin_first(const ForwardBatch& batch) {
  ids_.assign(batch.ids().begin() + 1, batch.ids().end());
  ids_.push_back(0);
  logit_rows_.clear();
  going_on_.clear();
  num_streams_ = 0;
  may_keep_ = true;
}

bool DraftMaker::drafts_behind(const StepSequence& sequence) const {
  return sequence.planned->wanted_drafts > 0 && num_streams_ < streams_.size();
}

// Adds a sequence that gets drafts. They follow the token drawn from `row`.
DraftMaker::Stream& DraftMaker::add_stream(const StepSequence& sequence, int64_t row) {
  Stream& stream = streams_[num_streams_];
  stream.sequence = &sequence;
  stream.row = static_cast<int32_t>(num_streams_);
  stream.missing_of = ops::FedRow::kNothing;
  stream.places.clear();
  may_keep_ &= sequence.planned->may_keep_drafts;
  going_on_.push_back(num_streams_++);
  logit_rows_.push_back(static_cast<int32_t>(row));
  return stream;
}

void DraftMaker::lay_out_first(const DraftedStep& step) {
  begin_first(step.batch);
  for (const StepSequence& sequence : step.sequences) {
    if (!sequence.is_computed()) continue;
    const PlannedSequence& planned = *sequence.planned;
    const int32_t last_new = sequence.last_new_row();
    if (!planned.sample) {
      ids_[static_cast<size_t>(last_new)] = planned.next_token;
      continue;
    }
    const std::span<const SampledToken> drawn = step.drawn(sequence);
    const std::span<const int32_t> path = step.path(sequence);
    if (drawn.empty()) continue;  // the device found that the sequence had ended
    HEDDLE_CHECK_EQ(path.size(), drawn.size());
    for (size_t j = 0; j < drawn.size(); ++j) {
      ids_[static_cast<size_t>(last_new + path[j])] = drawn[j].error.ok() ? drawn[j].token : 0;
    }
    // Rows of rejected drafts may read any token.
    const int32_t row = last_new + path.back();
    const int32_t last_row = last_new + planned.drafts.count;
    if (row < last_row) ids_[static_cast<size_t>(last_row)] = 0;
    if (!drafts_behind(sequence) || !goes_on(drawn, *sequence.slot)) continue;
    add_stream(sequence, row).position = sequence.draw_position() + std::ssize(drawn) - 2;
  }
}

// Lays the step out before the host knows its draws. Includes sequences that the step may turn out
// to have ended.
void DraftMaker::lay_out_ahead(const DraftedStep& step, const int32_t* drawn,
                               const int32_t* missing) {
  begin_first(step.batch);
  first_feed_->begin(/*num_logit_rows=*/0, drawn, /*drawn_ids=*/nullptr, missing);
  int32_t num_drawing = 0;
  for (const StepSequence& sequence : step.sequences) {
    if (!sequence.is_computed()) continue;
    const PlannedSequence& planned = *sequence.planned;
    const int32_t last_new = sequence.last_new_row();
    if (!planned.sample) {
      ids_[static_cast<size_t>(last_new)] = planned.next_token;
      continue;
    }
    const int32_t num_drafts = planned.drafts.count;
    for (int32_t j = 0; j <= num_drafts; ++j) {
      first_feed_->add(
          {.row = last_new + j, .sequence = ops::FedRow::kIdAlone, .from = sequence.logit_row + j},
          {});
    }
    const int32_t drawing = num_drawing++;
    if (!drafts_behind(sequence)) continue;
    Stream& stream = add_stream(sequence, last_new + num_drafts);
    stream.position = sequence.draw_position() + num_drafts - 1;
    stream.missing_of = drawing;
    first_feed_->add({.row = stream.row, .sequence = ops::FedRow::kWanted, .missing_of = drawing},
                     {});
  }
}

Status DraftMaker::make_chains(const ops::ForwardContext& forward) {
  greedy_tokens_->begin();
  while (!going_on_.empty()) {
    if (greedy_tokens_->num_steps() > 0) {
      HEDDLE_RETURN_IF_ERROR(enqueue_next(forward, feed_ ? &*feed_ : nullptr));
    }
    HEDDLE_RETURN_IF_ERROR(greedy_tokens_->choose(target_->context(), target_->stream(),
                                                  pass_->logits(), std::ssize(going_on_)));
    lay_out_next(forward.page_size);
  }
  HEDDLE_RETURN_IF_ERROR(greedy_tokens_->fetch(target_->stream()));
  return may_keep_ ? Status() : target_->stream().synchronize();
}

// If the network's logits were not numbers, token 0 is the draft, on the device as well.
TokenId DraftMaker::as_draft(TokenId chosen) const {
  return chosen == sampling::kNoToken ? 0 : pass_->target_id(chosen);
}

Status DraftMaker::make_trees(const ops::ForwardContext& forward) {
  if (going_on_.empty()) return {};
  HEDDLE_RETURN_IF_ERROR(find_candidates(std::ssize(going_on_)));
  for (const size_t index : going_on_) {
    Stream& stream = streams_[index];
    stream.growth.begin(candidates_of(stream.row, 1));
    stream.masks.assign(static_cast<size_t>(shape_.topk), 0);
  }
  for (int32_t level = 0; level + 1 < shape_.num_steps; ++level) {
    lay_out_level(level, forward.page_size);
    if (going_on_.empty()) break;
    HEDDLE_RETURN_IF_ERROR(enqueue_next(forward, nullptr));
    HEDDLE_RETURN_IF_ERROR(find_candidates(std::ssize(ids_)));
    for (const size_t index : going_on_) {
      Stream& stream = streams_[index];
      stream.growth.add_level(candidates_of(stream.row, static_cast<size_t>(shape_.topk)));
    }
  }
  return {};
}

// make_trees() without the host: the host decides the branches' positions, the device their tokens.
Status DraftMaker::make_trees_on_device(const ops::ForwardContext& forward) {
  if (going_on_.empty()) return {};
  trees_->begin();
  for (int64_t num_rows = std::ssize(going_on_); num_rows > 0;) {
    grown_.clear();
    for (const size_t index : going_on_) {
      const auto tree = static_cast<int32_t>(index);
      grown_.push_back({.tree = tree, .row = streams_[index].row});
      streams_[index].num_levels = trees_->num_levels() + 1;
    }
    const int32_t level = trees_->num_levels();
    if (level + 1 < shape_.num_steps) {
      lay_out_level(level, forward.page_size);
    } else {
      going_on_.clear();
    }
    auto grown = grown_.begin();
    for (const size_t index : going_on_) {  // some of the sequences in grown_, in the same order
      while (grown->tree != static_cast<int32_t>(index)) ++grown;
      grown->next_row = streams_[index].row;
    }
    HEDDLE_RETURN_IF_ERROR(trees_->grow(target_->context(), target_->stream(), pass_->logits(),
                                        num_rows, grown_, pass_->device_target_ids()));
    num_rows = going_on_.empty() ? 0 : std::ssize(ids_);
    if (num_rows == 0) break;
    feed_->begin(/*num_logit_rows=*/0, trees_->ids(), nullptr, nullptr, trees_->masks());
    for (int32_t row = 0; row < num_rows; ++row) {
      feed_->add({.row = row, .sequence = ops::FedRow::kIdAlone, .from = row}, {});
    }
    HEDDLE_RETURN_IF_ERROR(
        pass_->enqueue_next(ids_, positions_, laid_out(forward), trees_->parent_rows(), &*feed_));
    warmed_up_ |= pass_->warmed_up();
  }
  selected_.clear();
  for (size_t i = 0; i < num_streams_; ++i) {
    selected_.push_back({.tree = static_cast<int32_t>(i),
                         .num_levels = streams_[i].num_levels,
                         .wanted = streams_[i].sequence->planned->wanted_drafts});
  }
  HEDDLE_RETURN_IF_ERROR(trees_->select(target_->context(), target_->stream(), selected_));
  return target_->stream().synchronize();
}

void DraftMaker::begin_layout() {
  ids_.clear();
  positions_.clear();
  logit_rows_.clear();
  rows_.clear();
  context_lens_.clear();
  tree_starts_.clear();
  tree_masks_.clear();
  query_start_.assign(1, 0);
}

// Adds the pages of the next sequence of the layout. Returns false if they have no room for slots
// up to `end`.
bool DraftMaker::add_pages(const Stream& stream, int64_t end, int32_t page_size) {
  const std::vector<int32_t>& pages = stream.sequence->slot->pages[0].ids;
  if (end > std::min(std::ssize(pages), max_pages_) * page_size) return false;
  std::copy_n(pages.begin(), (end + page_size - 1) / page_size,
              page_table_.begin() + std::ssize(context_lens_) * max_pages_);
  return true;
}

// Called after the choices of a step: records them, and lays out one slot for each stream that
// wants another draft and has a page for it. If only the device knows the chosen tokens, it
// supplies the ids; a stream without a choice becomes padding there.
void DraftMaker::lay_out_next(int32_t page_size) {
  begin_layout();
  if (feed_) {
    feed_->begin(std::ssize(going_on_), greedy_tokens_->last_drawn(), pass_->device_target_ids(),
                 missing_);
  }
  size_t count = 0;
  for (const size_t index : going_on_) {
    Stream& stream = streams_[index];
    const int32_t place = greedy_tokens_->place(greedy_tokens_->num_steps() - 1, stream.row);
    stream.places.push_back(place);
    const int64_t position = stream.position + 1;
    if (std::ssize(stream.places) == stream.sequence->planned->wanted_drafts) continue;
    const TokenId id = feed_ ? 0 : as_draft(greedy_tokens_->token(place));
    if (!add_pages(stream, position + 1, page_size)) continue;
    if (feed_) {
      const auto row = static_cast<int32_t>(count);
      feed_->add({.row = row,
                  .sequence = row,
                  .logit_row = row,
                  .from = stream.row,
                  .missing_of = stream.missing_of},
                 {});
    }
    rows_.push_back(stream.row);
    ids_.push_back(id);
    positions_.push_back(static_cast<int32_t>(position));
    context_lens_.push_back(static_cast<int32_t>(position));
    logit_rows_.push_back(static_cast<int32_t>(count));
    stream.row = static_cast<int32_t>(count);
    stream.position = position;
    going_on_[count++] = index;
    query_start_.push_back(static_cast<int32_t>(count));
  }
  going_on_.resize(count);
}

// Lays out the best branches of the last level, in slots after those of earlier levels.
void DraftMaker::lay_out_level(int32_t level, int32_t page_size) {
  begin_layout();
  const int64_t topk = shape_.topk;
  size_t count = 0;
  for (const size_t index : going_on_) {
    Stream& stream = streams_[index];
    const int64_t first = stream.position + 1;  // first position after the text
    if (!add_pages(stream, first + (level + 1) * topk, page_size)) continue;
    const auto first_row = static_cast<int32_t>(ids_.size());
    for (int64_t i = 0; i < topk; ++i) {
      positions_.push_back(static_cast<int32_t>(first + level));
      logit_rows_.push_back(static_cast<int32_t>(logit_rows_.size()));
    }
    if (trees_) {  // the device supplies the ids, and the mask bits of each node's ancestors
      ids_.resize(positions_.size());
      for (int64_t i = 0; i < topk; ++i) tree_masks_.push_back(uint64_t{1} << (level * topk + i));
    } else {
      lay_out_branches(stream, level);
    }
    stream.row = first_row;
    context_lens_.push_back(static_cast<int32_t>(first + level * topk));
    tree_starts_.push_back(static_cast<int32_t>(first));
    query_start_.push_back(static_cast<int32_t>(ids_.size()));
    going_on_[count++] = index;
  }
  going_on_.resize(count);
}

void DraftMaker::lay_out_branches(Stream& stream, int32_t level) {
  next_masks_.clear();
  for (const speculative::TreeGrowth::Branch& branch : stream.growth.branches()) {
    const int64_t node = int64_t{level} * shape_.topk + std::ssize(next_masks_);
    next_masks_.push_back(stream.masks[static_cast<size_t>(branch.from)] | uint64_t{1} << node);
    rows_.push_back(stream.row + branch.from);
    ids_.push_back(branch.token);
  }
  tree_masks_.insert(tree_masks_.end(), next_masks_.begin(), next_masks_.end());
  stream.masks = next_masks_;
}

ops::ForwardContext DraftMaker::laid_out(const ops::ForwardContext& forward) const {
  return {.query_start = query_start_,
          .context_lens = context_lens_,
          .page_tables = {page_table_},
          .page_table_width = max_pages_,
          .page_size = forward.page_size,
          .logit_rows = logit_rows_,
          .tree_starts = tree_starts_,
          .tree_masks = tree_masks_,
          .kv_layers = forward.kv_layers};
}

Status DraftMaker::enqueue_next(const ops::ForwardContext& forward, DrawnFeed* feed) {
  HEDDLE_RETURN_IF_ERROR(pass_->enqueue_next(ids_, positions_, laid_out(forward), rows_, feed));
  warmed_up_ |= pass_->warmed_up();
  return {};
}

// Finds the most likely tokens for each row of the network's last step, whose logits the host
// reads.
Status DraftMaker::find_candidates(int64_t num_rows) {
  const MutableTensorView logits = pass_->logits();
  const auto vocab_size = static_cast<size_t>(pass_->vocab_size());
  HEDDLE_RETURN_IF_ERROR(target_->stream().synchronize());
  candidates_.clear();
  for (int64_t row = 0; row < num_rows; ++row) {
    of_row_.clear();
    speculative::most_probable({logits.row<float>(row), vocab_size}, shape_.topk, of_row_);
    // If there are no likely tokens, the probability is NaN and nothing follows.
    of_row_.resize(static_cast<size_t>(shape_.topk),
                   {.token = 0, .probability = std::numeric_limits<float>::quiet_NaN()});
    for (const speculative::Candidate& candidate : of_row_) {
      candidates_.push_back(
          {.token = pass_->target_id(candidate.token), .probability = candidate.probability});
    }
  }
  return {};
}

std::span<const speculative::Candidate> DraftMaker::candidates_of(int32_t row,
                                                                  size_t num_rows) const {
  const auto topk = static_cast<size_t>(shape_.topk);
  return std::span(candidates_).subspan(static_cast<size_t>(row) * topk, num_rows * topk);
}

}  // namespace heddle::runner
