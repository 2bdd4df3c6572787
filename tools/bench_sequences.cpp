// SPDX-License-Identifier: Apache-2.0
#include "bench_sequences.h"

#include <numeric>
#include <utility>

namespace heddle::tools {

Result<BenchSequences> BenchSequences::create(runner::ForwardPass& pass, const Options& options) {
  constexpr int32_t kPageSize = 16;
  const models::CacheNeeds needs = pass.cache_needs();
  const bool has_states = needs.num_state_layers > 0;
  const int64_t pages = (options.max_tokens + kPageSize - 1) / kPageSize;
  const runner::PoolSizes sizes{
      .num_pages = pages * options.num_sequences,
      .page_size = kPageSize,
      .num_state_slots = has_states ? options.num_sequences : 0,
      .max_step_tokens = pass.max_step_tokens(),
      .max_step_sequences = static_cast<int32_t>(options.num_sequences),
      .max_draft_rows =
          options.num_drafts > 0 ? options.num_sequences * (options.num_drafts + 1) : 0};
  HEDDLE_ASSIGN_OR_RETURN(
      runner::Pools pools,
      runner::Pools::create(
          pass.device(), needs,
          {.sizes = sizes, .kv_dtype = pass.kv_dtype(), .kv_scales = pass.kv_scales()}));
  auto executor =
      std::make_unique<runner::StepExecutor>(pass, std::move(pools), sizes, options.max_tokens);
  HEDDLE_RETURN_IF_ERROR(executor->prepare());
  return BenchSequences(options, std::move(executor), has_states, pages);
}

BenchSequences::BenchSequences(const Options& options,
                               std::unique_ptr<runner::StepExecutor> executor, bool has_states,
                               int64_t pages_per_sequence)
    : executor_(std::move(executor)),
      has_states_(has_states),
      pages_per_sequence_(pages_per_sequence),
      pages_(static_cast<size_t>(pages_per_sequence)),
      lengths_(static_cast<size_t>(options.num_sequences), 0) {
  plan_.reserve(options.num_sequences);
}

void BenchSequences::start(int32_t slot) {
  std::iota(pages_.begin(), pages_.end(), static_cast<int32_t>(1 + slot * pages_per_sequence_));
  SamplingParams greedy;
  greedy.temperature = 0;
  plan_.starts.push_back({.sequence_id = slot, .batch_slot = slot, .sampling = std::move(greedy)});
  plan_.page_updates.push_back({.batch_slot = slot, .pages = plan_.add_pages(pages_)});
  if (has_states_) plan_.zero_state_slots.push_back(slot + 1);
}

Status BenchSequences::step(std::span<const Feed> feeds) {
  plan_.clear();
  output_.tokens.clear();
  for (const Feed& feed : feeds) {
    const auto slot = static_cast<int32_t>(feed.sequence);
    const int64_t length = lengths_[static_cast<size_t>(slot)];
    if (length == 0) start(slot);
    plan_.sequences.push_back({.sequence_id = feed.sequence,
                               .batch_slot = slot,
                               .new_tokens = plan_.add_tokens(feed.tokens),
                               .drafts = plan_.add_tokens(feed.drafts),
                               .context_tokens = length,
                               .state_slot = has_states_ ? slot + 1 : 0,
                               .sample = feed.draws});
  }
  HEDDLE_RETURN_IF_ERROR(executor_->run(plan_, output_));
  request::SpanReader<const request::SampledToken> spans(output_.tokens);
  for (const Feed& feed : feeds) {
    int64_t& length = lengths_[static_cast<size_t>(feed.sequence)];
    length += std::ssize(feed.tokens);
    if (feed.draws) length += std::ssize(spans.next(feed.sequence)) - 1;
  }
  return {};
}

}  // namespace heddle::tools
