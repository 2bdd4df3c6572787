// SPDX-License-Identifier: Apache-2.0
#include "ops/forward_context.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <ranges>
#include <span>

#include <fmt/format.h>

namespace heddle::ops {

namespace {

// The smallest number of ids among the pools of these layers.
template <class Layers, class GetPool>
int64_t fewest_ids(Layers&& layers, const GetPool& pool_of) {
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (const auto& layer : layers) fewest = std::min(fewest, pool_of(layer).shape[0]);
  return fewest;
}

Status check_sequences(const ForwardContext& forward) {
  const int64_t B = forward.num_sequences();
  for (int64_t b = 0; b < B; ++b) {
    const int32_t context = forward.context_lens[static_cast<size_t>(b)];
    if (forward.num_rows(b) <= 0 || context < 0) {
      return invalid_argument(fmt::format(
          "sequence {} has {} rows after {} tokens; every sequence needs at least one row", b,
          forward.num_rows(b), context));
    }
  }
  return {};
}

// Checks tree masks: the highest bit of a node's mask is the node itself, and the nodes of a step
// are its last rows, from the first node on.
Status check_trees(const ForwardContext& forward, int64_t T) {
  if (forward.tree_starts.empty() && forward.tree_masks.empty()) return {};
  if (std::ssize(forward.tree_starts) != forward.num_sequences() ||
      std::ssize(forward.tree_masks) != T) {
    return invalid_argument(fmt::format(
        "trees have {} starts and {} masks, the batch has {} sequences and {} rows",
        forward.tree_starts.size(), forward.tree_masks.size(), forward.num_sequences(), T));
  }
  for (int64_t b = 0; b < forward.num_sequences(); ++b) {
    const int64_t context = forward.context_lens[static_cast<size_t>(b)];
    const int64_t start = forward.tree_start(b);
    for (int64_t i = 0; i < forward.num_rows(b); ++i) {
      const int64_t node = context + i - start;
      const uint64_t mask = forward.tree_mask(b, i);
      const bool fits =
          node < 0 ? mask == 0 : static_cast<int64_t>(std::bit_width(mask)) == node + 1;
      if (start >= 0 && fits) continue;
      return invalid_argument(fmt::format(
          "row {} of sequence {} is node {} of a tree and sees nodes {:#x}", i, b, node, mask));
    }
  }
  return {};
}

Status check_logit_rows(const ForwardContext& forward, int64_t T) {
  for (const int32_t row : forward.logit_rows) {
    if (row < 0 || row >= T) {
      return invalid_argument(fmt::format("logits of row {} are wanted, there are {}", row, T));
    }
  }
  return {};
}

}  // namespace

Status check_rows(const char* op, const ForwardContext* forward, int64_t T) {
  if (forward == nullptr) {
    return invalid_argument(fmt::format("{}: needs a ForwardContext, has none", op));
  }
  const int64_t B = forward->num_sequences();
  if (static_cast<int64_t>(forward->query_start.size()) != B + 1) {
    return invalid_argument(fmt::format("{}: query_start has {} entries, {} sequences need {}", op,
                                        forward->query_start.size(), B, B + 1));
  }
  const int32_t first = forward->query_start.front();
  const int32_t last = forward->query_start.back();
  if (first != 0 || last != T) {
    return invalid_argument(fmt::format("{}: query_start covers rows {} to {}, the tensors have {}",
                                        op, first, last, T));
  }
  return {};
}

Status check_page_ids(const ForwardContext& forward, size_t table, int64_t num_pages,
                      int64_t page_size) {
  const int64_t B = forward.num_sequences();
  if (forward.page_size != page_size) {
    return invalid_argument(fmt::format("the batch has pages of {} tokens, the pool pages of {}",
                                        forward.page_size, page_size));
  }
  if (!forward.kv_lens.empty() && static_cast<int64_t>(forward.kv_lens.size()) != B) {
    return invalid_argument(fmt::format("kv_lens has {} entries, the batch has {} sequences",
                                        forward.kv_lens.size(), B));
  }
  const int64_t num_real = forward.num_real_sequences();
  const std::span<const int32_t> entries = forward.page_tables[table];
  if (std::ssize(entries) < num_real * forward.page_table_width) {
    return invalid_argument(fmt::format("page table {} has {} entries, {} x {} are needed", table,
                                        entries.size(), num_real, forward.page_table_width));
  }
  for (int64_t b = 0; b < num_real; ++b) {
    const int64_t used = forward.num_pages(b);
    if (used > forward.page_table_width) {
      return invalid_argument(
          fmt::format("sequence {} has {} tokens, its page table has room for "
                      "{}",
                      b, forward.num_tokens(b), forward.page_table_width * page_size));
    }
    const std::span<const int32_t> pages(forward.pages(b, table), static_cast<size_t>(used));
    const auto outside = std::ranges::find_if(pages, [num_pages](int32_t page) {
      return static_cast<uint32_t>(page) >= static_cast<uint64_t>(num_pages);
    });
    if (outside != pages.end()) {
      return invalid_argument(
          fmt::format("sequence {} names page {} in page table {}, the pool has {}", b, *outside,
                      table, num_pages));
    }
  }
  return {};
}

Status check_state_slots(const ForwardContext& forward, int64_t num_slots,
                         int64_t num_snapshot_slots) {
  const int64_t B = forward.num_sequences();
  if (static_cast<int64_t>(forward.state_slots.size()) != B) {
    return invalid_argument(fmt::format("state_slots has {} entries, the batch has {} sequences",
                                        forward.state_slots.size(), B));
  }
  for (int64_t b = 0; b < forward.num_real_sequences(); ++b) {
    const int32_t slot = forward.state_slots[static_cast<size_t>(b)];
    if (slot < 0 || slot >= num_slots) {
      return invalid_argument(
          fmt::format("sequence {} has state slot {}, the pool has {}", b, slot, num_slots));
    }
  }
  for (int64_t b = 0; b < forward.num_sequences(); ++b) {
    const int64_t nodes = forward.num_rows(b) - forward.num_chain_rows(b);
    const int64_t slot = forward.state_slots[static_cast<size_t>(b)];
    if (forward.has_tree(b) &&
        (forward.tree_start(b) < forward.context_lens[static_cast<size_t>(b)] ||
         slot + nodes >= num_slots)) {
      return invalid_argument(
          fmt::format("sequence {} has {} nodes of a tree behind state slot {}, the pool has {}", b,
                      nodes, slot, num_slots));
    }
  }
  const StateSnapshot* previous = nullptr;
  for (const StateSnapshot& snapshot : forward.snapshots) {
    if (snapshot.sequence < 0 || snapshot.sequence >= B || snapshot.slot < 0 ||
        snapshot.slot >= num_snapshot_slots || snapshot.num_tokens < 1 ||
        snapshot.num_tokens > forward.num_chain_rows(snapshot.sequence)) {
      return invalid_argument(fmt::format(
          "the snapshot of sequence {} after {} tokens in slot {} does not fit {} sequences and {} "
          "slots",
          snapshot.sequence, snapshot.num_tokens, snapshot.slot, B, num_snapshot_slots));
    }
    if (previous != nullptr &&
        (previous->sequence > snapshot.sequence ||
         (previous->sequence == snapshot.sequence && previous->num_tokens > snapshot.num_tokens))) {
      return invalid_argument("snapshots must be sorted by sequence, then by num_tokens");
    }
    previous = &snapshot;
  }
  return {};
}

namespace {

// Checks that the two tensors of a layer have equally many slots, if it has both.
template <typename Layer>
const MutableTensorView& any_tensor_of(const Layer& layer) {
  return layer.recurrent.shape.rank() > 0 ? layer.recurrent : layer.conv;
}

}  // namespace

Status check_batch(const ForwardContext& forward, int64_t T) {
  HEDDLE_RETURN_IF_ERROR(check_rows("batch", &forward, T));
  HEDDLE_RETURN_IF_ERROR(check_sequences(forward));
  HEDDLE_RETURN_IF_ERROR(check_trees(forward, T));
  HEDDLE_RETURN_IF_ERROR(check_logit_rows(forward, T));
  for (size_t table = 0; table < kMaxPageTables; ++table) {
    const auto reads_it = [table](const KvLayer& layer) { return layer.table == table; };
    if (std::ranges::none_of(forward.kv_layers, reads_it)) continue;
    const int64_t num_pages = fewest_ids(forward.kv_layers | std::views::filter(reads_it),
                                         [](const KvLayer& layer) { return layer.k; });
    HEDDLE_RETURN_IF_ERROR(
        check_page_ids(forward, table, num_pages, forward.kv_layers.front().k.shape[1]));
  }
  if (!forward.state_layers.empty()) {
    const int64_t num_slots =
        fewest_ids(forward.state_layers, [](const StateLayer& l) { return any_tensor_of(l); });
    const int64_t num_snapshot_slots =
        forward.snapshot_layers.empty()
            ? num_slots
            : fewest_ids(forward.snapshot_layers,
                         [](const SnapshotLayer& l) { return any_tensor_of(l); });
    HEDDLE_RETURN_IF_ERROR(check_state_slots(forward, num_slots, num_snapshot_slots));
  }
  return {};
}

}  // namespace heddle::ops
