// SPDX-License-Identifier: Apache-2.0
// Pools: the KV pages and recurrent states of a model, the snapshots in another format, the hidden
// vectors kept with snapshots, and the views of them that ops read. Each group of layers
// (models::CacheNeeds) has a pool of its own. A page id names a page in all pools of its page
// table, a slot a state in all pools of states.
//
// Threading: confined to one thread; a step's ops access the pools in the order of the stream.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/kv_pool.h"
#include "cache/pool_sizes.h"
#include "cache/state_pool.h"
#include "checkpoint/kv_scales.h"
#include "models/model.h"
#include "ops/context.h"
#include "ops/forward_context.h"
#include "ops/linear_attention/state_snapshot.h"
#include "ops/pool_lists.h"
#include "request/batch_plan.h"
#include "runner/step/mirrored_lists.h"

namespace heddle::runner {

// Whether some attention layers slide and others do not.
bool mixes_windows(const models::CacheNeeds& needs);

// The layouts of KV pages and of states, one for each group of layers.
std::vector<cache::KvLayout> kv_layouts(const models::CacheNeeds& needs, int32_t page_size,
                                        DType dtype);
std::vector<cache::StateLayout> state_layouts(const models::CacheNeeds& needs);

// Layouts of snapshot slots: parts with StatePart::is_rounded are stored as `dtype`, others as
// fp32.
std::vector<cache::StateLayout> snapshot_layouts(const models::CacheNeeds& needs, DType dtype);

// Windows of page tables 1 and up, ascending: every window of a layer below `context_length`,
// unless all layers slide. If there are too many, only the widest.
std::vector<int64_t> windows_of_tables(const models::CacheNeeds& needs, int64_t context_length);

// The widest window if all layers have one, for PoolSizes::kv_window.
int64_t common_window(const models::CacheNeeds& needs);

struct PoolsOptions {
  cache::PoolSizes sizes;
  int64_t num_draft_slots = 0;  // state slots for drafts; StepLimits::max_draft_rows
  DType kv_dtype = DType::kF32;
  std::vector<checkpoint::KvScales> kv_scales;  // [num_kv_layers()]; empty: all scales are 1
  DType snapshot_dtype = DType::kF32;
  int64_t hidden_width = 0;  // width of the hidden vector kept with a snapshot; 0: none is kept
  DType hidden_dtype = DType::kF32;

  // The needs of a draft network. Its keys and values are stored in the model's pages, as kv_dtype.
  std::optional<models::CacheNeeds> draft_needs;
  std::vector<checkpoint::KvScales> draft_kv_scales;  // as kv_scales, for the draft network
};

class Pools {
 public:
  Pools() = default;

  static Result<Pools> create(device::Device& device, const models::CacheNeeds& needs,
                              const PoolsOptions& options);

  // Executes the moves at the head of a step (BatchPlan::moves), one launch for each run of moves
  // of the same kind and table. Ids must be within the pools (checked). Moves for pools that the
  // model does not have are ignored: its plans may name pages that hold no KV.
  Status begin_step(device::Stream& stream, ops::Context& context,
                    std::span<const request::Move> moves);

  // Copy states between working slots and draft slots, whose ids follow PoolSizes::num_state_slots.
  // start_drafts() runs before the forward pass of a step, accept_drafts() after its draws.
  Status start_drafts(device::Stream& stream, ops::Context& context,
                      std::span<const ops::IdCopy> copies);
  Status accept_drafts(device::Stream& stream, ops::Context& context,
                       std::span<const ops::IdCopy> copies);

  // As accept_drafts() above, for a list that is in device memory already.
  Status accept_drafts(ops::Context& context, const ops::MirroredSpan<ops::IdCopy>& copies);

  // Moves rows of keys and values, in the order of the lists, in all layers of a page table. Row r
  // is token r % page_size of page r / page_size. Called once a step, after its draws.
  Status move_rows(device::Stream& stream, ops::Context& context, const ops::CopiesByTable& rows);

  // [slots + 1, H] of PoolsOptions::hidden_dtype, by snapshot slot. Vectors must be kept (checked).
  [[nodiscard]] MutableTensorView hidden() const;

