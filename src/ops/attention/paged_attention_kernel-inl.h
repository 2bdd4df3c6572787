// SPDX-License-Identifier: Apache-2.0
// The arithmetic of paged attention on the CPU, compiled for each instruction set. It has three
// steps: attend_segment() runs the online softmax of a unit over the blocks of one segment,
// join_segment() adds its result to that of the segments before it, and write_unit() divides by the
// sum. A row goes through the same operations in whatever unit it is computed.
#if defined(HEDDLE_OPS_ATTENTION_PAGED_ATTENTION_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_ATTENTION_PAGED_ATTENTION_KERNEL_INL_H_
#undef HEDDLE_OPS_ATTENTION_PAGED_ATTENTION_KERNEL_INL_H_
#else
#define HEDDLE_OPS_ATTENTION_PAGED_ATTENTION_KERNEL_INL_H_
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include <hwy/cache_control.h>

#include "ops/attention/paged_attention_unit.h"
#include "ops/simd/math-inl.h"
#include "ops/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::attention::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace math = heddle::ops::simd::HWY_NAMESPACE;
namespace tile = heddle::ops::tile::HWY_NAMESPACE;

using D = tile::D;
using V = tile::V;

inline constexpr size_t kLanes = tile::kLanes;
inline constexpr size_t kBlock = static_cast<size_t>(kAttentionBlock);
inline constexpr size_t kSliceWidth = 64;

// Copying a block's keys and values to f32 pays only for units with at least this many rows.
inline constexpr int64_t kMinRowsToCopy = 12;

HWY_INLINE float exp_of(float x) {
  const D d;
  return hn::GetLane(math::Exp(d, hn::Set(d, x)));
}

// Pointers to the keys and values of a block's tokens. Tokens are counted from the block's start;
// only those of [begin, end) have pointers.
template <class T>
struct KvBlock {
  std::array<const T*, kBlock> k;
  std::array<const T*, kBlock> v;
  size_t begin = 0;
  size_t end = 0;

  // The first token of the group of kDotGroup tokens that contains token `begin`.
  [[nodiscard]] size_t first_group() const { return begin / tile::kDotGroup * tile::kDotGroup; }
};

// The tokens of a block that a row attends to, counted from the block's start; begin <= end.
struct BlockSpan {
  int32_t begin = 0;
  int32_t end = 0;
};

// Maps the tokens that a row attends to to their indices in its sequence's pages.
struct TokenPlaces {
  int64_t tree_start = kNoTree;
  uint64_t tree_mask = 0;  // the tree nodes that the row attends to, bit by bit

  // Returns the index of a token in the sequence's pages, and how many tokens from it on are stored
  // at consecutive indices.
  [[nodiscard]] std::pair<int64_t, int64_t> find(int64_t token) const {
    if (token < tree_start) return {token, tree_start - token};
    uint64_t mask = tree_mask;  // bit i stands for token tree_start + i
    for (int64_t i = tree_start; i < token; ++i) mask &= mask - 1;
    return {tree_start + std::countr_zero(mask), 1};
  }
};

