// SPDX-License-Identifier: Apache-2.0
#include "runner/step/pools.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "ops/attention/page_copy.h"

namespace heddle::runner {

namespace {

bool slides(const models::PageGroup& group) { return group.window > 0; }

}  // namespace

bool mixes_windows(const models::CacheNeeds& needs) {
  return std::ranges::any_of(needs.page_groups, slides) &&
         !std::ranges::all_of(needs.page_groups, slides);
}

std::vector<cache::KvLayout> kv_layouts(const models::CacheNeeds& needs, int32_t page_size,
                                        DType dtype) {
  std::vector<cache::KvLayout> layouts;
  for (const models::PageGroup& group : needs.page_groups) {
    layouts.push_back({.num_layers = group.num_layers,
                       .page_size = page_size,
                       .num_kv_heads = group.shape.num_heads,
                       .head_dim = group.shape.head_dim,
                       .value_dim = group.shape.value_dim,
                       .dtype = dtype});
  }
  return layouts;
}

std::vector<cache::StateLayout> state_layouts(const models::CacheNeeds& needs) {
  return snapshot_layouts(needs, DType::kF32);
}

std::vector<cache::StateLayout> snapshot_layouts(const models::CacheNeeds& needs, DType dtype) {
  std::vector<cache::StateLayout> layouts;
  for (const models::StateGroup& group : needs.state_groups) {
    cache::StateLayout layout{.num_layers = group.num_layers, .parts = {}};
    for (const models::StatePart& part : group.parts) {
      layout.parts.push_back({.shape = part.shape, .dtype = part.is_rounded ? dtype : DType::kF32});
    }
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

std::vector<int64_t> windows_of_tables(const models::CacheNeeds& needs, int64_t context_length) {
  std::set<int64_t> windows;
  if (!mixes_windows(needs)) return {};
  for (const models::PageGroup& group : needs.page_groups) {
    if (slides(group) && group.window < context_length) windows.insert(group.window);
  }
  while (windows.size() >= ops::kMaxPageTables) windows.erase(windows.begin());
  return {windows.begin(), windows.end()};
}

int64_t common_window(const models::CacheNeeds& needs) {
  int64_t widest = 0;
  if (!std::ranges::all_of(needs.page_groups, slides)) return 0;
  for (const models::PageGroup& group : needs.page_groups) widest = std::max(widest, group.window);
  return widest;
}

Result<Pools> Pools::create(device::Device& device, const models::CacheNeeds& needs,
                            const PoolsOptions& options) {
  Pools pools;
  const auto create_all = [&]() -> Status {
    HEDDLE_RETURN_IF_ERROR(
        pools.create_pages(device, needs, options, options.kv_scales, pools.kv_layers_));
    if (options.draft_needs) {
      HEDDLE_RETURN_IF_ERROR(pools.create_pages(device, *options.draft_needs, options,
                                                options.draft_kv_scales, pools.draft_layers_));
    }
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

Status Pools::create_pages(device::Device& device, const models::CacheNeeds& needs,
                           const PoolsOptions& options,
                           const std::vector<checkpoint::KvScales>& scales,
                           std::vector<ops::KvLayer>& layers) {
  HEDDLE_CHECK(scales.empty() || std::ssize(scales) == needs.num_kv_layers());
  const cache::PoolSizes& sizes = options.sizes;
  // All layers of a draft network read page table 0.
  const bool is_model = &layers == &kv_layers_;
  HEDDLE_CHECK(!is_model || sizes.windows.empty() || mixes_windows(needs));
  const size_t first = pages_.size();
  const std::vector<cache::KvLayout> layouts = kv_layouts(needs, sizes.page_size, options.kv_dtype);
  for (size_t group = 0; group < layouts.size(); ++group) {
    const uint32_t table = is_model ? sizes.table_for(needs.page_groups[group].window) : 0;
    const int64_t num_pages = table > 0 ? sizes.windows[table - 1].num_pages : sizes.num_pages;
    HEDDLE_ASSIGN_OR_RETURN(cache::KvPool pool,
                            cache::KvPool::create(device, layouts[group], num_pages));
    pages_.push_back({.pool = std::move(pool), .table = table});
  }
  for (size_t i = 0; i < needs.kv_layers.size(); ++i) {
    const models::GroupedLayer& layer = needs.kv_layers[i];
    PagePool& pages = pages_[first + layer.group];
    layers.push_back({.k = pages.pool.k(layer.index),
                      .v = pages.pool.v(layer.index),
                      .k_scale = scales.empty() ? 1 : scales[i].k,
                      .v_scale = scales.empty() ? 1 : scales[i].v,
                      .table = pages.table});
    table_layers_[pages.table].push_back(layers.back());
  }
  return {};
}

namespace {

Result<std::vector<cache::StatePool>> create_pools(device::Device& device,
                                                   const std::vector<cache::StateLayout>& layouts,
                                                   int64_t num_slots) {
  std::vector<cache::StatePool> pools;
  for (const cache::StateLayout& layout : layouts) {
    HEDDLE_ASSIGN_OR_RETURN(cache::StatePool pool,
                            cache::StatePool::create(device, layout, num_slots));
    pools.push_back(std::move(pool));
  }
  return pools;
}

// The member of a StateLayer or a SnapshotLayer that holds `tensor`.
template <typename Layer>
MutableTensorView& tensor_of(Layer& layer, ops::StateTensor tensor) {
  return tensor == ops::StateTensor::kConv ? layer.conv : layer.recurrent;
}

}  // namespace

Status Pools::create_states(device::Device& device, const models::CacheNeeds& needs,
                            const PoolsOptions& options) {
  if (needs.state_layers.empty()) return {};
  const cache::PoolSizes& sizes = options.sizes;
  HEDDLE_ASSIGN_OR_RETURN(states_, create_pools(device, state_layouts(needs),
                                                sizes.num_state_slots + options.num_draft_slots));
  if (sizes.has_own_snapshot_slots()) {
    HEDDLE_ASSIGN_OR_RETURN(snapshots_,
                            create_pools(device, snapshot_layouts(needs, options.snapshot_dtype),
                                         sizes.num_snapshot_slots));
  }
  for (const models::GroupedLayer& layer : needs.state_layers) {
    const std::vector<models::StatePart>& parts = needs.state_groups[layer.group].parts;
    ops::StateLayer working;
    ops::SnapshotLayer snapshots;
    for (size_t i = 0; i < parts.size(); ++i) {
      const MutableTensorView numbers = states_[layer.group].part(layer.index, i);
      tensor_of(working, parts[i].tensor) = numbers;
      if (snapshots_.empty()) {
        state_parts_.push_back(ops::state_part(numbers));
        continue;
      }
      const cache::StatePool& pool = snapshots_[layer.group];
      tensor_of(snapshots, parts[i].tensor) = pool.part(layer.index, i);
      if (parts[i].is_rounded) snapshots.scales = pool.scales(layer.index, i);
      state_parts_.push_back(
          ops::state_part(numbers, pool.part(layer.index, i), pool.scales(layer.index, i)));
    }
    state_layers_.push_back(working);
    if (!snapshots_.empty()) snapshot_layers_.push_back(snapshots);
  }
  if (options.hidden_width == 0) return {};
  num_hidden_ = sizes.max_snapshot_slot();
  const cache::StatePartLayout vector{.shape = {options.hidden_width},
                                      .dtype = options.hidden_dtype};
  HEDDLE_ASSIGN_OR_RETURN(cache::StatePool hidden,
                          cache::StatePool::create(device, {.num_layers = 1, .parts = {vector}},
                                                   num_hidden_ + sizes.max_sequences));
  (snapshots_.empty() ? states_ : snapshots_).push_back(std::move(hidden));
  return {};
}

Status Pools::mirror_layers(device::Device& device) {
  tables_ = MirroredLists(device);
  lists_ = MirroredLists(device);
  draft_lists_ = MirroredLists(device);
  accepted_lists_ = MirroredLists(device);
  moved_lists_ = MirroredLists(device);
  const std::span<const ops::StatePartView> parts(state_parts_);
  int64_t num_bytes = MirroredLists::bytes_for(parts);
  for (const auto& layers : table_layers_) {
    num_bytes += MirroredLists::bytes_for(std::span<const ops::KvLayer>(layers));
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto stream, device.create_stream());
  HEDDLE_RETURN_IF_ERROR(tables_.begin(*stream, num_bytes));
  for (size_t table = 0; table < ops::kMaxPageTables; ++table) {
    mirrored_layers_[table] = tables_.add(std::span<const ops::KvLayer>(table_layers_[table]));
  }
  part_table_ = tables_.add(parts);
  HEDDLE_RETURN_IF_ERROR(tables_.upload(*stream));
  return stream->synchronize();
}

MutableTensorView Pools::hidden() const { return hidden_rows(0, num_hidden_ + 1); }

MutableTensorView Pools::hidden_rows(int64_t first, int64_t count) const {
  HEDDLE_CHECK_GE(num_hidden_, 1);
  const MutableTensorView all = (snapshots_.empty() ? states_ : snapshots_).back().part(0, 0);
  return {all.as<std::byte>() + bytes_of(all.dtype, first * all.row_stride), all.dtype,
          Shape{count, all.shape[1]}, all.row_stride};
}

namespace {

Status copy_row(device::Stream& stream, const TensorView& from, int64_t from_row,
                const MutableTensorView& to, int64_t to_row) {
  HEDDLE_CHECK(from.dtype == to.dtype);
  return stream.copy(to.as<std::byte>() + bytes_of(to.dtype, to_row * to.row_stride),
                     from.as<std::byte>() + bytes_of(from.dtype, from_row * from.row_stride),
                     bytes_of(to.dtype, to.shape[1]));
}

}  // namespace

Status Pools::keep_hidden(device::Stream& stream, const TensorView& rows,
                          std::span<const ops::IdCopy> kept) {
  for (const ops::IdCopy& copy : kept) {
    HEDDLE_RETURN_IF_ERROR(copy_row(stream, rows, copy.from, hidden(), copy.to));
  }
  return {};
}

Result<TensorView> Pools::kept_hidden(device::Stream& stream, std::span<const int32_t> slots) {
  const MutableTensorView rows = hidden_rows(num_hidden_ + 1, std::ssize(slots));
  for (int64_t row = 0; row < std::ssize(slots); ++row) {
    HEDDLE_RETURN_IF_ERROR(copy_row(stream, hidden(), slots[static_cast<size_t>(row)], rows, row));
  }
  return TensorView(rows);
}

Status Pools::begin_step(device::Stream& stream, ops::Context& context,
                         std::span<const request::Move> moves) {
  step_ids_.clear();
  for (const request::Move& move : moves) {
    if (move.table >= ops::kMaxPageTables) {
      return invalid_argument(fmt::format("page {} of table {} is moved; there are {} tables",
                                          move.from, move.table, ops::kMaxPageTables));
    }
    step_ids_.push_back({.from = move.from, .to = move.to});
  }
  const std::span<const ops::IdCopy> all(step_ids_);
  HEDDLE_RETURN_IF_ERROR(lists_.begin(stream, MirroredLists::bytes_for(all)));
  const ops::MirroredSpan<ops::IdCopy> ids = lists_.add(all);
  HEDDLE_RETURN_IF_ERROR(lists_.upload(stream));
  for (size_t begin = 0, end = 0; begin < moves.size(); begin = end) {
    const request::Move& first = moves[begin];
    while (end < moves.size() && moves[end].order() == first.order()) ++end;
    HEDDLE_RETURN_IF_ERROR(carry_out(stream, context, first, ids.part(begin, end - begin)));
  }
  return {};
}

namespace {

Status discard(device::Stream& stream, std::vector<cache::StatePool>& pools,
               std::span<const ops::IdCopy> ids) {
  for (cache::StatePool& pool : pools) {
    for (const ops::IdCopy& id : ids) {
      HEDDLE_RETURN_IF_ERROR(pool.discard_slot(stream, id.from));
    }
  }
  return {};
}

}  // namespace

Status Pools::carry_out(device::Stream& stream, ops::Context& context, const request::Move& move,
                        const ops::MirroredSpan<ops::IdCopy>& ids) {
  using enum request::MoveKind;
  if (move.kind == kReleasePage) {
    released_.clear();
    for (const ops::IdCopy& id : ids.host) released_.push_back(id.from);
    for (PagePool& pages : pages_) {
      if (pages.table != move.table || pages.pool.num_pages() == 0) continue;
      HEDDLE_RETURN_IF_ERROR(pages.pool.discard_pages(stream, released_));
    }
    return {};
  }
  if (move.kind == kCopyPage) {
    if (!has_pages()) return {};
    return ops::copy_pages(context, {.layers = mirrored_layers_[move.table], .pages = ids});
  }
  if (states_.empty()) return {};
  const bool apart = !snapshots_.empty();
  HEDDLE_CHECK(apart || (move.kind != kReleaseSnapshot && move.kind != kSave));
  if (move.kind == kReleaseSnapshot) return discard(stream, snapshots_, ids.host);
  if (move.kind == kReleaseState) return discard(stream, states_, ids.host);
  const ops::StateMove copies = apart ? ops::StateMove::kRestore : ops::StateMove::kCopy;
  return ops::move_states(context, {.move = move.kind == kSave   ? ops::StateMove::kSave
                                            : move.kind == kZero ? ops::StateMove::kZero
                                                                 : copies,
                                    .parts = part_table_,
                                    .slots = ids});
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
  return ops::move_states(context, {.parts = part_table_, .slots = copies});
}

Status Pools::copy_states(device::Stream& stream, ops::Context& context, MirroredLists& lists,
                          std::span<const ops::IdCopy> copies) {
  if (copies.empty()) return {};
  HEDDLE_RETURN_IF_ERROR(lists.begin(stream, MirroredLists::bytes_for(copies)));
  const ops::MirroredSpan<ops::IdCopy> slots = lists.add(copies);
  HEDDLE_RETURN_IF_ERROR(lists.upload(stream));
  return ops::move_states(context, {.parts = part_table_, .slots = slots});
}

Status Pools::move_rows(device::Stream& stream, ops::Context& context,
                        const ops::CopiesByTable& rows) {
  if (!has_pages() || std::ranges::all_of(rows, &std::vector<ops::IdCopy>::empty)) return {};
  HEDDLE_RETURN_IF_ERROR(moved_lists_.begin(stream, bytes_for(rows)));
  const MirroredCopies moved = add(moved_lists_, rows);
  HEDDLE_RETURN_IF_ERROR(moved_lists_.upload(stream));
  for (size_t table = 0; table < ops::kMaxPageTables; ++table) {
    HEDDLE_RETURN_IF_ERROR(
        ops::copy_rows(context, {.layers = mirrored_layers_[table], .rows = moved[table]}));
  }
  return {};
}

int64_t Pools::bytes_for(const ops::CopiesByTable& copies) {
  int64_t num_bytes = 0;
  for (const auto& list : copies) {
    num_bytes += MirroredLists::bytes_for(std::span<const ops::IdCopy>(list));
  }
  return num_bytes;
}

Pools::MirroredCopies Pools::add(MirroredLists& lists, const ops::CopiesByTable& copies) {
  MirroredCopies added;
  for (size_t table = 0; table < copies.size(); ++table) {
    added[table] = lists.add(std::span<const ops::IdCopy>(copies[table]));
  }
  return added;
}

}  // namespace heddle::runner
