// SPDX-License-Identifier: Apache-2.0
// DeviceTrees: trees of drafts, grown on the device that has a network's logits
// (ops/drafting/grow_trees.h). All levels can be enqueued before the host knows any of their
// tokens.
//
//   begin() -> grow() after each level -> select(); once the stream has executed it, drafts()
//
// Threading: confined to one thread. Cost: four launches a level, and that of SteadyBlock; one
// launch for all trees at the end, which writes their drafts to host memory.
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
  // For at most `max_rows` rows of logits in a level, and as many trees. Waits for the stream.
  // Error: kResourceExhausted.
  static Result<DeviceTrees> create(device::Device& device, device::Stream& stream,
                                    const speculative::TreeShape& shape, int64_t max_rows,
                                    int64_t vocab_size);

  // Drops all trees.
  void begin() { level_ = 0; }

  // Grows all `trees` that have the next level from the first `num_rows` rows of `logits` [R, V]
  // f32. Called after the launch that computes them. `token_ids`: as in GrowTreesArgs.
  Status grow(ops::Context& context, device::Stream& stream, const MutableTensorView& logits,
              int64_t num_rows, std::span<const ops::GrownTree> trees, const int32_t* token_ids);

  // Results of the last grow() in device memory, by row of the next level: see GrowTreesArgs.
  [[nodiscard]] const int32_t* ids() const { return at<int32_t>(next_ids_); }

  [[nodiscard]] const int32_t* parent_rows() const { return at<int32_t>(next_parents_); }

  [[nodiscard]] const uint64_t* masks() const { return at<uint64_t>(next_masks_); }

  // Number of levels grown since begin().
  [[nodiscard]] int32_t num_levels() const { return level_; }

  Status select(ops::Context& context, device::Stream& stream,
                std::span<const ops::SelectedTree> trees);

  // Copies tree `index` of select() to `drafts`.
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
  device::Buffer memory_;  // the trees, in the form of ops/drafting/grow_trees.h
  device::Buffer next_ids_, next_parents_, next_masks_;
  device::ReadbackRing selected_;   // the selected drafts: SelectedDrafts [max_rows]
  std::vector<SteadyBlock> asked_;  // uploads by level, then the upload of select()
};

}  // namespace heddle::runner