// Sets pointers to those of `tokens` that are in the block that begins at token `first`; there may
// be none. Pointers to keys fill whole groups of kDotGroup by repeating the first and the last
// pointer, so that a whole group can be read.
template <class T>
void locate_block(const PagedAttentionArgs& args, const AttentionUnit& unit, int64_t first,
                  const TokenRange& tokens, const TokenPlaces& places, KvBlock<T>& block) {
  const ForwardContext& forward = *args.forward;
  const int32_t* pages = forward.pages(unit.sequence, args.kv.table);
  const int64_t S = forward.page_size;
  const bool latent = args.kv.v.data == nullptr;
  const MutableTensorView& values = latent ? args.kv.k : args.kv.v;
  const int64_t value_dim = latent ? args.head_dim : value_dim_of(args);
  const int64_t k_stride = args.num_kv_heads * args.head_dim;
  const int64_t v_stride = args.num_kv_heads * value_dim;
  const int64_t end = std::min(tokens.end, first + kAttentionBlock);
  const int64_t begin = std::min(std::max(tokens.begin, first), end);
  block.begin = static_cast<size_t>(std::max<int64_t>(begin - first, 0));
  block.end = static_cast<size_t>(std::max<int64_t>(end - first, 0));
  if (begin >= end) return;
  size_t i = block.begin;
  for (int64_t token = begin; token < end;) {
    const auto [place, num_behind] = places.find(token);
    const int64_t page = pages[place / S];
    const int64_t slot = place % S;
    const T* k = args.kv.k.row<T>(page) + slot * k_stride + unit.kv_head * args.head_dim;
    const T* v = values.row<T>(page) + slot * v_stride + unit.kv_head * value_dim;
    const int64_t run = std::min({S - slot, end - token, num_behind});
    for (int64_t j = 0; j < run; ++j, ++i) {
      block.k[i] = k + j * k_stride;
      block.v[i] = v + j * v_stride;
    }
    token += run;
  }
  for (; i % tile::kDotGroup != 0; ++i) block.k[i] = block.k[i - 1];
  for (i = block.first_group(); i < block.begin; ++i) block.k[i] = block.k[block.begin];
}

// Copies from[0, width) to `to` as f32 and writes zeros up to `padded`.
template <class T>
HWY_INLINE void copy_row(const T* from, int64_t width, int64_t padded, float* to) {
  const D d;
  const auto n = static_cast<size_t>(width);
  size_t c = 0;
  for (; c + kLanes <= n; c += kLanes) hn::StoreU(math::LoadFloats(d, from + c), d, to + c);
  for (; c < n; ++c) to[c] = to_float(from[c]);
  for (; c < static_cast<size_t>(padded); ++c) to[c] = 0.0f;
}

// Softmax of `num_rows` rows over one block: turns scores into exp(score - new max) and sets
// `shrink` to the factor by which each row's earlier sums must be multiplied. Vectors start at
// fixed positions of the block, and their lanes outside a row's span count as -infinity.
HWY_INLINE void softmax_block(size_t num_rows, const BlockSpan* spans, float* scores,
                              const AttentionState& state, float* shrink) {
  const D d;
  const V lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (size_t r = 0; r < num_rows; ++r) {
    const auto begin = static_cast<size_t>(spans[r].begin);
    const auto limit = static_cast<size_t>(spans[r].end);
    if (begin == limit) {  // the block has no token that the row attends to
      shrink[r] = 1.0f;
      continue;
    }
    float* row = scores + r * kBlock;
    V top = lowest;
    const size_t start = begin / kLanes * kLanes;
    if (begin > start) {
      const auto hidden = hn::FirstN(d, begin - start);
      hn::StoreU(hn::IfThenElse(hidden, lowest, hn::LoadU(d, row + start)), d, row + start);
    }
    size_t j = start;
    for (; j + kLanes <= limit; j += kLanes) top = hn::Max(top, hn::LoadU(d, row + j));
    if (j < limit) {
      const auto visible = hn::FirstN(d, limit - j);
      const V last = hn::IfThenElse(visible, hn::LoadU(d, row + j), lowest);
      hn::StoreU(last, d, row + j);
      top = hn::Max(top, last);
    }
    const float old_max = state.max[r];
    const float new_max = std::max(old_max, hn::GetLane(hn::MaxOfLanes(d, top)));
    const V base = hn::Set(d, new_max);
    V sum = hn::Zero(d);
    for (j = start; j < limit; j += kLanes) {
      const V p = math::Exp(d, hn::Sub(hn::LoadU(d, row + j), base));
      hn::StoreU(p, d, row + j);
      sum = hn::Add(sum, p);
    }
    shrink[r] = exp_of(old_max - new_max);
    float* running = state.sum + r * static_cast<size_t>(kMaxLanes);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, running), hn::Set(d, shrink[r]), sum), d, running);
    state.max[r] = new_max;
  }
}

