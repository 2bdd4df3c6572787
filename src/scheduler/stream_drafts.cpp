// SPDX-License-Identifier: Apache-2.0
#include "scheduler/stream_drafts.h"

#include <algorithm>
#include <limits>

#include "core/check.h"

namespace heddle::scheduler {

bool StreamDrafts::serves(size_t num_streams) const {
  return (drafter_ != nullptr || options_.max_made > 0) && num_streams > 0 &&
         2 * static_cast<int64_t>(num_streams) <= options_.max_rows;
}

void StreamDrafts::clear_proposals() {
  ranges_.clear();
  parent_ranges_.clear();
  tokens_.clear();
  parents_.clear();
  weighed_.clear();
}

void StreamDrafts::collect(std::span<RunningSequence* const> streams, bool in_flight_too) {
  clear_proposals();
  for (const RunningSequence* running : streams) {
    request::PlanRange& range = ranges_.emplace_back();
    request::PlanRange& parent_range = parent_ranges_.emplace_back();
    range.begin = static_cast<int32_t>(tokens_.size());
    parent_range.begin = static_cast<int32_t>(parents_.size());
    weighed_.push_back({.num_drafts = 0, .trend = running->acceptance_trend.value()});
    const request::Sequence& sequence = *running->sequence;
    // The last token of a sequence is drawn and never computed, so it needs no KV entry.
    const int64_t stored = running->num_planned + 1;
    const int64_t most = std::min(options_.max_drafts, sequence.max_stored_tokens() - stored);
    const bool known = running->draws_in_flight == 0 || in_flight_too;
    if (most <= 0 || !known) continue;
    if (options_.max_made > 0) {
      // Keeps the first drafts: parents come before their children.
      proposed_ = running->made_drafts;
      const auto count = std::min(std::ssize(proposed_.tokens), most);
      proposed_.tokens.resize(static_cast<size_t>(count));
      if (!proposed_.parents.empty()) proposed_.parents.resize(static_cast<size_t>(count));
    } else {
      proposed_.clear();
      drafter_->observe(sequence);
      drafter_->propose(sequence, most, proposed_);
    }
    HEDDLE_CHECK_LE(std::ssize(proposed_.tokens), most);
    tokens_.insert(tokens_.end(), proposed_.tokens.begin(), proposed_.tokens.end());
    range.count = static_cast<int32_t>(proposed_.tokens.size());
    if (!speculative::is_chain(proposed_.parents)) {
      HEDDLE_CHECK_EQ(proposed_.parents.size(), proposed_.tokens.size());
      parents_.insert(parents_.end(), proposed_.parents.begin(), proposed_.parents.end());
      parent_range.count = range.count;
    }
    weighed_.back().num_drafts = range.count;
  }
}

int64_t StreamDrafts::depth() const {
  if (tokens_.empty()) return 0;
  if (!options_.adapts) return std::numeric_limits<int64_t>::max();
  if (options_.max_made == 0 && !cost_->may_draft(std::ssize(weighed_))) return 0;
  return cost_->best_depth(weighed_, *odds_, options_.max_rows, last_depth_);
}

int64_t StreamDrafts::wanted_depth() const {
  if (!options_.adapts) return options_.max_made;
  if (!cost_->may_draft(std::ssize(weighed_))) return 0;
  return cost_->best_depth(weighed_, *odds_, options_.max_rows, last_depth_);
}

void StreamDrafts::propose(std::span<RunningSequence* const> streams, int64_t most_rows) {
  wanted_.clear();
  forced_.assign(streams.size(), 0);
  const bool has_drafter = serves(streams.size());
  int64_t deepest = 0;
  if (has_drafter) {
    collect(streams, /*in_flight_too=*/false);
    deepest = depth();
  } else {
    clear_proposals();
    ranges_.resize(streams.size());
    parent_ranges_.resize(streams.size());
  }
  if (options_.max_made == 0 || !has_drafter) last_depth_ = deepest;
  int64_t rows = options_.max_rows;  // rows left for sequences with drafts, each including the row
                                     // before its drafts
  for (size_t i = 0; i < streams.size(); ++i) {
    const int64_t most = std::min(most_rows, std::max<int64_t>(rows - 1, 0));
    request::PlanRange& range = ranges_[i];
    range.count = static_cast<int32_t>(std::min({int64_t{range.count}, deepest, most}));
    if (streams[i]->sequence->constraint != nullptr) force(*streams[i], i, most);
    if (range.count == 0) continue;
    rows -= range.count + 1;
    most_rows -= range.count;
  }
  if (has_drafter && options_.max_made > 0) want(streams);
}

void StreamDrafts::force(const RunningSequence& running, size_t stream, int64_t most_rows) {
  const request::Sequence& sequence = *running.sequence;
  if (running.draws_in_flight > 0) return;
  const int64_t stored = running.num_planned + 1;
  const int64_t most =
      std::min({running.most_forced, most_rows, sequence.max_stored_tokens() - stored});
  if (most <= 0) return;
  const size_t begin = tokens_.size();
  sequence.constraint->forced_tokens(most, tokens_);
  const auto forced = std::span<const TokenId>(tokens_).subspan(begin);
  HEDDLE_CHECK_LE(std::ssize(forced), most);
  if (forced.empty()) return;
  const auto drafts = of(stream);
  if (parents_of(stream).empty() && drafts.size() >= forced.size() &&
      std::ranges::equal(forced, drafts.first(forced.size()))) {
    tokens_.resize(begin);
    return;
  }
  ranges_[stream] = {.begin = static_cast<int32_t>(begin),
                     .count = static_cast<int32_t>(forced.size())};
  parent_ranges_[stream] = {};
  forced_[stream] = 1;
}

// Sets wanted_: as many drafts as save time if every stream has as many as allowed. The branches of
// a tree are rows of the draft network, too.
void StreamDrafts::want(std::span<RunningSequence* const> streams) {
  weigh_wanted(streams);
  last_depth_ = wanted_depth();
  int64_t rows = options_.max_rows;
  for (const speculative::DraftCost::Stream& stream : weighed_) {
    const int64_t count =
        rows < options_.topk
            ? 0
            : std::min({stream.num_drafts, last_depth_, std::max<int64_t>(rows - 1, 0)});
    wanted_.push_back(count);
    if (count > 0) rows -= std::max(count + 1, options_.topk);
  }
}

void StreamDrafts::weigh_wanted(std::span<RunningSequence* const> streams) {
  weighed_.clear();
  for (const RunningSequence* running : streams) {
    const request::Sequence& sequence = *running->sequence;
    // The drafts come after the next token and the token that is drawn after it.
    const int64_t room = sequence.max_stored_tokens() - (running->num_planned + 2);
    const int64_t most = std::min({options_.max_drafts, options_.max_made, room});
    weighed_.push_back(
        {.num_drafts = std::max<int64_t>(most, 0), .trend = running->acceptance_trend.value()});
  }
}

int64_t StreamDrafts::wanted(size_t stream) const {
  return stream < wanted_.size() ? wanted_[stream] : 0;
}

// Weighs one more stream, whose acceptance is not known yet.
void StreamDrafts::weigh_prompt() {
  weighed_.push_back({.num_drafts = std::min(options_.max_drafts, options_.max_made), .trend = 1});
}

int64_t StreamDrafts::wanted_behind_prompts(std::span<RunningSequence* const> streams) {
  if (options_.max_made == 0 || !serves(streams.size() + 1)) return 0;
  weigh_wanted(streams);
  weigh_prompt();
  return std::min(weighed_.back().num_drafts, wanted_depth());
}

bool StreamDrafts::follows_prompts(std::span<RunningSequence* const> streams) {
  if (options_.max_made == 0 || !serves(streams.size() + 1)) return false;
  if (!options_.adapts) return true;
  weigh_wanted(streams);
  weigh_prompt();
  return cost_->plain_seconds(std::ssize(weighed_)) == 0 ||
         cost_->best_depth(weighed_, *odds_, options_.max_rows) > 0;
}

std::span<const TokenId> StreamDrafts::of(size_t stream) const {
  if (stream >= ranges_.size()) return {};
  return std::span(tokens_).subspan(static_cast<size_t>(ranges_[stream].begin),
                                    static_cast<size_t>(ranges_[stream].count));
}

std::span<const int32_t> StreamDrafts::parents_of(size_t stream) const {
  if (stream >= parent_ranges_.size()) return {};
  return std::span(parents_).subspan(static_cast<size_t>(parent_ranges_[stream].begin),
                                     static_cast<size_t>(parent_ranges_[stream].count));
}

bool StreamDrafts::waits_for(std::span<RunningSequence* const> running) {
  if (drafter_ == nullptr && options_.max_made == 0) return false;
  streams_.clear();
  for (RunningSequence* one : running) {
    const bool drafts_in_flight = one->drafts_in_flight > 0 && !one->forced_in_flight;
    if (drafts_in_flight || one->made_in_flight) return true;
    if (one->can_decode()) streams_.push_back(one);
  }
  if (options_.max_made > 0 || !serves(streams_.size())) return false;
  if (std::ranges::none_of(streams_, [](const auto* one) { return one->draws_in_flight > 0; })) {
    return false;
  }
  collect(streams_, /*in_flight_too=*/true);
  return depth() > 0;
}

void StreamDrafts::ended(const request::Sequence& sequence) {
  if (drafter_ == nullptr) return;
  drafter_->observe(sequence);
  drafter_->forget(sequence);
}

}  // namespace heddle::scheduler
