// SPDX-License-Identifier: Apache-2.0
#include "verify/watched_runner.h"

#include <limits>
#include <utility>

#include "core/check.h"

namespace heddle::verify {

using Part = runner::StepSequence::Part;

Result<std::unique_ptr<WatchedRunner>> WatchedRunner::create(runner::ForwardPass& pass,
                                                             const Options& options, Watch watch) {
  HEDDLE_CHECK_GE(pass.max_logit_rows(), pass.max_step_tokens());
  const models::CacheNeeds needs = pass.cache_needs();
  const bool has_states = !needs.state_layers.empty();
  const auto pages_for = [&](int64_t tokens) {
    return (tokens + options.page_size - 1) / options.page_size;
  };
  const int64_t num_slots = has_states ? options.num_sequences + options.num_cached_states : 0;
  std::vector<cache::PageWindow> windows;
  if (options.slides_apart) {
    for (const int64_t tokens :
         runner::windows_of_tables(needs, std::numeric_limits<int64_t>::max())) {
      cache::PageWindow& window = windows.emplace_back();
      window.window = tokens;
      window.num_pages = options.num_sequences * window.per_sequence(options.page_size) +
                         pages_for(options.num_cached_window_tokens);
    }
  }
  const runner::PoolSizes sizes{.num_pages = options.num_sequences * pages_for(options.max_tokens) +
                                             pages_for(options.num_cached_tokens),
                                .page_size = options.page_size,
                                .num_state_slots = num_slots,
                                .max_sequences = options.num_sequences,
                                .kv_window = runner::common_window(needs),
                                .windows = std::move(windows),
                                .flops = pass.prefill_flops(),
                                .keeps_hidden = has_states};
  std::vector<runner::Pools> pools;
  for (int64_t rank = 0; rank < pass.num_ranks(); ++rank) {
    runner::ForwardPass& own = pass.of_rank(rank);
    HEDDLE_ASSIGN_OR_RETURN(
        runner::Pools made,
        runner::Pools::create(own.device(), own.cache_needs(),
                              {.sizes = sizes,
                               .kv_dtype = own.kv_dtype(),
                               .kv_scales = own.kv_scales(),
                               .hidden_width = has_states ? own.config().hidden_size : int64_t{0},
                               .hidden_dtype = own.activations()}));
    pools.push_back(std::move(made));
  }
  return std::unique_ptr<WatchedRunner>(
      new WatchedRunner(pass, std::move(pools), sizes, options.max_tokens, std::move(watch)));
}

WatchedRunner::WatchedRunner(runner::ForwardPass& pass, std::vector<runner::Pools> pools,
                             const runner::PoolSizes& sizes, int64_t max_tokens, Watch watch)
    : sizes_(sizes),
      limits_{.max_tokens = pass.max_step_tokens(),
              .short_rope_tokens = checkpoint::short_rope_tokens(pass.config().rope)},
      executor_(pass, std::move(pools.front()), sizes, limits_, max_tokens,
                runner::LogitRows::kAll),
      others_(pass, std::move(pools), sizes, limits_, max_tokens, runner::LogitRows::kAll),
      watch_(std::move(watch)) {}

Status WatchedRunner::submit(const request::BatchPlan& plan) {
  HEDDLE_CHECK_LT(outputs_.size(), static_cast<size_t>(runner::kMaxStepsInFlight));
  request::StepOutput output;
  const Status status = others_.run(executor_, plan, output);
  if (!status.ok()) {
    outputs_.emplace_back(status);
    return {};
  }
  int64_t next_row = 0;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const runner::StepSequence& batched = executor_.sequences()[i];
    const bool computed = batched.part == Part::kComputed;
    const request::PlannedSequence& sequence = plan.sequences[i];
    watch_(sequence, plan.new_tokens(sequence), batched, computed ? next_row : batched.logit_row);
    if (computed) next_row += sequence.num_rows();
  }
  outputs_.emplace_back(std::move(output));
  return {};
}

Result<request::StepOutput> WatchedRunner::wait() {
  HEDDLE_CHECK(!outputs_.empty());
  Result<request::StepOutput> output = std::move(outputs_.front());
  outputs_.pop_front();
  return output;
}

}  // namespace heddle::verify