// output[r] = output[r] * shrink[r] + sum over row r's tokens j of p[r][j] * v[j], for `width`
// columns of v that `rows` points to. A row adds its tokens in ascending order, both in a tile of
// several rows and alone.
template <class Rows>
HWY_NOINLINE void accumulate_values(size_t num_rows, const BlockSpan* spans, const float* scores,
                                    const float* shrink, const Rows& rows, size_t width,
                                    float* output, size_t output_stride) {
  constexpr auto kStep = static_cast<size_t>(tile::kTileRows);
  for (size_t r = 0; r < num_rows; r += kStep) {
    const size_t n = std::min(kStep, num_rows - r);
    const tile::Coefficients p{scores + r * kBlock, kBlock, 1};
    float* out = output + r * output_stride;
    const auto begin = static_cast<size_t>(spans[r].begin);
    // Later rows never begin earlier: a window moves along.
    if (spans[r + n - 1].begin != spans[r].begin) {
      for (size_t i = 0; i < n; ++i) {
        const auto first = static_cast<size_t>(spans[r + i].begin);
        tile::AccumulateRows<1, tile::Start::kScaled>(p.from(i, first), rows.from(first), width,
                                                      static_cast<size_t>(spans[r + i].end) - first,
                                                      shrink + r + i, out + i * output_stride,
                                                      output_stride);
      }
      continue;
    }
    // Later rows see at least the tokens of the first row: a tile adds these for all rows at once,
    // and each row adds its further tokens alone.
    const auto end = static_cast<size_t>(spans[r].end);
    tile::AccumulateUpTo4<tile::Start::kScaled>(n, p.from(0, begin), rows.from(begin), width,
                                                end - begin, shrink + r, out, output_stride);
    for (size_t i = 1; i < n; ++i) {
      const size_t more = static_cast<size_t>(spans[r + i].end) - end;
      if (more == 0) continue;
      tile::AccumulateRows<1, tile::Start::kValue>(p.from(i, end), rows.from(end), width, more,
                                                   nullptr, out + i * output_stride, output_stride);
    }
  }
}

// Position of the last token that row `row` of the unit attends to.
HWY_INLINE int64_t position_of(const PagedAttentionArgs& args, const AttentionUnit& unit,
                               int64_t group, int64_t row) {
  return args.forward->position(unit.sequence, (unit.first_row + row) / group);
}

// Multiplies x[begin, end) by `scale`.
HWY_INLINE void scale_channels(float* x, size_t begin, size_t end, float scale) {
  const D d;
  const V factor = hn::Set(d, scale);
  size_t c = begin;
  for (; c + kLanes <= end; c += kLanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + c), factor), d, x + c);
  for (; c < end; ++c) x[c] *= scale;
}

// Copies the unit's queries as f32 with padding. They are multiplied here by the scale of the
// scores and the scales of the stored keys, once per element.
HWY_INLINE void gather_queries(const PagedAttentionArgs& args, const AttentionUnit& unit,
                               int64_t group, int64_t padded, float* q) {
  const int64_t first_token = args.forward->query_start[static_cast<size_t>(unit.sequence)];
  for (int64_t r = 0; r < unit.num_rows; ++r) {
    const int64_t row = unit.first_row + r;
    const float* from = args.q.row<float>(first_token + row / group) +
                        (unit.kv_head * group + row % group) * args.head_dim;
    float* to = q + r * padded;
    copy_row(from, args.head_dim, padded, to);
    const auto num_values = static_cast<size_t>(num_value_channels(args));
    scale_channels(to, 0, num_values, args.scale * args.kv.v_scale);
    scale_channels(to, num_values, static_cast<size_t>(padded), args.scale * args.kv.k_scale);
  }
}

// The rows of a unit that are computed together on one block, and their memory.
struct BlockRows {
  size_t num_rows = 0;
  size_t width = 0;        // D rounded up to whole vectors
  size_t value_width = 0;  // Dv rounded up to whole vectors
  // The tokens of the block that each row attends to.
  std::array<BlockSpan, static_cast<size_t>(kUnitRows)> spans{};
};

// Prefetches all cache lines of a row of a key or value.
template <class T>
HWY_INLINE void prefetch_row(const T* row, int64_t width) {
  constexpr auto kPerLine = static_cast<int64_t>(64 / sizeof(T));
  for (int64_t c = 0; c < width; c += kPerLine) hwy::Prefetch(row + c);
}

