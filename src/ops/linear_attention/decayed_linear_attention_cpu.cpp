// SPDX-License-Identifier: Apache-2.0
// Divides the heads of a batch into tasks; the arithmetic is in decayed_head-inl.h.
#include <algorithm>
#include <cstdint>

#include "ops/cpu/scratch.h"
#include "ops/linear_attention/decayed_head.h"
#include "ops/linear_attention/decayed_linear_attention.h"
#include "ops/linear_attention/gated_delta_rule.h"
#include "ops/linear_attention/snapshot_rows.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear_attention/decayed_linear_attention_cpu.cpp"
#include <hwy/foreach_target.h>

#include "ops/linear_attention/decayed_head-inl.h"

#if HWY_ONCE

namespace heddle::ops {

namespace decayed {

HWY_EXPORT(time_steps);
HWY_EXPORT(recurrent);
HWY_EXPORT(chunked);

namespace {

struct Workspace {
  // Scratch of worker 0; the other workers' scratch follows, `core_floats` apart.
  float* core = nullptr;
  float* dt = nullptr;  // [max_tokens] time steps of worker 0, padded to whole vectors
  int64_t core_floats = 0;
  int64_t dt_floats = 0;
};

Workspace lay_out(Scratch& scratch, int num_threads, const DecayedLinearAttentionSizes& sizes) {
  Workspace workspace;
  workspace.core_floats = DecayedScratch(nullptr, sizes.key_dim, sizes.value_dim).floats;
  workspace.dt_floats = (sizes.max_tokens + 15) / 16 * 16;
  workspace.core = scratch.take<float>(num_threads * workspace.core_floats);
  workspace.dt = scratch.take<float>(num_threads * workspace.dt_floats);
  return workspace;
}

class Heads {
 public:
  Heads(CpuContext& context, const DecayedLinearAttentionArgs& args)
      : context_(context), args_(args), forward_(*args.forward), Nv_(args.decay.shape[0]) {
    Scratch scratch(args.workspace);
    workspace_ = lay_out(
        scratch, context.pool.num_threads(),
        {.max_tokens = args.vkq.shape[0], .key_dim = args.key_dim, .value_dim = args.value_dim});
  }

  // A task is a value head of a sequence, or a slab of its rows if there would be idle workers
  // otherwise.
  void run() {
    const int64_t num_heads = forward_.num_sequences() * Nv_;
    const int64_t num_slabs = num_delta_panels(args_.value_dim);
    const bool whole_heads = num_heads >= 2 * static_cast<int64_t>(context_.pool.num_threads());
    const int64_t per_head = whole_heads ? 1 : num_slabs;
    context_.pool.parallel_for(num_heads * per_head, [&](int64_t task, int worker) {
      const int64_t head = task / per_head;
      const int64_t first = whole_heads ? 0 : task % per_head * kDeltaSlabRows;
      const int64_t rows =
          whole_heads ? args_.value_dim : std::min(kDeltaSlabRows, args_.value_dim - first);
      run_rows(head / Nv_, head % Nv_, first, rows, worker);
    });
  }

