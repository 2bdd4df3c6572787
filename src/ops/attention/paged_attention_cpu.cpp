// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>

#include "ops/attention/paged_attention.h"
#include "ops/attention/paged_attention_split.h"
#include "ops/attention/paged_attention_unit.h"
#include "ops/cpu/scratch.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/paged_attention_cpu.cpp"
#include <hwy/foreach_target.h>

#include "ops/attention/paged_attention_kernel-inl.h"

#if HWY_ONCE

namespace heddle::ops {

namespace attention {

HWY_EXPORT(attend_segment);
HWY_EXPORT(join_segment);
HWY_EXPORT(write_unit);
HWY_EXPORT(store_row);

namespace {

// Fewest rows for which a second worker is woken to append them.
constexpr int64_t kAppendRowsPerTask = 32;

// A segment of a unit that one worker computes.
struct SplitTask {
  int64_t unit = 0;
  int64_t segment = 0;
};

// Segments [first, end) of a sequence.
struct SegmentRange {
  int64_t first = 0;
  int64_t end = 0;
};

struct Workspace {
  int64_t* units_before = nullptr;  // [B + 1]: number of units of the sequences before b
  // Scratch of worker 0; the scratch of the other workers follows, `worker_floats` apart.
  AttentionScratch worker;
  SplitTask* tasks = nullptr;  // [num_split_tasks], segments that are computed separately
  // State of split task 0; the other tasks' states follow, `state_floats` apart.
  AttentionState part;
  // State of split unit 0; the other units' states follow, `state_floats` apart.
  AttentionState joined;
};

int64_t num_split_units(int num_threads) { return 2 * static_cast<int64_t>(num_threads); }

int64_t num_split_tasks(int num_threads) { return 4 * static_cast<int64_t>(num_threads); }

AttentionState take_state(Scratch& scratch, int64_t padded, int64_t count) {
  return {.max = scratch.take<float>(count * kUnitRows),
          .sum = scratch.take<float>(count * kUnitRows * kMaxLanes),
          .output = scratch.take<float>(count * kUnitRows * padded)};
}

AttentionState state_at(const AttentionState& first, int64_t padded, int64_t index) {
  return {.max = first.max + index * kUnitRows,
          .sum = first.sum + index * kUnitRows * kMaxLanes,
          .output = first.output + index * kUnitRows * padded};
}

int64_t padded_slices(int64_t head_dim) { return (head_dim + 63) / 64 * 64; }

// D and Dv, channels of a key head and of a value head.
struct HeadDims {
  int64_t key = 0;
  int64_t value = 0;
};

Workspace lay_out(Scratch& scratch, int num_threads, int64_t max_tokens, const HeadDims& dims) {
  const int64_t padded = padded_head_dim(dims.key);
  const int64_t padded_value = padded_head_dim(dims.value);
  Workspace workspace;
  workspace.units_before = scratch.take<int64_t>(max_tokens + 1);
  workspace.tasks = scratch.take<SplitTask>(num_split_tasks(num_threads));
  workspace.worker = {
      .q = scratch.take<float>(num_threads * kUnitRows * padded),
      .scores = scratch.take<float>(num_threads * kUnitRows * kAttentionBlock),
      .k = scratch.take<float>(num_threads * kAttentionBlock * padded),
      .v = scratch.take<float>(num_threads * kAttentionBlock * padded_slices(dims.value)),
      .segment = take_state(scratch, padded_value, num_threads),
      .joined = take_state(scratch, padded_value, num_threads)};
  workspace.part = take_state(scratch, padded_value, num_split_tasks(num_threads));
  workspace.joined = take_state(scratch, padded_value, num_split_units(num_threads));
  return workspace;
}

AttentionScratch scratch_of(const Workspace& workspace, const HeadDims& dims, int worker) {
  const int64_t padded = padded_head_dim(dims.key);
  const int64_t padded_value = padded_head_dim(dims.value);
  const AttentionScratch& first = workspace.worker;
  return {.q = first.q + worker * kUnitRows * padded,
          .scores = first.scores + worker * kUnitRows * kAttentionBlock,
          .k = first.k + worker * kAttentionBlock * padded,
          .v = first.v + worker * kAttentionBlock * padded_slices(dims.value),
          .segment = state_at(first.segment, padded_value, worker),
          .joined = state_at(first.joined, padded_value, worker)};
}

// Returns the sequence b with start[b] <= value < start[b + 1].
template <typename Int>
int64_t sequence_of(const Int* start, int64_t B, int64_t value) {
  const Int* after = std::upper_bound(start, start + B + 1, static_cast<Int>(value));
  return after - start - 1;
}

class PagedAttention {
 public:
  PagedAttention(CpuContext& context, const PagedAttentionArgs& args)
      : pool_(context.pool),
        args_(args),
        forward_(*args.forward),
        B_(forward_.num_sequences()),
        group_(args.q.shape[1] / (args.num_kv_heads * args.head_dim)),
        dims_{.key = args.head_dim, .value = value_dim_of(args)},
        padded_(padded_head_dim(dims_.value)) {
    Scratch scratch(args.workspace);
    workspace_ = lay_out(scratch, pool_.num_threads(), args.q.shape[0], dims_);
  }