// For few rows: reads keys and values in the pages, without a copy. Reading them is most of the
// work, so each phase prefetches for the next one: the values of this block, then the keys of the
// next.
template <class T>
void attend_from_pages(const AttentionScratch& scratch, const BlockRows& rows,
                       const KvBlock<T>& block, const KvBlock<T>& next,
                       const AttentionState& state) {
  constexpr size_t kGroup = tile::kDotGroup;
  const auto width = static_cast<int64_t>(rows.width);
  const auto value_width = static_cast<int64_t>(rows.value_width);
  for (size_t j = block.first_group(); j < block.end; j += kGroup) {
    const size_t group_end = std::min(j + kGroup, block.end);
    for (size_t i = std::max(j, block.begin); i < group_end; ++i) {
      prefetch_row(block.v[i], value_width);
    }
    tile::DotRows(scratch.q, rows.width, rows.num_rows, block.k.data() + j, group_end - j,
                  rows.width, scratch.scores + j, kBlock);
  }
  std::array<float, static_cast<size_t>(kUnitRows)> shrink;
  softmax_block(rows.num_rows, rows.spans.data(), scratch.scores, state, shrink.data());
  std::array<BlockSpan, static_cast<size_t>(kUnitRows)> spans;
  for (size_t j = block.first_group(); j < block.end; j += kGroup) {
    const size_t next_end = std::min(j + kGroup, next.end);
    for (size_t i = j; i < next_end; ++i) prefetch_row(next.k[i], width);
    const auto within_group = [j](int32_t token) {
      return std::clamp(token - static_cast<int32_t>(j), 0, static_cast<int32_t>(kGroup));
    };
    for (size_t r = 0; r < rows.num_rows; ++r) {
      spans[r] = {within_group(rows.spans[r].begin), within_group(rows.spans[r].end)};
    }
    accumulate_values(rows.num_rows, spans.data(), scratch.scores + j, shrink.data(),
                      tile::PointerRows<T>{block.v.data() + j, 0}, rows.value_width, state.output,
                      rows.value_width);
    std::fill_n(shrink.begin(), rows.num_rows, 1.0f);
  }
}

// For many rows: first copies a block to f32, values in slices of columns that stay in the
// first-level cache while all rows are computed with them.
template <class T>
void attend_from_copy(const AttentionScratch& scratch, const BlockRows& rows, int64_t head_dim,
                      int64_t value_dim, const KvBlock<T>& block, const AttentionState& state) {
  const auto padded = static_cast<int64_t>(rows.width);
  const auto padded_value = static_cast<int64_t>(rows.value_width);
  const auto slice = static_cast<int64_t>(kSliceWidth);
  for (size_t j = block.begin; j < block.end; ++j) {
    copy_row(block.k[j], head_dim, padded, scratch.k + j * rows.width);
    for (int64_t c = 0; c < value_dim; c += slice) {
      copy_row(block.v[j] + c, std::min(slice, value_dim - c), std::min(slice, padded_value - c),
               scratch.v + c * kAttentionBlock + j * kSliceWidth);
    }
  }
  std::array<const float*, kBlock> k;
  const size_t group = block.first_group();
  const size_t rounded = (block.end + tile::kDotGroup - 1) / tile::kDotGroup * tile::kDotGroup;
  for (size_t j = group; j < rounded; ++j) {
    k[j] = scratch.k + std::clamp(j, block.begin, block.end - 1) * rows.width;
  }
  tile::DotRows(scratch.q, rows.width, rows.num_rows, k.data() + group, block.end - group,
                rows.width, scratch.scores + group, kBlock);
  std::array<float, static_cast<size_t>(kUnitRows)> shrink;
  softmax_block(rows.num_rows, rows.spans.data(), scratch.scores, state, shrink.data());
  for (size_t c = 0; c < rows.value_width; c += kSliceWidth) {
    accumulate_values(rows.num_rows, rows.spans.data(), scratch.scores, shrink.data(),
                      tile::StridedRows{scratch.v + c * kBlock, kSliceWidth},
                      std::min(kSliceWidth, rows.value_width - c), state.output + c,
                      rows.value_width);
  }
}