  // Copies row `from` of `rows` [R, H], the input of the LM head, to hidden vector `to`, for each
  // pair.
  Status keep_hidden(device::Stream& stream, const TensorView& rows,
                     std::span<const ops::IdCopy> kept);

  // [R, H]: the hidden vectors of R slots, at most max_sequences. Valid until the next call.
  Result<TensorView> kept_hidden(device::Stream& stream, std::span<const int32_t> slots);

  [[nodiscard]] std::span<const ops::KvLayer> kv_layers() const { return kv_layers_; }

  // The KV of the draft network's layers.
  [[nodiscard]] std::span<const ops::KvLayer> draft_kv_layers() const { return draft_layers_; }

  [[nodiscard]] std::span<const ops::StateLayer> state_layers() const { return state_layers_; }

  // Empty if snapshots use the state slots.
  [[nodiscard]] std::span<const ops::SnapshotLayer> snapshot_layers() const {
    return snapshot_layers_;
  }

 private:
  [[nodiscard]] MutableTensorView hidden_rows(int64_t first, int64_t count) const;
  Status copy_states(device::Stream& stream, ops::Context& context, MirroredLists& lists,
                     std::span<const ops::IdCopy> copies);
  // Appends a pool for each page group of `needs`, and a view for each layer to `layers`.
  Status create_pages(device::Device& device, const models::CacheNeeds& needs,
                      const PoolsOptions& options, const std::vector<checkpoint::KvScales>& scales,
                      std::vector<ops::KvLayer>& layers);
  Status create_states(device::Device& device, const models::CacheNeeds& needs,
                       const PoolsOptions& options);

  using MirroredCopies = std::array<ops::MirroredSpan<ops::IdCopy>, ops::kMaxPageTables>;

  static int64_t bytes_for(const ops::CopiesByTable& copies);
  static MirroredCopies add(MirroredLists& lists, const ops::CopiesByTable& copies);

  // Executes moves of one kind and table.
  Status carry_out(device::Stream& stream, ops::Context& context, const request::Move& move,
                   const ops::MirroredSpan<ops::IdCopy>& ids);

  // Copies the tables of layers to device memory, where launchers read them.
  Status mirror_layers(device::Device& device);

  // The pages of one group of layers, with the ids of page table `table`.
  struct PagePool {
    cache::KvPool pool;
    uint32_t table = 0;
  };

  [[nodiscard]] bool has_pages() const {
    return !table_layers_[0].empty() && table_layers_[0].front().k.shape[0] > 1;
  }

  std::vector<PagePool> pages_;  // pools of pages, by group; those of a draft network come last
  // One pool for each state group. snapshots_ is empty if snapshots use the state slots. If hidden
  // vectors are kept, they are in the last pool of snapshots_, or of states_ if that is empty; its
  // scratch rows come last.
  std::vector<cache::StatePool> states_;
  std::vector<cache::StatePool> snapshots_;
  int64_t num_hidden_ = 0;  // number of slots with a hidden vector
  std::vector<ops::KvLayer> kv_layers_;
  std::vector<ops::KvLayer> draft_layers_;
  // kv_layers_ and draft_layers_ by page table, on the host and in device memory.
  std::array<std::vector<ops::KvLayer>, ops::kMaxPageTables> table_layers_;
  std::array<ops::MirroredSpan<ops::KvLayer>, ops::kMaxPageTables> mirrored_layers_;
  std::vector<ops::StateLayer> state_layers_;
  std::vector<ops::SnapshotLayer> snapshot_layers_;
  std::vector<ops::StatePartView> state_parts_;  // the states' parts of all layers
  MirroredLists tables_;                         // device copies of the layer tables
  ops::MirroredSpan<ops::StatePartView> part_table_;
  std::vector<ops::IdCopy> step_ids_;  // scratch of begin_step()
  std::vector<int32_t> released_;      // scratch of begin_step()
  MirroredLists lists_;                // scratch of begin_step()
  MirroredLists draft_lists_;          // scratch of start_drafts()
  MirroredLists accepted_lists_;       // scratch of accept_drafts()
  MirroredLists moved_lists_;          // scratch of move_rows()
};

}  // namespace heddle::runner