  void run() {
    if (args_.k.data != nullptr) append();
    count_units();
    const int64_t num_units = workspace_.units_before[B_];
    if (num_units <= num_split_units(pool_.num_threads()) && pool_.num_threads() > 1) {
      run_split(num_units);
      return;
    }
    pool_.parallel_for(num_units, [&](int64_t task, int worker) {
      // Units whose rows attend to the most tokens come first.
      const AttentionUnit unit = unit_at(num_units - 1 - task);
      const AttentionScratch scratch = scratch_of(workspace_, dims_, worker);
      const SegmentRange segments = segments_of(unit);
      for (int64_t segment = segments.first; segment < segments.end; ++segment) {
        HWY_DYNAMIC_DISPATCH(attend_segment)(args_, unit, segment, scratch, scratch.segment);
        HWY_DYNAMIC_DISPATCH(join_segment)
        (dims_.value, unit.num_rows, segment == segments.first, scratch.segment, scratch.joined);
      }
      HWY_DYNAMIC_DISPATCH(write_unit)(args_, unit, scratch.joined);
    });
  }

 private:
  // Stores the new rows' keys and values in the pages, except those that are stored already.
  void append() {
    const int64_t T = args_.k.shape[0];
    const int64_t num_tasks = (T + kAppendRowsPerTask - 1) / kAppendRowsPerTask;
    pool_.parallel_for(num_tasks, [&](int64_t task, int /*worker*/) {
      const int64_t first = task * kAppendRowsPerTask;
      const int64_t end = std::min(T, first + kAppendRowsPerTask);
      int64_t b = sequence_of(forward_.query_start.data(), B_, first);
      for (int64_t row = first; row < end; ++row) {
        while (row >= forward_.query_start[static_cast<size_t>(b + 1)]) ++b;
        append_row(b, row);
      }
    });
  }

  void append_row(int64_t b, int64_t row) {
    // The row's index in the pages. Rows of a tree have consecutive indices, whatever their
    // positions.
    const int64_t place = forward_.context_lens[static_cast<size_t>(b)] + row -
                          forward_.query_start[static_cast<size_t>(b)];
    if (place < forward_.first_stored(b, args_.kv.table)) return;
    const int64_t page = forward_.pages(b, args_.kv.table)[place / forward_.page_size];
    const int64_t slot = place % forward_.page_size;
    const DType dtype = args_.kv.k.dtype;
    const auto store = [&](const TensorView& from, const MutableTensorView& to, float scale) {
      const int64_t width = from.shape[1];
      const int64_t offset = bytes_of(dtype, page * to.row_stride + slot * width);
      HWY_DYNAMIC_DISPATCH(store_row)
      (from.row<float>(row), width, scale, dtype, static_cast<std::byte*>(to.data) + offset);
    };
    const int64_t num_values = num_value_channels(args_);
    if (num_values > 0 && dtype == DType::kF8E4M3) {
      store_latents(row, page, slot, num_values);
    } else {
      store(args_.k, args_.kv.k, args_.kv.k_scale);
    }
    if (args_.v.data != nullptr) store(args_.v, args_.kv.v, args_.kv.v_scale);
  }

  // Stores E4M3 keys whose first channels are the value: these and the other channels have
  // different scales.
  void store_latents(int64_t row, int64_t page, int64_t slot, int64_t num_values) {
    const MutableTensorView& pool = args_.kv.k;
    const int64_t D = args_.head_dim;
    const float* from = args_.k.row<float>(row);
    auto* to = static_cast<std::byte*>(pool.data) +
               bytes_of(pool.dtype, page * pool.row_stride + slot * args_.num_kv_heads * D);
    for (int64_t head = 0; head < args_.num_kv_heads; ++head, from += D, to += D) {
      HWY_DYNAMIC_DISPATCH(store_row)(from, num_values, args_.kv.v_scale, pool.dtype, to);
      HWY_DYNAMIC_DISPATCH(store_row)
      (from + num_values, D - num_values, args_.kv.k_scale, pool.dtype, to + num_values);
    }
  }