// Whether keys and values are read in the pages without a copy: for units with few rows whose heads
// fill whole vectors.
HWY_INLINE bool reads_pages(const PagedAttentionArgs& args, int64_t num_rows) {
  const int64_t value_dim = value_dim_of(args);
  return num_rows < kMinRowsToCopy && padded_head_dim(args.head_dim) == args.head_dim &&
         padded_head_dim(value_dim) == value_dim;
}

// Computes rows of a unit on one block. `next` is the block to prefetch, or has no tokens.
template <class T>
void attend_block(const PagedAttentionArgs& args, const AttentionScratch& scratch,
                  const BlockRows& rows, const KvBlock<T>& block, const KvBlock<T>& next,
                  const AttentionState& state) {
  if (reads_pages(args, static_cast<int64_t>(rows.num_rows))) {
    attend_from_pages(scratch, rows, block, next, state);
  } else {
    attend_from_copy(scratch, rows, args.head_dim, value_dim_of(args), block, state);
  }
}

// The scratch memory of a unit's rows from row `first` on.
HWY_INLINE AttentionScratch rows_from(AttentionScratch scratch, size_t first, size_t width) {
  scratch.q += first * width;
  scratch.scores += first * kBlock;
  return scratch;
}

HWY_INLINE AttentionState rows_from(AttentionState state, size_t first, size_t value_width) {
  state.max += first;
  state.sum += first * static_cast<size_t>(kMaxLanes);
  state.output += first * value_width;
  return state;
}

// The tokens of `segment` that are also in `seen`, the tokens that a row attends to.
HWY_INLINE TokenRange within_segment(int64_t segment, const TokenRange& seen) {
  return {.begin = std::max(segment * kAttentionSegment, seen.begin),
          .end = std::min((segment + 1) * kAttentionSegment, seen.end)};
}

// Computes the rows of a tree on one block, node by node, because each node attends to other
// tokens, which are stored at other indices.
template <class T>
void attend_block_by_node(const PagedAttentionArgs& args, const AttentionUnit& unit,
                          int64_t segment, int64_t group, int64_t first,
                          const AttentionScratch& scratch, const BlockRows& rows,
                          const AttentionState& state) {
  const ForwardContext& forward = *args.forward;
  KvBlock<T> block;
  KvBlock<T> none;  // an empty block, so that nothing is prefetched
  BlockRows of_node = rows;
  for (size_t r = 0; r < rows.num_rows; r += of_node.num_rows) {
    const int64_t token_row = (unit.first_row + static_cast<int64_t>(r)) / group;
    const int64_t end = std::min((token_row + 1) * group - unit.first_row, unit.num_rows);
    of_node.num_rows = static_cast<size_t>(end) - r;
    const int64_t position = forward.position(unit.sequence, token_row);
    const TokenRange seen = within_segment(segment, visible_tokens(position, args.window));
    const TokenPlaces places{.tree_start = forward.tree_start(unit.sequence),
                             .tree_mask = forward.tree_mask(unit.sequence, token_row)};
    locate_block(args, unit, first, seen, places, block);
    if (block.begin >= block.end) continue;
    std::fill_n(of_node.spans.begin(), of_node.num_rows,
                BlockSpan{static_cast<int32_t>(block.begin), static_cast<int32_t>(block.end)});
    attend_block(args, rows_from(scratch, r, rows.width), of_node, block, none,
                 rows_from(state, r, rows.value_width));
  }
}

