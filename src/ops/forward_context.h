// SPDX-License-Identifier: Apache-2.0
// ForwardContext: what the ops that depend on the batch read besides their tensors: which rows
// belong to which sequence, and where each sequence's KV pages and recurrent state are.
//
// The runner passes this object to the ops explicitly and rebuilds it every step without
// allocation. Ops that read it have the effect kReadsContext. Ops whose launches depend on it also
// have kSplit: a captured program is split at them.
//
// The spans are host memory. Launchers for a device that cannot read host memory get the same
// arrays from `batch`, in device memory (device_batch.h copies them once a step). From the spans
// they read only lengths and counts, and whether the logits of all rows are wanted. Where every
// sequence has one row, launches depend on T, R, batch.page_table_width and wants_all_rows() alone,
// so that such a step can be captured and launched again for other sequences.
//
// Invariants: query_start is strictly increasing (every sequence has at least one row); page ids
// and slots are within their pools; two sequences never share a page that they write to, nor a
// state slot; pages whose tokens all precede kv_lens are only read, and may be shared.
// check_batch() checks the ids once a step; ops rely on them and check them again in debug builds
// only.
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

// KV cache of one attention layer: [P, S, Nkv, D] (pages, tokens of a page, kv heads, channels) in
// f32, bf16, f16 or e4m3. Page 0 is reserved: it belongs to no sequence.
struct KvLayer {
  MutableTensorView k;
  MutableTensorView v;  // no memory if values are a part of the keys
  // in e4m3, a key channel is the stored number times k_scale, a value channel times v_scale
  float k_scale = 1;
  float v_scale = 1;
  uint32_t table = 0;  // index of the page table that has the page ids of this layer
};

// Recurrent state of one layer; a layer may have only one of the two tensors. State slot 0 is
// reserved: it belongs to no sequence.
struct StateLayer {
  MutableTensorView conv;       // [slots, W - 1, C] f32: the last raw inputs, oldest first
  MutableTensorView recurrent;  // state matrices [slots, Nv, Dv, Dk] f32
};

// Names a tensor of StateLayer.
enum class StateTensor : uint8_t { kConv, kRecurrent };

// The pool that the snapshots of one layer are written to.
struct SnapshotLayer {
  MutableTensorView conv;  // convolution windows [slots, W - 1, C] f32
  MutableTensorView
      recurrent;  // [slots, Nv, Dv, Dk] f32, bf16 or i8 (linear_attention/snapshot_rows.h)
  // i8 snapshots: [slots, Nv, Dv] f32, one for each row of Dk; else empty
  MutableTensorView scales;
};

// Asks for a copy of a sequence's state after `num_tokens` of its new tokens (1 to its row count).
// `slot` is the snapshot slot in snapshot_layers that the copy is written to.
struct StateSnapshot {
  int32_t sequence = 0;
  int32_t num_tokens = 0;
  int32_t slot = 0;
};

// The arrays of a ForwardContext in device memory. Here a batch may be padded to a captured size:
// rows whose sequence is -1 and sequences whose state slot is -1 are padding. Kernels write nothing
// to the pools for padding; its rows in outputs may contain anything. The device may change these
// arrays at the head of the step (feed_drawn.h): lengths shrink by the number of rejected drafts,
// and tree masks change. The host's spans are therefore upper bounds for the lengths.
struct DeviceBatch {
  const int32_t* row_sequences = nullptr;  // [T]: the sequence of each row; -1: padding
  const int32_t* query_start = nullptr;    // [B + 1], as ForwardContext::query_start
  const int32_t* context_lens = nullptr;   // [B], as ForwardContext::context_lens
  const int32_t* kv_lens = nullptr;        // [B], as ForwardContext::kv_lens but never empty
  // Each [B, page_table_width] with rows page_table_stride apart; null for tables that
  // ForwardContext does not have.
  std::array<const int32_t*, kMaxPageTables> page_tables = {};
  int64_t page_table_width = 0;  // pages that the longest sequence may have
  int64_t page_table_stride = 0;
  // [B]: working slot of each sequence; 0 for all if the model has no states.
  const int32_t* state_slots = nullptr;
  // All snapshots of the step, sorted by sequence, then by num_tokens.
  const StateSnapshot* snapshots = nullptr;
  // [B + 1]: snapshots of sequence b are [start[b], start[b + 1]).
  const int32_t* snapshot_start = nullptr;
  const int32_t* logit_rows = nullptr;  // [R]: rows whose logits are wanted
  // [B], as ForwardContext::tree_starts; null if no sequence has a tree.
  const int32_t* tree_starts = nullptr;
  // [T], as ForwardContext::tree_masks; null if no sequence has a tree.
  const uint64_t* tree_masks = nullptr;
};

