// SPDX-License-Identifier: Apache-2.0
#include "runner/pools.h"

#include <algorithm>

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
  HEDDLE_RETURN_IF_ERROR(pools.create_kv(device, needs, options));
  HEDDLE_RETURN_IF_ERROR(pools.create_states(device, needs, options));
  return pools;
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

Status Pools::create_states(device::Device& device, const models::CacheNeeds& needs,
                            const PoolsOptions& options) {
  if (needs.num_state_layers == 0) return {};
  HEDDLE_ASSIGN_OR_RETURN(states_, cache::StatePool::create(device, state_layout(needs),
                                                            options.sizes.num_state_slots));
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
  HEDDLE_ASSIGN_OR_RETURN(
      hidden_, device.allocate(bytes_of(DType::kF32, (num_hidden_ + 1) * hidden_width_)));
  return {};
}

MutableTensorView Pools::hidden() const {
  return {hidden_.data(), DType::kF32, Shape{num_hidden_ + 1, hidden_width_}};
}

Status Pools::begin_step(device::Stream& stream, ops::Context& context,
                         const request::BatchPlan& plan) {
  const bool has_kv = kv_.num_pages() > 0;
  if (has_kv) HEDDLE_RETURN_IF_ERROR(kv_.discard_pages(stream, plan.unused_pages));
  if (states_.num_slots() > 0) HEDDLE_RETURN_IF_ERROR(prepare_states(stream, context, plan));
  if (!has_kv) return {};
  HEDDLE_RETURN_IF_ERROR(ops::copy_pages(
      context, {.layers = {.host = main_layers_}, .pages = list_of(plan.copy_pages)}));
  return ops::copy_pages(
      context, {.layers = {.host = window_layers_}, .pages = list_of(plan.copy_window_pages)});
}

Status Pools::prepare_states(device::Stream& stream, ops::Context& context,
                             const request::BatchPlan& plan) {
  const bool apart = snapshots_.num_slots() > 0;
  HEDDLE_CHECK(apart || (plan.unused_snapshot_slots.empty() && plan.save_snapshots.empty()));
  for (const int32_t slot : plan.unused_snapshot_slots) {
    HEDDLE_RETURN_IF_ERROR(snapshots_.discard_slot(stream, slot));
  }
  const ops::MirroredSpan<ops::StateLayer> working{.host = state_layers_};
  const ops::MirroredSpan<ops::SnapshotLayer> snapshots{.host = snapshot_layers_};
  HEDDLE_RETURN_IF_ERROR(ops::save_snapshots(
      context,
      {.working = working, .snapshots = snapshots, .slots = list_of(plan.save_snapshots)}));
  for (const int32_t slot : plan.unused_state_slots) {
    HEDDLE_RETURN_IF_ERROR(states_.discard_slot(stream, slot));
  }
  HEDDLE_RETURN_IF_ERROR(
      ops::zero_states(context, {.working = working, .slots = {.host = plan.zero_state_slots}}));
  const ops::MirroredSpan<ops::IdCopy> restored = list_of(plan.restore_snapshots);
  if (!apart) return ops::copy_states(context, {.working = working, .slots = restored});
  return ops::restore_snapshots(context,
                                {.working = working, .snapshots = snapshots, .slots = restored});
}

ops::MirroredSpan<ops::IdCopy> Pools::list_of(std::span<const request::IdCopy> copies) {
  copies_.clear();
  for (const request::IdCopy& copy : copies) copies_.push_back({.from = copy.from, .to = copy.to});
  return {.host = copies_};
}

}  // namespace heddle::runner