template <class T>
void attend_segment_as(const PagedAttentionArgs& args, const AttentionUnit& unit, int64_t segment,
                       const AttentionScratch& scratch, const AttentionState& state) {
  const int64_t group = args.q.shape[1] / (args.num_kv_heads * args.head_dim);
  const int64_t padded = padded_head_dim(args.head_dim);
  gather_queries(args, unit, group, padded, scratch.q);
  std::fill_n(state.max, unit.num_rows, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, unit.num_rows * kMaxLanes, 0.0f);
  const int64_t padded_value = padded_head_dim(value_dim_of(args));
  std::fill_n(state.output, unit.num_rows * padded_value, 0.0f);

  // The tokens of this segment that any row of the unit attends to.
  const TokenRange tokens = within_segment(segment, visible_tokens(args, unit, group));
  // Tokens before `common` are stored at the same indices for all rows: in a chain all tokens,
  // in a tree those before the tree, in a tree with a window none.
  const bool is_tree = args.forward->has_tree(unit.sequence);
  const int64_t common = !is_tree          ? tokens.end
                         : args.window > 0 ? 0
                                           : args.forward->tree_start(unit.sequence);
  BlockRows rows{.num_rows = static_cast<size_t>(unit.num_rows),
                 .width = static_cast<size_t>(padded),
                 .value_width = static_cast<size_t>(padded_value)};
  std::array<KvBlock<T>, 2> blocks;  // the current block and the next one, alternately
  const int64_t start = tokens.begin / kAttentionBlock * kAttentionBlock;
  const TokenRange located{.begin = tokens.begin, .end = std::min(tokens.end, common)};
  locate_block(args, unit, start, located, {}, blocks[0]);
  size_t current = 0;
  for (int64_t first = start; first < tokens.end; first += kAttentionBlock, current ^= 1) {
    locate_block(args, unit, first + kAttentionBlock, located, {}, blocks[current ^ 1]);
    if (is_tree && first + kAttentionBlock > common) {
      attend_block_by_node<T>(args, unit, segment, group, first, scratch, rows, state);
      continue;
    }
    const KvBlock<T>& block = blocks[current];
    const auto within_block = [&](int64_t token) {
      return static_cast<int32_t>(
          std::clamp<int64_t>(token - first, 0, static_cast<int64_t>(block.end)));
    };
    for (size_t r = 0; r < rows.num_rows; ++r) {
      const int64_t position = position_of(args, unit, group, static_cast<int64_t>(r));
      const TokenRange seen = visible_tokens(position, args.window);
      rows.spans[r] = {within_block(seen.begin), within_block(seen.end)};
    }
    attend_block(args, scratch, rows, block, blocks[current ^ 1], state);
  }
}

void attend_segment(const PagedAttentionArgs& args, const AttentionUnit& unit, int64_t segment,
                    const AttentionScratch& scratch, const AttentionState& state) {
  switch (args.kv.k.dtype) {
    case DType::kBf16:
      return attend_segment_as<Bf16>(args, unit, segment, scratch, state);
    case DType::kF16:
      return attend_segment_as<F16>(args, unit, segment, scratch, state);
    case DType::kF8E4M3:
      return attend_segment_as<quant::E4M3>(args, unit, segment, scratch, state);
    default:
      return attend_segment_as<float>(args, unit, segment, scratch, state);
  }
}

// Adds `part`, the result of the segment that follows, to `joined`. The first segment in which a
// row attends to a token replaces `joined`. A row that has no tokens in `part` stays as it is.
void join_segment(int64_t value_dim, int64_t num_rows, bool first, const AttentionState& part,
                  const AttentionState& joined) {
  const D d;
  const int64_t padded = padded_head_dim(value_dim);
  if (first) {
    std::copy_n(part.max, num_rows, joined.max);
    std::copy_n(part.sum, num_rows * kMaxLanes, joined.sum);
    std::copy_n(part.output, num_rows * padded, joined.output);
    return;
  }
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  for (int64_t r = 0; r < num_rows; ++r) {
    if (part.max[r] == kNothing) continue;
    if (joined.max[r] == kNothing) {  // the row's window begins in this segment
      joined.max[r] = part.max[r];
      std::copy_n(part.sum + r * kMaxLanes, kMaxLanes, joined.sum + r * kMaxLanes);
      std::copy_n(part.output + r * padded, padded, joined.output + r * padded);
      continue;
    }
    const float max = std::max(joined.max[r], part.max[r]);
    const V old_factor = hn::Set(d, exp_of(joined.max[r] - max));
    const V new_factor = hn::Set(d, exp_of(part.max[r] - max));
    joined.max[r] = max;
    const auto join = [&](const float* from, float* to, int64_t count) {
      for (int64_t c = 0; c < count; c += static_cast<int64_t>(kLanes)) {
        const V scaled = hn::Mul(hn::LoadU(d, to + c), old_factor);
        hn::StoreU(hn::MulAdd(hn::LoadU(d, from + c), new_factor, scaled), d, to + c);
      }
    };
    join(part.sum + r * kMaxLanes, joined.sum + r * kMaxLanes, static_cast<int64_t>(kLanes));
    join(part.output + r * padded, joined.output + r * padded, padded);
  }
}