// The value of ForwardContext::tree_starts for a sequence without a tree.
inline constexpr int32_t kNoTree = std::numeric_limits<int32_t>::max();

// Most rows of a sequence in a step that few_rows_each() counts as decode-like: one new token and
// its drafts, or a very short prompt.
inline constexpr int64_t kFewRows = 8;

struct ForwardContext {
  std::span<const int32_t>
      query_start;  // [B + 1]: rows of sequence b are [query_start[b], query_start[b+1])
  std::span<const int32_t> context_lens;  // [B]: tokens of sequence b that precede its first row

  // [B]: tokens of sequence b whose keys and values are already in its pages; empty if these are
  // context_lens. Rows before kv_lens are computed like others, but they read the stored keys and
  // values and do not store their own.
  std::span<const int32_t> kv_lens;

  // Each [B, page_table_width], or empty if no layer uses the table. Entry [b, t / page_size] is
  // the page of token t of sequence b. In tables other than 0, entries for pages that are before
  // the window of the sequence's first row may have any id of the pool.
  std::array<std::span<const int32_t>, kMaxPageTables> page_tables;
  int64_t page_table_width = 0;
  int32_t page_size = 16;
  // [B]: state slot that the step reads and advances in place for sequence b.
  std::span<const int32_t> state_slots;
  // Copies of states to take, sorted by sequence, then by num_tokens.
  std::span<const StateSnapshot> snapshots;
  std::span<const int32_t> logit_rows;  // [R]: rows of the step whose logits are wanted

  // A sequence's last rows may be nodes of a draft tree, alternatives to each other
  // (speculative/draft_tree.h). Row i of sequence b is stored in the sequence's pages at index
  // context_lens[b] + i, as in a chain. From index tree_starts[b] on these are nodes of the tree. A
  // row sees the nodes that its tree_masks entry names, its ancestors and itself: bit j means the
  // node at index tree_starts[b] + j, and the nodes are in the order of their positions. All rows
  // see the tokens before tree_starts[b]. A tree may have begun in an earlier step. Both spans are
  // empty if no sequence has a tree.
  //
  // The states of a tree: the working slot gets the state after the last row before the tree; the
  // slot with the working slot's index + j + 1 gets the state after node j. Snapshots are taken
  // before the tree.
  // [B]: index in the pages at which the tree begins; kNoTree without a tree.
  std::span<const int32_t> tree_starts;
  // [T]: the tree nodes that the row sees, bit by bit; 0 for rows that are not nodes.
  std::span<const uint64_t> tree_masks;

  // Number of padding sequences at the end of the batch (runner/program/batch_padding.h). The page
  // tables have no rows for them, and their state slot is -1.
  int64_t num_padding = 0;

  std::span<const KvLayer> kv_layers;        // KV caches of the layers with pages, in order
  std::span<const StateLayer> state_layers;  // states of the recurrent layers, in order
  // Pools that snapshots are written to, one for each recurrent layer; empty: the pools of
  // state_layers.
  std::span<const SnapshotLayer> snapshot_layers;

  DeviceBatch batch;  // the arrays in device memory; empty on the CPU

  [[nodiscard]] int64_t num_sequences() const { return static_cast<int64_t>(context_lens.size()); }

  [[nodiscard]] int64_t num_rows(int64_t b) const {
    return query_start[static_cast<size_t>(b + 1)] - query_start[static_cast<size_t>(b)];
  }

