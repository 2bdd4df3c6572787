// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench_sequences.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace heddle::tools {

Result<BenchSequences> BenchSequences::create(runner::ForwardPass& pass, const Options& options) {
  constexpr int32_t kPageSize = 16;
  const models::CacheNeeds needs = pass.cache_needs();
  const bool has_states = !needs.state_layers.empty();
  const int64_t pages = (options.max_tokens + kPageSize - 1) / kPageSize;
  const runner::PoolSizes sizes{.num_pages = pages * options.num_sequences,
                                .page_size = kPageSize,
                                .num_state_slots = has_states ? options.num_sequences : 0,
                                .max_sequences = static_cast<int32_t>(options.num_sequences)};
  const request::StepLimits limits{
      .max_tokens = pass.max_step_tokens(),
      .max_draft_rows =
          options.num_drafts > 0 ? options.num_sequences * (options.num_drafts + 1) : 0};
  std::vector<runner::Pools> pools;
  for (int64_t rank = 0; rank < pass.num_ranks(); ++rank) {
    runner::ForwardPass& own = pass.of_rank(rank);
    HEDDLE_ASSIGN_OR_RETURN(runner::Pools made,
                            runner::Pools::create(own.device(), needs,
                                                  {.sizes = sizes,
                                                   .num_draft_slots = limits.max_draft_rows,
                                                   .kv_dtype = own.kv_dtype(),
                                                   .kv_scales = own.kv_scales()}));
    pools.push_back(std::move(made));
  }
  auto executor = std::make_unique<runner::StepExecutor>(pass, std::move(pools.front()), sizes,
                                                         limits, options.max_tokens);
  HEDDLE_RETURN_IF_ERROR(executor->prepare());
  runner::FollowingRanks others(pass, std::move(pools), sizes, limits, options.max_tokens,
                                runner::LogitRows::kSampled);
  HEDDLE_RETURN_IF_ERROR(others.prepare());
  return BenchSequences(options, std::move(executor), std::move(others), has_states, pages);
}

BenchSequences::BenchSequences(const Options& options,
                               std::unique_ptr<runner::StepExecutor> executor,
                               runner::FollowingRanks others, bool has_states,
                               int64_t pages_per_sequence)
    : executor_(std::move(executor)),
      others_(std::move(others)),
      has_states_(has_states),
      pages_per_sequence_(pages_per_sequence),
      pages_(static_cast<size_t>(pages_per_sequence)),
      lengths_(static_cast<size_t>(options.num_sequences), 0) {
  for (request::BatchPlan& plan : plans_) plan.reserve(options.num_sequences);
}

void BenchSequences::start(request::BatchPlan& plan, int32_t slot) {
  std::iota(pages_.begin(), pages_.end(), static_cast<int32_t>(1 + slot * pages_per_sequence_));
  SamplingParams greedy;
  greedy.temperature = 0;
  plan.starts.push_back({.sequence_id = slot, .batch_slot = slot, .sampling = std::move(greedy)});
  plan.page_updates.push_back({.batch_slot = slot, .pages = plan.add_pages(pages_)});
  if (has_states_) plan.add_move({.kind = request::MoveKind::kZero, .to = slot + 1});
}

void BenchSequences::plan_step(request::BatchPlan& plan, std::span<const Feed> feeds) {
  plan.clear();
  for (const Feed& feed : feeds) {
    const auto slot = static_cast<int32_t>(feed.sequence);
    int64_t& length = lengths_[static_cast<size_t>(slot)];
    if (length == 0) start(plan, slot);
    plan.sequences.push_back({.sequence_id = feed.sequence,
                              .batch_slot = slot,
                              .new_tokens = plan.add_tokens(feed.tokens),
                              .drafts = plan.add_tokens(feed.drafts),
                              .context_tokens = length,
                              .state_slot = has_states_ ? slot + 1 : 0,
                              .sample = feed.draws});
    length += std::ssize(feed.tokens);
  }
}

Status BenchSequences::step(std::span<const Feed> feeds) {
  const bool has_drafts =
      begun_ != nullptr && std::ranges::any_of(begun_->sequences, [](const auto& sequence) {
        return !sequence.drafts.empty();
      });
  // The accepted drafts of this step determine the lengths of the sequences.
  if (has_drafts) HEDDLE_RETURN_IF_ERROR(finish());
  request::BatchPlan& plan = plans_[next_plan_];
  next_plan_ = (next_plan_ + 1) % plans_.size();
  plan_step(plan, feeds);
  if (!others_.empty()) {
    output_.tokens.clear();
    HEDDLE_RETURN_IF_ERROR(others_.run(*executor_, plan, output_));
    take_accepted(plan);
    return {};
  }
  const bool behind = begun_ != nullptr && executor_->can_begin_behind(plan);
  if (!behind) HEDDLE_RETURN_IF_ERROR(finish());
  HEDDLE_RETURN_IF_ERROR(executor_->begin(plan));
  if (behind) HEDDLE_RETURN_IF_ERROR(finish());
  begun_ = &plan;
  return {};
}

Status BenchSequences::finish() {
  const request::BatchPlan* plan = std::exchange(begun_, nullptr);
  if (plan == nullptr) return {};
  output_.tokens.clear();
  HEDDLE_RETURN_IF_ERROR(executor_->finish(output_));
  take_accepted(*plan);
  return {};
}

void BenchSequences::take_accepted(const request::BatchPlan& plan) {
  request::SpanReader<const request::SampledToken> spans(output_.tokens);
  for (const request::PlannedSequence& sequence : plan.sequences) {
    if (!sequence.sample) continue;
    const auto accepted = std::ssize(spans.next(sequence.sequence_id)) - 1;
    lengths_[static_cast<size_t>(sequence.batch_slot)] += accepted;
  }
}

}  // namespace heddle::tools