void write_unit(const PagedAttentionArgs& args, const AttentionUnit& unit,
                const AttentionState& state) {
  const D d;
  const int64_t group = args.q.shape[1] / (args.num_kv_heads * args.head_dim);
  const int64_t value_dim = value_dim_of(args);
  const int64_t padded = padded_head_dim(value_dim);
  const int64_t first_token = args.forward->query_start[static_cast<size_t>(unit.sequence)];
  const float* sinks = args.sinks.as<float>();
  for (int64_t r = 0; r < unit.num_rows; ++r) {
    const int64_t row = unit.first_row + r;
    float* to = args.y.row<float>(first_token + row / group) +
                (unit.kv_head * group + row % group) * value_dim;
    float* from = state.output + r * padded;
    const V sum = hn::SumOfLanes(d, hn::LoadU(d, state.sum + r * kMaxLanes));
    V inverse = hn::Div(hn::Set(d, 1.0f), sum);
    if (sinks != nullptr) {
      // The sink and the sum are both taken relative to the larger exponent, so that neither
      // overflows.
      const float sink = sinks[unit.kv_head * group + row % group];
      const float max = std::max(state.max[r], sink);
      const V factor = hn::Set(d, exp_of(state.max[r] - max));
      const V total = hn::MulAdd(sum, factor, hn::Set(d, exp_of(sink - max)));
      inverse = hn::Div(factor, total);
    }
    inverse = hn::Mul(inverse, hn::Set(d, args.kv.v_scale));
    for (int64_t c = 0; c < padded; c += static_cast<int64_t>(kLanes)) {
      hn::StoreU(hn::Mul(hn::LoadU(d, from + c), inverse), d, from + c);
    }
    std::memcpy(to, from, static_cast<size_t>(value_dim) * sizeof(float));
  }
}

// Writes to[0, count) = from / scale, rounded to nearest even. The scale is 1 except for E4M3.
void store_row(const float* from, int64_t count, float scale, DType dtype, void* to) {
  const D d;
  const auto n = static_cast<size_t>(count);
  size_t i = 0;
  if (dtype == DType::kF32) {
    std::memcpy(to, from, n * sizeof(float));
  } else if (dtype == DType::kBf16) {
    auto* out = static_cast<Bf16*>(to);
    for (; i + kLanes <= n; i += kLanes) math::StoreFloats(hn::LoadU(d, from + i), d, out + i);
    for (; i < n; ++i) out[i] = to_bf16(from[i]);
  } else if (dtype == DType::kF8E4M3) {
    auto* out = static_cast<quant::E4M3*>(to);
    const V divisor = hn::Set(d, scale);
    for (; i + kLanes <= n; i += kLanes) {
      math::StoreFloats(hn::Div(hn::LoadU(d, from + i), divisor), d, out + i);
    }
    for (; i < n; ++i) out[i].bits = quant::float_to_e4m3(from[i] / scale);
  } else {
    auto* out = static_cast<F16*>(to);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    const hn::Rebind<hwy::float16_t, D> d16;  // F16C rounds to nearest even
    for (; i + kLanes <= n; i += kLanes) {
      hn::StoreU(hn::DemoteTo(d16, hn::LoadU(d, from + i)), d16,
                 reinterpret_cast<hwy::float16_t*>(out + i));
    }
#endif
    for (; i < n; ++i) out[i] = to_f16(from[i]);
  }
}

}  // namespace heddle::ops::attention::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_OPS_ATTENTION_PAGED_ATTENTION_KERNEL_INL_H_
