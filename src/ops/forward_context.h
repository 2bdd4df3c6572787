// SPDX-License-Identifier: Apache-2.0
// ForwardContext: what the ops that depend on the batch read beside their tensors: which rows
// belong to which sequence, where each sequence's KV pages and recurrent state lie.
//
// An explicit object handed down by the runner, rebuilt every step without allocation. Ops that
// read it carry the effect kReadsContext, and those whose launch depends on it kSplit: there a
// captured program is cut.
//
// The spans are host memory. Launchers of a device that cannot read it take the same arrays from
// `batch`, which are memory of the device (device_batch.h copies them, once a step), and from the
// spans only lengths and counts, and whether all rows are wanted. Where every sequence has one row,
// even these do not decide about launches: they depend on T, R, batch.page_table_width and
// wants_all_rows() alone, so that a step of that kind can be captured and launched again for other
// sequences.
//
// Invariants: query_start is strictly increasing (every sequence has at least one row); page ids
// and slots are within their pools; two sequences never share a page they write to, nor a state
// slot; pages whose rows all lie below kv_lens are only read, and may be shared. check_batch()
// checks the ids once a step; ops rely on them and check them again in debug builds only.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>

#include <heddle/status.h>

#include "core/tensor.h"
#include "ops/pool_ids.h"

namespace heddle::ops {

// KV cache of one attention layer: [P, S, Nkv, D] f32, bf16, f16 or e4m3. Page 0
// belongs to no sequence.
struct KvLayer {
  MutableTensorView k;
  MutableTensorView v;  // null if values are a part of the keys
  float k_scale = 1;    // e4m3: factor from a stored number to a channel of a key (k) or value (v)
  float v_scale = 1;
  uint32_t table = 0;  // page table with the ids of its pages
};

// Recurrent state of one layer, which may have one of the tensors only. Slot 0
// belongs to no sequence.
struct StateLayer {
  MutableTensorView conv;       // [slots, W - 1, C] f32: the last raw inputs, oldest first
  MutableTensorView recurrent;  // [slots, Nv, Dv, Dk] f32
};

// The tensors of a StateLayer.
enum class StateTensor : uint8_t { kConv, kRecurrent };

// The pool that one layer's snapshots are written to.
struct SnapshotLayer {
  MutableTensorView conv;  // [slots, W - 1, C] f32
  MutableTensorView
      recurrent;  // [slots, Nv, Dv, Dk] f32, bf16 or i8 (linear_attention/snapshot_rows.h)
  MutableTensorView scales;  // i8: [slots, Nv, Dv] f32, one for each row of Dk; else empty
};

// A copy of the state wanted after `num_tokens` new tokens of a sequence (1 to its row
// count). `slot` is one of snapshot_layers.
struct StateSnapshot {
  int32_t sequence = 0;
  int32_t num_tokens = 0;
  int32_t slot = 0;
};

// The arrays of a ForwardContext in memory of the device. A batch may be padded to a size that was
// captured, there: rows whose sequence is -1 and sequences whose state slot is -1 are padding.
// Launchers write nothing of the pools for them; their rows of outputs may hold anything. Lengths
// may be less than the spans say, by drafts that turned out not to hold, and nodes of a tree may
// see others than these say (feed_drawn.h): launchers take what is on the host for bounds.
struct DeviceBatch {
  const int32_t* row_sequences = nullptr;  // [T]: the sequence of each row, -1: padding
  const int32_t* query_start = nullptr;    // [B + 1]
  const int32_t* context_lens = nullptr;   // [B]
  const int32_t* kv_lens = nullptr;        // [B], never empty
  // Each [B, page_table_width], rows further apart; null where ForwardContext has none.
  std::array<const int32_t*, kMaxPageTables> page_tables = {};
  int64_t page_table_width = 0;  // pages that the longest sequence may have
  int64_t page_table_stride = 0;
  const int32_t* state_slots = nullptr;      // [B]; 0 for all where the model has no states
  const StateSnapshot* snapshots = nullptr;  // sorted by sequence, then by num_tokens
  const int32_t* snapshot_start = nullptr;   // [B + 1]: sequence b has [start[b], start[b + 1])
  const int32_t* logit_rows = nullptr;       // [R]
  const int32_t* tree_starts = nullptr;      // [B]; null if no sequence has a tree
  const uint64_t* tree_masks = nullptr;      // [T]; null if no sequence has a tree
};

// ForwardContext::tree_starts of a sequence without a tree.
inline constexpr int32_t kNoTree = std::numeric_limits<int32_t>::max();

// Rows of a sequence that decodes, drafts included, or of the shortest prompts.
inline constexpr int64_t kFewRows = 8;

struct ForwardContext {
  std::span<const int32_t>
      query_start;  // [B + 1]: rows of sequence b are [query_start[b], query_start[b+1])
  std::span<const int32_t> context_lens;  // [B]: tokens of b that precede its first row