  void count_units() {
    int64_t total = 0;
    for (int64_t b = 0; b < B_; ++b) {
      workspace_.units_before[b] = total;
      const int64_t rows = forward_.num_rows(b) * group_;
      total += (rows + kUnitRows - 1) / kUnitRows * args_.num_kv_heads;
    }
    workspace_.units_before[B_] = total;
  }

  [[nodiscard]] AttentionUnit unit_at(int64_t index) const {
    const int64_t b = sequence_of(workspace_.units_before, B_, index);
    const int64_t within = index - workspace_.units_before[b];
    const int64_t first_row = within / args_.num_kv_heads * kUnitRows;
    return {.sequence = b,
            .kv_head = within % args_.num_kv_heads,
            .first_row = first_row,
            .num_rows = std::min(kUnitRows, forward_.num_rows(b) * group_ - first_row)};
  }

  // The segments with tokens that some row of the unit attends to, from the window of the first row
  // on.
  [[nodiscard]] SegmentRange segments_of(const AttentionUnit& unit) const {
    const TokenRange tokens = visible_tokens(args_, unit, group_);
    return {.first = tokens.begin / kAttentionSegment,
            .end = (tokens.end - 1) / kAttentionSegment + 1};
  }

  // With few units, divides their segments among the workers, in waves that fit into the workspace,
  // and joins them in order.
  void run_split(int64_t num_units) {
    int64_t unit = 0;
    int64_t segment = num_units > 0 ? segments_of(unit_at(0)).first : 0;
    while (unit < num_units) {
      int64_t num_tasks = 0;
      while (unit < num_units && num_tasks < num_split_tasks(pool_.num_threads())) {
        workspace_.tasks[num_tasks++] = {.unit = unit, .segment = segment};
        if (++segment < segments_of(unit_at(unit)).end) continue;
        if (++unit < num_units) segment = segments_of(unit_at(unit)).first;
      }
      pool_.parallel_for(num_tasks, [&](int64_t task, int worker) {
        const SplitTask& split = workspace_.tasks[task];
        HWY_DYNAMIC_DISPATCH(attend_segment)
        (args_, unit_at(split.unit), split.segment, scratch_of(workspace_, dims_, worker),
         state_at(workspace_.part, padded_, task));
      });
      for (int64_t task = 0; task < num_tasks; ++task) join_split(task);
    }
  }

  void join_split(int64_t task) {
    const SplitTask& split = workspace_.tasks[task];
    const AttentionUnit unit = unit_at(split.unit);
    const AttentionState joined = state_at(workspace_.joined, padded_, split.unit);
    const SegmentRange segments = segments_of(unit);
    HWY_DYNAMIC_DISPATCH(join_segment)
    (dims_.value, unit.num_rows, split.segment == segments.first,
     state_at(workspace_.part, padded_, task), joined);
    if (split.segment + 1 == segments.end) {
      HWY_DYNAMIC_DISPATCH(write_unit)(args_, unit, joined);
    }
  }

  device::ThreadPool& pool_;
  const PagedAttentionArgs& args_;
  const ForwardContext& forward_;
  int64_t B_;
  int64_t group_;
  HeadDims dims_;
  int64_t padded_;  // Dv, rounded up to whole vectors
  Workspace workspace_;
};

}  // namespace

}  // namespace attention

int64_t paged_attention_workspace_bytes(const Context& context, int64_t max_tokens,
                                        int64_t head_dim, int64_t value_dim) {
  if (context.device != DeviceKind::kCpu) {  // a part has an output, a maximum and a sum
    return std::max(bytes_of(DType::kF32, kAttentionParts * (value_dim + 2)),
                    paged_attention_split_workspace_bytes(value_dim));
  }
  const auto& cpu = static_cast<const CpuContext&>(context);
  Scratch measure;
  attention::lay_out(measure, cpu.pool.num_threads(), max_tokens,
                     {.key = head_dim, .value = value_dim});
  return measure.bytes();
}

Status paged_attention_cpu(CpuContext& context, const PagedAttentionArgs& args) {
  attention::PagedAttention(context, args).run();
  return {};
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
