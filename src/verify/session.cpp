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
      adapters_(static_cast<size_t>(options.num_sequences), -1),
      pictures_(static_cast<size_t>(options.num_sequences), nullptr) {
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
  const runner::StepPictures pictures = lay_out_pictures(feeds);
  const auto run_own = [this, logit_rows, &pictures](runner::ForwardPass& pass,
                                                     int64_t rank) -> Status {
    Own& own = ranks_[static_cast<size_t>(rank)];
    HEDDLE_RETURN_IF_ERROR(pass.device().make_current());
    HEDDLE_RETURN_IF_ERROR(own.slots.take(plan_));
    HEDDLE_RETURN_IF_ERROR(own.batch.build(plan_, own.slots, logit_rows));
    return pass.run(own.batch.ids(), own.batch.positions(), own.batch.context(own.pools),
                    {.adapters = own.batch.adapters(),
                     .pictures = pass.feature_width() > 0 ? &pictures : nullptr});
  };
  if (const Status status = pass_->on_every_rank(run_own); !status.ok()) {
    pass_->wait_for_ranks();  // a late rank still uses this session
    return status;
  }
  for (const Feed& feed : feeds) {
    lengths_[static_cast<size_t>(feed.sequence)] += static_cast<int64_t>(feed.tokens.size());
  }
  return {};
}

runner::StepPictures Session::lay_out_pictures(std::span<const Feed> feeds) {
  axis_positions_.clear();
  features_.clear();
  if (pass_->feature_width() == 0) return {};
  for (const Feed& feed : feeds) {
    const GoldenPictures* const pictures = pictures_[static_cast<size_t>(feed.sequence)];
    const request::PicturePositions& positions = pictures != nullptr ? pictures->positions : text_;
    for (int64_t i = 0; i < std::ssize(feed.tokens); ++i) {
      const int64_t index = lengths_[static_cast<size_t>(feed.sequence)] + i;
      for (const int32_t position : positions.at(index)) axis_positions_.push_back(position);
      const request::MediaSpan* const span = positions.span_at(index);
      features_.push_back(span == nullptr ? nullptr
                                          : pictures->features.view().row<float>(
                                                span->first_row + index - span->start));
    }
  }
  return {.positions = axis_positions_, .features = features_};
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