  // [B], or empty for context_lens: tokens of b whose keys and values are already in its pages.
  // Rows below it are computed like others but read the stored keys and values and do not store
  // theirs.
  std::span<const int32_t> kv_lens;

  // Each [B, page_table_width], or empty where no layer has it: the page of token t of b is
  // [b, t / page_size]. Beyond table 0, pages that the window of a sequence's first row has left
  // may have any id of the pool.
  std::array<std::span<const int32_t>, kMaxPageTables> page_tables;
  int64_t page_table_width = 0;
  int32_t page_size = 16;
  std::span<const int32_t> state_slots;      // [B]: working slot of b, read and advanced in place
  std::span<const StateSnapshot> snapshots;  // sorted by sequence, then by num_tokens
  std::span<const int32_t> logit_rows;       // rows whose logits are wanted

  // Sequences whose last rows are alternatives of each other (speculative/draft_tree.h). A row
  // lies in its sequence's pages at the place where it would lie in a chain, context_lens[b] + i;
  // from place tree_starts[b] on these are nodes of a tree, of which a row sees those that
  // tree_masks names: bit j stands for place tree_starts[b] + j, and they are its ancestors and
  // itself, in the order of their positions. Places before tree_starts[b] all see. A tree may have
  // begun in an earlier step. Both spans are empty where no sequence has a tree.
  //
  // A tree's states: the working slot gets the state after the last row before the tree, the slot
  // j + 1 behind it the state after node j. Snapshots lie before the tree.
  std::span<const int32_t> tree_starts;  // [B], kNoTree without a tree
  std::span<const uint64_t> tree_masks;  // [T], 0 for rows that are no nodes

  // Sequences at the end of these that stand for nothing (runner/program/batch_padding.h): of the
  // arrays by sequence the page tables have no rows for them, and a state slot is -1.
  int64_t num_padding = 0;

  std::span<const KvLayer> kv_layers;        // layers with pages, in order
  std::span<const StateLayer> state_layers;  // layers with states, in order
  // Where snapshots of the layers with states go; empty: to state_layers.
  std::span<const SnapshotLayer> snapshot_layers;

  DeviceBatch batch;  // empty on the CPU

  [[nodiscard]] int64_t num_sequences() const { return static_cast<int64_t>(context_lens.size()); }

  [[nodiscard]] int64_t num_rows(int64_t b) const {
    return query_start[static_cast<size_t>(b + 1)] - query_start[static_cast<size_t>(b)];
  }

  // Tokens of b after the step, and their pages.
  [[nodiscard]] int64_t num_tokens(int64_t b) const {
    return context_lens[static_cast<size_t>(b)] + num_rows(b);
  }

  [[nodiscard]] int64_t num_pages(int64_t b) const {
    return (num_tokens(b) + page_size - 1) / page_size;
  }

  // The sequences that are not padding.
  [[nodiscard]] int64_t num_real_sequences() const { return num_sequences() - num_padding; }

  // How many rows each sequence has, where all have as many, they are few and none has a tree; else
  // 0. Launches of such a step depend on no number of tokens, so that it can be captured.
  [[nodiscard]] int64_t few_rows_each() const {
    if (num_sequences() == 0 || !tree_starts.empty()) return 0;
    const int64_t each = num_rows(0);
    if (each > kFewRows) return 0;
    for (int64_t b = 1; b < num_sequences(); ++b) {
      if (num_rows(b) != each) return 0;
    }
    return each;
  }

