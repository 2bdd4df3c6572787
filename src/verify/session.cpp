// SPDX-License-Identifier: Apache-2.0
#include "verify/session.h"

#include <utility>

namespace heddle::verify {

Result<Session> Session::create(runner::ForwardPass& pass, const Options& options) {
  const int64_t pages = (options.max_tokens + options.page_size - 1) / options.page_size;
  std::vector<Own> ranks;
  for (int64_t rank = 0; rank < pass.num_ranks(); ++rank) {
    runner::ForwardPass& own = pass.of_rank(rank);
    HEDDLE_ASSIGN_OR_RETURN(
        runner::Pools pools,
        runner::Pools::create(own.device(), own.cache_needs(),
                              {.sizes = {.num_pages = pages * options.num_sequences,
                                         .page_size = options.page_size,
                                         .num_state_slots = options.num_sequences},
                               .kv_dtype = own.kv_dtype(),
                               .kv_scales = own.kv_scales()}));
    ranks.push_back({.pools = std::move(pools),
                     .slots = request::BatchSlots(options.num_sequences, pages),
                     .batch = runner::ForwardBatch({.max_tokens = pass.max_step_tokens(),
                                                    .max_sequences = options.num_sequences,
                                                    .max_pages_per_sequence = pages,
                                                    .page_size = options.page_size})});
  }
  return Session(pass, options, std::move(ranks), pages);
}

Session::Session(runner::ForwardPass& pass, const Options& options, std::vector<Own> ranks,
                 int64_t pages_per_sequence)
    : pass_(&pass),
      ranks_(std::move(ranks)),
      lengths_(static_cast<size_t>(options.num_sequences), 0),
      takes_long_rope_(static_cast<size_t>(options.num_sequences), false),
      adapters_(static_cast<size_t>(options.num_sequences), -1) {
  int32_t next_page = 1;
  pages_.resize(static_cast<size_t>(options.num_sequences));
  for (std::vector<int32_t>& pages : pages_) {
    for (int64_t i = 0; i < pages_per_sequence; ++i) pages.push_back(next_page++);
  }
  plan_.sequences.reserve(static_cast<size_t>(options.num_sequences));
}

Status Session::step(std::span<const Feed> feeds, runner::LogitRows logit_rows) {
  plan_.clear();
  for (const Feed& feed : feeds) {
    const auto index = static_cast<size_t>(feed.sequence);
    const auto slot = static_cast<int32_t>(feed.sequence);
    plan_.starts.push_back({.sequence_id = feed.sequence,
                            .batch_slot = slot,
                            .adapter_slot = adapters_[index],
                            .sampling = {}});
    plan_.page_updates.push_back({.batch_slot = slot, .pages = plan_.add_pages(pages_[index])});
    plan_.sequences.push_back({.sequence_id = feed.sequence,
                               .batch_slot = slot,
                               .new_tokens = plan_.add_tokens(feed.tokens),
                               .takes_long_rope = takes_long_rope_[index],
                               .context_tokens = lengths_[index],
                               .state_slot = slot + 1,
                               .sample = true});
  }
  const auto run_own = [this, logit_rows](runner::ForwardPass& pass, int64_t rank) -> Status {
    Own& own = ranks_[static_cast<size_t>(rank)];
    HEDDLE_RETURN_IF_ERROR(pass.device().make_current());
    HEDDLE_RETURN_IF_ERROR(own.slots.take(plan_));
    HEDDLE_RETURN_IF_ERROR(own.batch.build(plan_, own.slots, logit_rows));
    return pass.run(own.batch.ids(), own.batch.positions(), own.batch.context(own.pools),
                    own.batch.adapters());
  };
  HEDDLE_RETURN_IF_ERROR(pass_->on_every_rank(run_own));
  for (const Feed& feed : feeds) {
    lengths_[static_cast<size_t>(feed.sequence)] += static_cast<int64_t>(feed.tokens.size());
  }
  return {};
}

void Session::take_long_rope(int64_t sequence) {
  HEDDLE_CHECK_EQ(num_tokens(sequence), 0);
  takes_long_rope_[static_cast<size_t>(sequence)] = true;
}

Status Session::reset(int64_t sequence) {
  lengths_[static_cast<size_t>(sequence)] = 0;
  takes_long_rope_[static_cast<size_t>(sequence)] = false;
  const request::Move fresh{.kind = request::MoveKind::kZero,
                            .to = static_cast<int32_t>(sequence + 1)};
  for (int64_t rank = 0; rank < pass_->num_ranks(); ++rank) {
    runner::ForwardPass& pass = pass_->of_rank(rank);
    HEDDLE_RETURN_IF_ERROR(ranks_[static_cast<size_t>(rank)].pools.begin_step(
        pass.stream(), pass.context(), {&fresh, 1}));
  }
  return {};
}

}  // namespace heddle::verify