 private:
  // Computes value rows [first, first + rows) of head `h` of sequence `b`.
  void run_rows(int64_t b, int64_t h, int64_t first, int64_t rows, int worker) {
    const int64_t start = forward_.query_start[static_cast<size_t>(b)];
    const int64_t num_tokens = forward_.num_rows(b);
    // The rows after these are nodes of a tree.
    const int64_t num_chain = forward_.num_chain_rows(b);
    const int64_t slot = forward_.state_slots[static_cast<size_t>(b)];
    const int64_t Dk = args_.key_dim;
    const int64_t key_head = h * args_.num_key_heads / Nv_;
    float* scratch = workspace_.core + worker * workspace_.core_floats;
    const float* vkq = args_.vkq.row<float>(start);
    const float* keys = vkq + Nv_ * args_.value_dim + key_head * Dk;
    const DecayedHead head{
        .v = vkq + h * args_.value_dim + first,
        .k = keys,
        .q = keys + args_.num_key_heads * Dk,
        .stride = args_.vkq.row_stride,
        .dt = time_steps_of(start, num_tokens, h, workspace_.dt + worker * workspace_.dt_floats),
        .decay = args_.decay.as<float>()[h],
        .skip = args_.skip.data == nullptr ? 0.0f : args_.skip.as<float>()[h],
        .y = args_.y.row<float>(start) + h * args_.value_dim + first,
        .y_stride = args_.y.row_stride,
        .state = state_rows(slot, h, first),
        .num_tokens = num_chain,
        .key_dim = Dk,
        .value_dim = rows};
    if (forward_.context_lens[static_cast<size_t>(b)] == 0) {
      std::fill_n(head.state, rows * Dk, 0.0f);
    }
    const DeltaSnapshots snapshots{.wanted = forward_.snapshots_of(b),
                                   .layer = args_.snapshots,
                                   .first_row = h * args_.value_dim + first};
    if (!context_.exact && num_chain >= kChunkedMinTokens) {
      HWY_DYNAMIC_DISPATCH(chunked)(head, snapshots, scratch);
    } else {
      run_recurrent(head, snapshots, scratch);
    }
    for (int64_t t = num_chain; t < num_tokens; ++t) {
      // A node starts from the state after its parent.
      const int64_t parent = forward_.parent_row(b, t) - (num_chain - 1);
      DecayedHead node = tokens_of(head, t, t + 1);
      node.state = state_rows(slot + 1 + t - num_chain, h, first);
      std::copy_n(state_rows(slot + parent, h, first), rows * Dk, node.state);
      HWY_DYNAMIC_DISPATCH(recurrent)(node, scratch);
    }
  }

  const float* time_steps_of(int64_t start, int64_t num_tokens, int64_t h, float* dt) const {
    if (args_.a.data == nullptr) {
      std::fill_n(dt, num_tokens, 1.0f);
    } else {
      HWY_DYNAMIC_DISPATCH(time_steps)
      (args_.a.row<float>(start) + h, args_.a.row_stride, num_tokens, args_.dt_bias.as<float>()[h],
       args_.dt_low, args_.dt_high, dt);
    }
    return dt;
  }

  static void run_recurrent(const DecayedHead& head, const DeltaSnapshots& snapshots,
                            float* scratch) {
    int64_t done = 0;
    for (const StateSnapshot& snapshot : snapshots.wanted) {
      HWY_DYNAMIC_DISPATCH(recurrent)(tokens_of(head, done, snapshot.num_tokens), scratch);
      done = snapshot.num_tokens;
      encode_snapshot_rows(head.state, head.value_dim, head.key_dim,
                           snapshot_rows(snapshots.layer, snapshot.slot, snapshots.first_row));
    }
    if (done < head.num_tokens) {
      HWY_DYNAMIC_DISPATCH(recurrent)(tokens_of(head, done, head.num_tokens), scratch);
    }
  }

  [[nodiscard]] float* state_rows(int64_t slot, int64_t h, int64_t first) const {
    return args_.state.recurrent.row<float>(slot) + (h * args_.value_dim + first) * args_.key_dim;
  }

  CpuContext& context_;
  const DecayedLinearAttentionArgs& args_;
  const ForwardContext& forward_;
  int64_t Nv_;
  Workspace workspace_;
};

}  // namespace

}  // namespace decayed

int64_t decayed_linear_attention_workspace_bytes_cpu(const CpuContext& context,
                                                     const DecayedLinearAttentionSizes& sizes) {
  Scratch measure;
  decayed::lay_out(measure, context.pool.num_threads(), sizes);
  return measure.bytes();
}

Status decayed_linear_attention_cpu(CpuContext& context, const DecayedLinearAttentionArgs& args) {
  decayed::Heads(context, args).run();
  return {};
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
