// SPDX-License-Identifier: Apache-2.0
#include "runner/drafting/device_trees.h"

#include "core/check.h"
#include "runner/runner.h"
#include "speculative/draft_limits.h"

namespace heddle::runner {

namespace {

static_assert(speculative::kMostBranches <= ops::kMostBranches &&
              speculative::kMostBranches <= ops::kMostTopLogits);
static_assert(speculative::DraftTree::kMaxNodes <= ops::kMostGrown);

template <typename T>
int64_t bytes_for(int64_t count) {
  return count * static_cast<int64_t>(sizeof(T));
}

}  // namespace

Result<DeviceTrees> DeviceTrees::create(device::Device& device, device::Stream& stream,
                                        const speculative::TreeShape& shape, int64_t max_rows,
                                        int64_t vocab_size) {
  DeviceTrees trees;
  trees.shape_ = {.topk = shape.topk, .num_steps = shape.num_steps};
  HEDDLE_ASSIGN_OR_RETURN(trees.rows_,
                          GreedyRows::create(device, stream, max_rows, vocab_size, shape.topk));
  HEDDLE_ASSIGN_OR_RETURN(
      trees.top_logits_, device.allocate(bytes_for<ops::TopLogit>(max_rows * ops::kMostTopLogits)));
  HEDDLE_ASSIGN_OR_RETURN(trees.memory_,
                          device.allocate(max_rows * ops::grown_tree_bytes(trees.shape_)));
  HEDDLE_ASSIGN_OR_RETURN(trees.next_ids_, device.allocate(bytes_for<int32_t>(max_rows)));
  HEDDLE_ASSIGN_OR_RETURN(trees.next_parents_, device.allocate(bytes_for<int32_t>(max_rows)));
  HEDDLE_ASSIGN_OR_RETURN(trees.next_masks_, device.allocate(bytes_for<uint64_t>(max_rows)));
  trees.selected_ = device::ReadbackRing(device, /*num_blocks=*/1);
  HEDDLE_RETURN_IF_ERROR(trees.selected_.begin(bytes_for<ops::SelectedDrafts>(max_rows)).status());
  for (int32_t i = 0; i <= shape.num_steps; ++i) {
    trees.asked_.emplace_back(device, kMaxStepsInFlight);
  }
  return trees;
}

Status DeviceTrees::grow(ops::Context& context, device::Stream& stream,
                         const MutableTensorView& logits, int64_t num_rows,
                         std::span<const ops::GrownTree> trees, const int32_t* token_ids) {
  HEDDLE_CHECK_LT(level_, shape_.num_steps);
  ops::SampleRowsArgs args = rows_.args(logits, num_rows);
  args.top_logits = at<ops::TopLogit>(top_logits_);
  HEDDLE_RETURN_IF_ERROR(ops::sample_rows(context, args));
  const int32_t level = level_++;
  SteadyBlock& asked = asked_[static_cast<size_t>(level)];
  asked.begin();
  const int64_t trees_at = asked.add(trees);
  HEDDLE_RETURN_IF_ERROR(asked.upload(stream));
  return ops::grow_trees(context, {.shape = shape_,
                                   .level = level,
                                   .trees = asked.at<const ops::GrownTree>(trees_at),
                                   .num_trees = std::ssize(trees),
                                   .sampled = rows_.sampled(),
                                   .top_logits = at<const ops::TopLogit>(top_logits_),
                                   .token_ids = token_ids,
                                   .memory = memory_.data(),
                                   .ids = at<int32_t>(next_ids_),
                                   .parent_rows = at<int32_t>(next_parents_),
                                   .masks = at<uint64_t>(next_masks_)});
}

Status DeviceTrees::select(ops::Context& context, device::Stream& stream,
                           std::span<const ops::SelectedTree> trees) {
  SteadyBlock& asked = asked_.back();
  asked.begin();
  const int64_t trees_at = asked.add(trees);
  HEDDLE_RETURN_IF_ERROR(asked.upload(stream));
  return ops::select_drafts(
      context, {.shape = shape_,
                .trees = asked.at<const ops::SelectedTree>(trees_at),
                .num_trees = std::ssize(trees),
                .memory = memory_.data(),
                .selected = reinterpret_cast<ops::SelectedDrafts*>(selected_.block(0))});
}

void DeviceTrees::drafts(size_t index, speculative::Drafts& drafts) const {
  const ops::SelectedDrafts& selected =
      reinterpret_cast<const ops::SelectedDrafts*>(selected_.block(0))[index];
  drafts.tokens.assign(selected.tokens, selected.tokens + selected.count);
  drafts.parents.assign(selected.parents, selected.parents + selected.count);
}

}  // namespace heddle::runner