  // Whether the logits of all `rows` rows of the step are wanted, in order. Launches may depend on
  // it, because a step whose wanted rows change on the device (FedRow::kWanted) never wants all.
  [[nodiscard]] bool wants_all_rows(int64_t rows) const {
    if (std::ssize(logit_rows) != rows) return false;
    for (int64_t row = 0; row < rows; ++row) {
      if (logit_rows[static_cast<size_t>(row)] != row) return false;
    }
    return true;
  }

  [[nodiscard]] bool has_tree(int64_t b) const {
    return !tree_starts.empty() && tree_starts[static_cast<size_t>(b)] != kNoTree;
  }

  // The place in its pages where the tree of b begins; beyond all places where there is none.
  [[nodiscard]] int64_t tree_start(int64_t b) const {
    return tree_starts.empty() ? int64_t{kNoTree} : tree_starts[static_cast<size_t>(b)];
  }

  // How many rows of b come before its tree; all where there is none.
  [[nodiscard]] int64_t num_chain_rows(int64_t b) const {
    if (!has_tree(b)) return num_rows(b);
    return std::max<int64_t>(tree_start(b) - context_lens[static_cast<size_t>(b)], 0);
  }

  // The nodes of its tree that row i of sequence b (counted within the sequence) attends to; 0
  // where the row is no node.
  [[nodiscard]] uint64_t tree_mask(int64_t b, int64_t i) const {
    if (tree_masks.empty()) return 0;
    return tree_masks[static_cast<size_t>(query_start[static_cast<size_t>(b)] + i)];
  }

  // The position of row i of b in its text.
  [[nodiscard]] int64_t position(int64_t b, int64_t i) const {
    const uint64_t mask = tree_mask(b, i);
    if (mask == 0) return context_lens[static_cast<size_t>(b)] + i;
    return tree_start(b) + std::popcount(mask) - 1;
  }

  // The row of b that row i follows; -1: the last token of the context. The tree, if any, has begun
  // in this step.
  [[nodiscard]] int64_t parent_row(int64_t b, int64_t i) const {
    const uint64_t mask = tree_mask(b, i);
    if (mask == 0) return i - 1;
    const int64_t first = tree_start(b) - context_lens[static_cast<size_t>(b)];
    const uint64_t above = mask ^ std::bit_floor(mask);
    return first - 1 + static_cast<int64_t>(std::bit_width(above));
  }

  // The first token of b whose key and value are stored. Beyond table 0, pages of rows that are
  // computed are the sequence's own: all of these rows are stored.
  [[nodiscard]] int64_t first_stored(int64_t b, size_t table) const {
    const bool all = kv_lens.empty() || table > 0;
    return (all ? context_lens : kv_lens)[static_cast<size_t>(b)];
  }

  [[nodiscard]] const int32_t* pages(int64_t b, size_t table = 0) const {
    return page_tables[table].data() + b * page_table_width;
  }

  // Number of leading tables that include all tables in use.
  [[nodiscard]] size_t num_page_tables() const {
    size_t count = kMaxPageTables;
    while (count > 0 && page_tables[count - 1].empty()) --count;
    return count;
  }

  // The snapshots of sequence b.
  [[nodiscard]] std::span<const StateSnapshot> snapshots_of(int64_t b) const {
    const auto [first, last] = std::equal_range(
        snapshots.begin(), snapshots.end(), StateSnapshot{.sequence = static_cast<int32_t>(b)},
        [](const StateSnapshot& x, const StateSnapshot& y) { return x.sequence < y.sequence; });
    return {first, last};
  }
};

// The one place that proves the invariants of ids: called at the head of a step of T rows, before
// any op runs. Pages are checked against the smallest pool of their kv_layers, slots
// against those of state_layers and snapshot_layers; a kind of memory that the model does not have
// is not looked at. Error: kInvalidArgument, naming the sequence and the id or number that does not
// fit. Cost: O(B * pages), without allocation.
Status check_batch(const ForwardContext& forward, int64_t T);

// Parts of check_batch(). The first belongs to every op's contract and costs O(1): the batch has as
// many rows as the op's tensors. Error: kInvalidArgument starting with the op's name.
Status check_rows(const char* op, const ForwardContext* forward, int64_t T);
Status check_page_ids(const ForwardContext& forward, size_t table, int64_t num_pages,
                      int64_t page_size);
Status check_state_slots(const ForwardContext& forward, int64_t num_slots,
                         int64_t num_snapshot_slots);

}  // namespace heddle::ops
