// SPDX-License-Identifier: Apache-2.0
// DeviceTrees: trees of drafts, grown where a network's logits are (ops/drafting/grow_trees.h): all
// levels can be enqueued before the host knows a token of them.
//
//   begin() -> grow() behind each level -> select(); when the stream has come so far, drafts()
//
// Threading: confined. Cost: a level four launches, and that of SteadyBlock; one launch for all
// trees in the end, which writes their drafts to the host's memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "device/device.h"
#include "device/staging.h"
#include "ops/context.h"
#include "ops/drafting/grow_trees.h"
#include "runner/drafting/greedy_rows.h"
#include "runner/program/steady_block.h"
#include "speculative/draft_tree.h"
#include "speculative/tree_growth.h"

namespace heddle::runner {

class DeviceTrees {
 public:
  // At most `max_rows` rows of logits in a level, and as many trees. Waits for the stream. Error:
  // kResourceExhausted.
  static Result<DeviceTrees> create(device::Device& device, device::Stream& stream,
                                    const speculative::TreeShape& shape, int64_t max_rows,
                                    int64_t vocab_size);

  // Forgets all trees.
  void begin() { level_ = 0; }

  // Behind the next level, of the first `num_rows` rows of `logits` [R, V] f32: all trees that have
  // it. `token_ids`: those of GrowTreesArgs.
  Status grow(ops::Context& context, device::Stream& stream, const MutableTensorView& logits,
              int64_t num_rows, std::span<const ops::GrownTree> trees, const int32_t* token_ids);

  // Results of the last grow(), by row of the next level, in device memory: see GrowTreesArgs.
  [[nodiscard]] const int32_t* ids() const { return at<int32_t>(next_ids_); }

  [[nodiscard]] const int32_t* parent_rows() const { return at<int32_t>(next_parents_); }

  [[nodiscard]] const uint64_t* masks() const { return at<uint64_t>(next_masks_); }

  // Levels since begin().
  [[nodiscard]] int32_t num_levels() const { return level_; }

  Status select(ops::Context& context, device::Stream& stream,
                std::span<const ops::SelectedTree> trees);

  // Copies the index-th tree of select() to `drafts`.
  void drafts(size_t index, speculative::Drafts& drafts) const;

 private:
  template <typename T>
  [[nodiscard]] static T* at(const device::Buffer& buffer) {
    return reinterpret_cast<T*>(const_cast<std::byte*>(buffer.data()));
  }

  DeviceTrees() = default;

  ops::GrownShape shape_;
  int32_t level_ = 0;
  GreedyRows rows_;
  device::Buffer top_logits_;
  device::Buffer memory_;  // memory of the trees
  device::Buffer next_ids_, next_parents_, next_masks_;
  device::ReadbackRing selected_;   // SelectedDrafts [max_rows]
  std::vector<SteadyBlock> asked_;  // uploads by level, then that of select()
};

}  // namespace heddle::runner