  // Number of tokens that sequence b has after the step, and the pages for them.
  [[nodiscard]] int64_t num_tokens(int64_t b) const {
    return context_lens[static_cast<size_t>(b)] + num_rows(b);
  }

  [[nodiscard]] int64_t num_pages(int64_t b) const {
    return (num_tokens(b) + page_size - 1) / page_size;
  }

  // Number of sequences that are not padding.
  [[nodiscard]] int64_t num_real_sequences() const { return num_sequences() - num_padding; }

  // The number of rows of each sequence, if all have equally many, at most kFewRows, and none has a
  // tree; else 0. The launches of such a step depend on no sequence length, so that it can be
  // captured.
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

  // Index in the pages of sequence b at which its tree begins; kNoTree if it has none.
  [[nodiscard]] int64_t tree_start(int64_t b) const {
    return tree_starts.empty() ? int64_t{kNoTree} : tree_starts[static_cast<size_t>(b)];
  }

  // Number of rows of sequence b before its tree; all of its rows if it has none.
  [[nodiscard]] int64_t num_chain_rows(int64_t b) const {
    if (!has_tree(b)) return num_rows(b);
    return std::max<int64_t>(tree_start(b) - context_lens[static_cast<size_t>(b)], 0);
  }

  // The tree nodes that row i of sequence b (counted within the sequence) attends to, as a bit
  // mask; 0 if the row is not a node.
  [[nodiscard]] uint64_t tree_mask(int64_t b, int64_t i) const {
    if (tree_masks.empty()) return 0;
    return tree_masks[static_cast<size_t>(query_start[static_cast<size_t>(b)] + i)];
  }

  // Position in the text of row i of sequence b; nodes of equal depth have equal positions.
  [[nodiscard]] int64_t position(int64_t b, int64_t i) const {
    const uint64_t mask = tree_mask(b, i);
    if (mask == 0) return context_lens[static_cast<size_t>(b)] + i;
    return tree_start(b) + std::popcount(mask) - 1;
  }

  // The row of sequence b whose token precedes that of row i; -1: the last token of the context. If
  // the sequence has a tree, the tree must have begun in this step.
  [[nodiscard]] int64_t parent_row(int64_t b, int64_t i) const {
    const uint64_t mask = tree_mask(b, i);
    if (mask == 0) return i - 1;
    const int64_t first = tree_start(b) - context_lens[static_cast<size_t>(b)];
    const uint64_t above = mask ^ std::bit_floor(mask);
    return first - 1 + static_cast<int64_t>(std::bit_width(above));
  }

  // The first token of sequence b whose key and value the step stores. In tables other than 0,
  // computed rows only have pages that no other sequence shares, so that all of them are stored.
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

  // The snapshots to take of sequence b's state.
  [[nodiscard]] std::span<const StateSnapshot> snapshots_of(int64_t b) const {
    const auto [first, last] = std::equal_range(
        snapshots.begin(), snapshots.end(), StateSnapshot{.sequence = static_cast<int32_t>(b)},
        [](const StateSnapshot& x, const StateSnapshot& y) { return x.sequence < y.sequence; });
    return {first, last};
  }
};

// Checks all ids of a step of T rows; called once at the head of the step, before any op runs. Page
// ids are checked against the smallest pool of their kv_layers, slots against the pools of
// state_layers and snapshot_layers; pages or states that the model does not have are not checked.
// Error: kInvalidArgument, naming the sequence and the id or number that does not fit. Cost: O(B *
// pages), without allocation.
Status check_batch(const ForwardContext& forward, int64_t T);

// check_rows() and check_page_ids() are parts of check_batch(). Every op calls check_rows(), which
// costs O(1): it checks that the batch has as many rows as the op's tensors. Error:
// kInvalidArgument starting with the op's name.
Status check_rows(const char* op, const ForwardContext* forward, int64_t T);
Status check_page_ids(const ForwardContext& forward, size_t table, int64_t num_pages,
                      int64_t page_size);
Status check_state_slots(const ForwardContext& forward, int64_t num_slots,
                         int64_t num_snapshot_slots);

}  // namespace heddle::ops
