// SPDX-License-Identifier: Apache-2.0
#include "runner/step/pools.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/check.h"
#include "ops/attention/page_copy.h"
#include "ops/linear_attention/state_snapshot.h"

namespace heddle::runner {

namespace {

int64_t num_sliding_layers(const models::CacheNeeds& needs) {
  return std::ranges::count_if(needs.kv_windows, [](int64_t window) { return window > 0; });
}

}  // namespace

bool mixes_windows(const models::CacheNeeds& needs) {
  const int64_t sliding = num_sliding_layers(needs);
  return sliding > 0 && sliding < needs.num_kv_layers;
}

cache::KvLayout window_kv_layout(const models::CacheNeeds& needs, int32_t page_size, DType dtype) {
  cache::KvLayout layout = kv_layout(needs, page_size, dtype);
  layout.num_layers = num_sliding_layers(needs);
  return layout;
}

cache::KvLayout kv_layout(const models::CacheNeeds& needs, int32_t page_size, DType dtype,
                          bool has_window_pages) {
  return {.num_layers = needs.num_kv_layers - (has_window_pages ? num_sliding_layers(needs) : 0),
          .page_size = page_size,
          .num_kv_heads = needs.num_kv_heads,
          .head_dim = needs.head_dim,
          .value_dim = needs.kv_value_dim,
          .dtype = dtype};
}

cache::StateLayout state_layout(const models::CacheNeeds& needs) {
  return {.num_layers = needs.num_state_layers,
          .conv_channels = needs.conv_channels,
          .conv_width = needs.conv_width,
          .num_value_heads = needs.num_value_heads,
          .value_dim = needs.value_dim,
          .key_dim = needs.key_dim};
}

cache::StateLayout snapshot_layout(const models::CacheNeeds& needs, DType dtype) {
  cache::StateLayout layout = state_layout(needs);
  layout.recurrent_dtype = dtype;
  return layout;
}

int64_t widest_window(const models::CacheNeeds& needs) {
  return needs.kv_windows.empty() ? 0 : std::ranges::max(needs.kv_windows);
}

int64_t common_window(const models::CacheNeeds& needs) {
  return num_sliding_layers(needs) == needs.num_kv_layers ? widest_window(needs) : 0;
}

Result<Pools> Pools::create(device::Device& device, const models::CacheNeeds& needs,
                            const PoolsOptions& options) {
  Pools pools;
  const auto create_all = [&]() -> Status {
    HEDDLE_RETURN_IF_ERROR(pools.create_kv(device, needs, options));
    HEDDLE_RETURN_IF_ERROR(pools.create_draft_kv(device, options));
    HEDDLE_RETURN_IF_ERROR(pools.create_states(device, needs, options));
    return pools.mirror_layers(device);
  };
  const Status status = create_all();
  if (status.ok()) return pools;
  if (status.code() != StatusCode::kResourceExhausted) return status;
  return resource_exhausted(
      fmt::format("{}; lower --memory-fraction, or set --max-total-tokens. Limits of the shell "
                  "(`ulimit -v`) and other processes count, too",
                  status.message()));
}

Status Pools::create_kv(device::Device& device, const models::CacheNeeds& needs,
                        const PoolsOptions& options) {
  HEDDLE_CHECK(options.kv_scales.empty() || std::ssize(options.kv_scales) == needs.num_kv_layers);
  if (needs.num_kv_layers == 0) return {};
  const cache::PoolSizes& sizes = options.sizes;
  const bool apart = sizes.has_window_pages();
  HEDDLE_ASSIGN_OR_RETURN(
      kv_, cache::KvPool::create(device, kv_layout(needs, sizes.page_size, options.kv_dtype, apart),
                                 sizes.num_pages));
  if (apart) {
    HEDDLE_CHECK(mixes_windows(needs));
    HEDDLE_ASSIGN_OR_RETURN(
        window_kv_,
        cache::KvPool::create(device, window_kv_layout(needs, sizes.page_size, options.kv_dtype),
                              sizes.window_pages.num_pages));
  }
  for (size_t layer = 0; layer < static_cast<size_t>(needs.num_kv_layers); ++layer) {
    const checkpoint::KvScales scales =
        options.kv_scales.empty() ? checkpoint::KvScales{} : options.kv_scales[layer];
    const bool slides = apart && needs.kv_windows[layer] > 0;
    cache::KvPool& pool = slides ? window_kv_ : kv_;
    std::vector<ops::KvLayer>& group = slides ? window_layers_ : main_layers_;
    const int64_t within = std::ssize(group);
    group.push_back({.k = pool.k(within),
                     .v = pool.v(within),
                     .k_scale = scales.k,
                     .v_scale = scales.v,
                     .group = slides ? ops::PageGroup::kWindow : ops::PageGroup::kMain});
    kv_layers_.push_back(group.back());
  }
  return {};
}

Status Pools::create_draft_kv(device::Device& device, const PoolsOptions& options) {
  if (!options.draft_needs) return {};
  const cache::PoolSizes& sizes = options.sizes;
  HEDDLE_ASSIGN_OR_RETURN(
      draft_kv_, cache::KvPool::create(
                     device, kv_layout(*options.draft_needs, sizes.page_size, options.kv_dtype),
                     sizes.num_pages));
  const std::vector<checkpoint::KvScales>& scales = options.draft_kv_scales;
  HEDDLE_CHECK(scales.empty() || std::ssize(scales) == options.draft_needs->num_kv_layers);
  for (int64_t layer = 0; layer < options.draft_needs->num_kv_layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    draft_layers_.push_back({.k = draft_kv_.k(layer),
                             .v = draft_kv_.v(layer),
                             .k_scale = scales.empty() ? 1 : scales[index].k,
                             .v_scale = scales.empty() ? 1 : scales[index].v});
  }
  main_layers_.insert(main_layers_.end(), draft_layers_.begin(), draft_layers_.end());
  return {};
}

Status Pools::create_states(device::Device& device, const models::CacheNeeds& needs,
                            const PoolsOptions& options) {
  if (needs.num_state_layers == 0) return {};
  HEDDLE_ASSIGN_OR_RETURN(states_, cache::StatePool::create(device, state_layout(needs),
                                                            options.sizes.num_state_slots +
                                                                options.sizes.max_draft_rows));
  for (int64_t layer = 0; layer < needs.num_state_layers; ++layer) {
    state_layers_.push_back({.conv = states_.conv(layer), .recurrent = states_.recurrent(layer)});
  }
  num_hidden_ = options.sizes.max_snapshot_slot();
  if (options.sizes.has_own_snapshot_slots()) {
    HEDDLE_ASSIGN_OR_RETURN(
        snapshots_, cache::StatePool::create(device, snapshot_layout(needs, options.snapshot_dtype),
                                             options.sizes.num_snapshot_slots));
    for (int64_t layer = 0; layer < needs.num_state_layers; ++layer) {
      snapshot_layers_.push_back({.conv = snapshots_.conv(layer),
                                  .recurrent = snapshots_.recurrent(layer),
                                  .scales = snapshots_.scales(layer)});
    }
  }
  hidden_width_ = options.hidden_width;
  hidden_dtype_ = options.hidden_dtype;
  const int64_t num_rows = num_hidden_ + 1 + options.sizes.max_step_sequences;
  HEDDLE_ASSIGN_OR_RETURN(hidden_,
                          device.allocate(bytes_of(hidden_dtype_, num_rows * hidden_width_)));
  return {};
}

Status Pools::mirror_layers(device::Device& device) {
  tables_ = MirroredLists(device);
  lists_ = MirroredLists(device);
  draft_lists_ = MirroredLists(device);
  accepted_lists_ = MirroredLists(device);
  moved_lists_ = MirroredLists(device);
  const std::span<const ops::KvLayer> main(main_layers_);
  const std::span<const ops::KvLayer> window(window_layers_);
  const std::span<const ops::StateLayer> states(state_layers_);
  const std::span<const ops::SnapshotLayer> snapshots(snapshot_layers_);
  HEDDLE_ASSIGN_OR_RETURN(const auto stream, device.create_stream());
  HEDDLE_RETURN_IF_ERROR(tables_.begin(
      *stream, MirroredLists::bytes_for(main) + MirroredLists::bytes_for(window) +
                   MirroredLists::bytes_for(states) + MirroredLists::bytes_for(snapshots)));
  main_table_ = tables_.add(main);
  window_table_ = tables_.add(window);
  state_table_ = tables_.add(states);
  snapshot_table_ = tables_.add(snapshots);
  HEDDLE_RETURN_IF_ERROR(tables_.upload(*stream));
  return stream->synchronize();
}

MutableTensorView Pools::hidden() const {
  return {hidden_.data(), hidden_dtype_, Shape{num_hidden_ + 1, hidden_width_}};
}

MutableTensorView Pools::hidden_scratch(int64_t count) const {
  return {hidden_.data() + bytes_of(hidden_dtype_, (num_hidden_ + 1) * hidden_width_),
          hidden_dtype_, Shape{count, hidden_width_}};
}

Status Pools::begin_step(device::Stream& stream, ops::Context& context,
                         const request::BatchPlan& plan) {
  HEDDLE_ASSIGN_OR_RETURN(const StepLists lists, step_lists(stream, plan));
  const bool has_kv = kv_.num_pages() > 0;
  if (has_kv) HEDDLE_RETURN_IF_ERROR(kv_.discard_pages(stream, plan.unused_pages));
  if (draft_kv_.num_pages() > 0) {
    HEDDLE_RETURN_IF_ERROR(draft_kv_.discard_pages(stream, plan.unused_pages));
  }
  if (states_.num_slots() > 0) {
    HEDDLE_RETURN_IF_ERROR(prepare_states(stream, context, plan, lists));
  }
  if (!has_kv) return {};
  HEDDLE_RETURN_IF_ERROR(ops::copy_pages(context, {.layers = main_table_, .pages = lists.pages}));
  return ops::copy_pages(context, {.layers = window_table_, .pages = lists.window_pages});
}

Status Pools::start_drafts(device::Stream& stream, ops::Context& context,
                           std::span<const ops::IdCopy> copies) {
  return copy_states(stream, context, draft_lists_, copies);
}

Status Pools::accept_drafts(device::Stream& stream, ops::Context& context,
                            std::span<const ops::IdCopy> copies) {
  return copy_states(stream, context, accepted_lists_, copies);
}

Status Pools::accept_drafts(ops::Context& context, const ops::MirroredSpan<ops::IdCopy>& copies) {
  if (copies.size() == 0) return {};
  return ops::copy_states(context, {.working = state_table_, .slots = copies});
}

Status Pools::copy_states(device::Stream& stream, ops::Context& context, MirroredLists& lists,
                          std::span<const ops::IdCopy> copies) {
  if (copies.empty()) return {};
  HEDDLE_RETURN_IF_ERROR(lists.begin(stream, MirroredLists::bytes_for(copies)));
  const ops::MirroredSpan<ops::IdCopy> slots = lists.add(copies);
  HEDDLE_RETURN_IF_ERROR(lists.upload(stream));
  return ops::copy_states(context, {.working = state_table_, .slots = slots});
}

Status Pools::move_rows(device::Stream& stream, ops::Context& context,
                        std::span<const ops::IdCopy> rows,
                        std::span<const ops::IdCopy> window_rows) {
  if (kv_.num_pages() == 0 || (rows.empty() && window_rows.empty())) return {};
  HEDDLE_RETURN_IF_ERROR(moved_lists_.begin(
      stream, MirroredLists::bytes_for(rows) + MirroredLists::bytes_for(window_rows)));
  const ops::MirroredSpan<ops::IdCopy> moved = moved_lists_.add(rows);
  const ops::MirroredSpan<ops::IdCopy> window_moved = moved_lists_.add(window_rows);
  HEDDLE_RETURN_IF_ERROR(moved_lists_.upload(stream));
  HEDDLE_RETURN_IF_ERROR(ops::copy_rows(context, {.layers = main_table_, .rows = moved}));
  return ops::copy_rows(context, {.layers = window_table_, .rows = window_moved});
}

Status Pools::prepare_states(device::Stream& stream, ops::Context& context,
                             const request::BatchPlan& plan, const StepLists& lists) {
  const bool apart = snapshots_.num_slots() > 0;
  HEDDLE_CHECK(apart || (plan.unused_snapshot_slots.empty() && plan.save_snapshots.empty()));
  for (const int32_t slot : plan.unused_snapshot_slots) {
    HEDDLE_RETURN_IF_ERROR(snapshots_.discard_slot(stream, slot));
  }
  HEDDLE_RETURN_IF_ERROR(ops::save_snapshots(
      context, {.working = state_table_, .snapshots = snapshot_table_, .slots = lists.saved}));
  for (const int32_t slot : plan.unused_state_slots) {
    HEDDLE_RETURN_IF_ERROR(states_.discard_slot(stream, slot));
  }
  HEDDLE_RETURN_IF_ERROR(
      ops::zero_states(context, {.working = state_table_, .slots = lists.zeroed}));
  if (!apart) return ops::copy_states(context, {.working = state_table_, .slots = lists.restored});
  return ops::restore_snapshots(
      context, {.working = state_table_, .snapshots = snapshot_table_, .slots = lists.restored});
}

Result<Pools::StepLists> Pools::step_lists(device::Stream& stream, const request::BatchPlan& plan) {
  int64_t num_bytes = MirroredLists::bytes_for(std::span<const int32_t>(plan.zero_state_slots));
  const auto converted = [&](const std::vector<request::IdCopy>& copies,
                             std::vector<ops::IdCopy>& list) {
    list.clear();
    for (const request::IdCopy& copy : copies) list.push_back({.from = copy.from, .to = copy.to});
    num_bytes += MirroredLists::bytes_for(std::span<const ops::IdCopy>(list));
    return std::span<const ops::IdCopy>(list);
  };
  const auto saved = converted(plan.save_snapshots, saved_);
  const auto restored = converted(plan.restore_snapshots, restored_);
  const auto pages = converted(plan.copy_pages, page_copies_);
  const auto window_pages = converted(plan.copy_window_pages, window_page_copies_);
  HEDDLE_RETURN_IF_ERROR(lists_.begin(stream, num_bytes));
  const StepLists lists{.saved = lists_.add(saved),
                        .restored = lists_.add(restored),
                        .pages = lists_.add(pages),
                        .window_pages = lists_.add(window_pages),
                        .zeroed = lists_.add(std::span<const int32_t>(plan.zero_state_slots))};
  HEDDLE_RETURN_IF_ERROR(lists_.upload(stream));
  return lists;
}

}  // namespace heddle::runner
