// SPDX-License-Identifier: Apache-2.0
// Divides the heads of a batch into tasks; the arithmetic is in delta_rule_core.h.
#include <algorithm>
#include <cstdint>

#include "ops/cpu/scratch.h"
#include "ops/linear_attention/delta_rule_core.h"
#include "ops/linear_attention/gated_delta_rule.h"
#include "ops/linear_attention/snapshot_rows.h"

namespace heddle::ops {

namespace {

struct DeltaWorkspace {
  // Scratch of worker 0; the other workers' scratch follows, `core_floats` apart.
  float* core = nullptr;
  float* gates = nullptr;  // [2, max_tokens]: log decays and beta of worker 0
  int64_t core_floats = 0;
};

DeltaWorkspace lay_out(Scratch& scratch, int num_threads, const GatedDeltaRuleSizes& sizes) {
  DeltaWorkspace workspace;
  workspace.core_floats =
      (delta_rule_scratch_floats(sizes.key_dim, sizes.value_dim, sizes.channel_decay) + 15) / 16 *
      16;
  workspace.core = scratch.take<float>(num_threads * workspace.core_floats);
  workspace.gates = scratch.take<float>(num_threads * 2 * sizes.max_tokens);
  return workspace;
}

class GatedDeltaRule {
 public:
  GatedDeltaRule(CpuContext& context, const GatedDeltaRuleArgs& args)
      : context_(context),
        args_(args),
        forward_(*args.forward),
        T_(args.b.shape[0]),
        Nv_(args.b.shape[1]),
        channel_decay_(args.a.shape[1] != Nv_) {
    Scratch scratch(args.workspace);
    workspace_ = lay_out(scratch, context.pool.num_threads(),
                         {.max_tokens = T_,
                          .key_dim = args.key_dim,
                          .value_dim = args.value_dim,
                          .channel_decay = channel_decay_});
  }

  // A task is a value head of a sequence, or a slab of its rows if there would be idle workers
  // otherwise. Queries, keys and gates are prepared once per task.
  void run() {
    const int64_t num_heads = forward_.num_sequences() * Nv_;
    const int64_t num_slabs = (args_.value_dim + kDeltaSlabRows - 1) / kDeltaSlabRows;
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
    const int64_t Dk = args_.key_dim;
    const int64_t key_width = args_.num_key_heads * Dk;
    const int64_t key_head = h * args_.num_key_heads / Nv_;
    float* scratch = workspace_.core + worker * workspace_.core_floats;
    float* g = workspace_.gates + worker * 2 * T_;
    float* beta = g + T_;
    const float neg_exp_a_log = args_.neg_exp_a_log.row<float>(h)[0];
    const float* a = args_.a.row<float>(start) + (channel_decay_ ? h * Dk : h);
    const float* dt_bias = args_.dt_bias.as<float>() + (channel_decay_ ? h * Dk : h);
    delta_rule_gates({.a = channel_decay_ ? nullptr : a,
                      .b = args_.b.row<float>(start) + h,
                      .a_stride = args_.a.row_stride,
                      .b_stride = args_.b.row_stride,
                      .neg_exp_a_log = neg_exp_a_log,
                      .dt_bias = dt_bias[0],
                      .beta_scale = args_.beta_scale,
                      .num_tokens = num_tokens},
                     g, beta);
    const float* qkv = args_.qkv.row<float>(start);
    float* state = state_rows(forward_.state_slots[static_cast<size_t>(b)], h, first);
    if (forward_.context_lens[static_cast<size_t>(b)] == 0) std::fill_n(state, rows * Dk, 0.0f);
    const DeltaRuleHead head{
        .q = qkv + key_head * Dk,
        .k = qkv + key_width + key_head * Dk,
        .v = qkv + 2 * key_width + h * args_.value_dim + first,
        .q_stride = args_.qkv.row_stride,
        .k_stride = args_.qkv.row_stride,
        .v_stride = args_.qkv.row_stride,
        .g = channel_decay_ ? nullptr : g,
        .channel = {.f = channel_decay_ ? a : nullptr,
                    .stride = args_.a.row_stride,
                    .dt_bias = dt_bias,
                    .neg_exp_a_log = neg_exp_a_log},
        .beta = beta,
        .y = args_.y.row<float>(start) + h * args_.value_dim + first,
        .y_stride = args_.y.row_stride,
        .state = state,
        .num_tokens = num_chain,
        .key_dim = Dk,
        .value_dim = rows,
    };
    const DeltaSnapshots snapshots{.wanted = forward_.snapshots_of(b),
                                   .layer = args_.snapshots,
                                   .first_row = h * args_.value_dim + first};
    if (!context_.exact && num_chain >= kChunkedMinTokens) {
      delta_rule_chunked(head, snapshots, scratch);
    } else {
      run_recurrent(head, snapshots, scratch);
    }
    for (int64_t t = num_chain; t < num_tokens; ++t) {
      // A node starts from the state after its parent.
      const int64_t slot = forward_.state_slots[static_cast<size_t>(b)];
      const int64_t parent = forward_.parent_row(b, t) - (num_chain - 1);
      DeltaRuleHead node = tokens_of(head, t, t + 1);
      node.state = state_rows(slot + 1 + t - num_chain, h, first);
      std::copy_n(state_rows(slot + parent, h, first), rows * Dk, node.state);
      delta_rule_recurrent(node, scratch);
    }
  }

  static void run_recurrent(const DeltaRuleHead& head, const DeltaSnapshots& snapshots,
                            float* scratch) {
    int64_t done = 0;
    for (const StateSnapshot& snapshot : snapshots.wanted) {
      delta_rule_recurrent(tokens_of(head, done, snapshot.num_tokens), scratch);
      done = snapshot.num_tokens;
      encode_snapshot_rows(head.state, head.value_dim, head.key_dim,
                           snapshot_rows(snapshots.layer, snapshot.slot, snapshots.first_row));
    }
    if (done < head.num_tokens) {
      delta_rule_recurrent(tokens_of(head, done, head.num_tokens), scratch);
    }
  }

  [[nodiscard]] float* state_rows(int64_t slot, int64_t h, int64_t first) const {
    return args_.state.recurrent.row<float>(slot) + (h * args_.value_dim + first) * args_.key_dim;
  }

  CpuContext& context_;
  const GatedDeltaRuleArgs& args_;
  const ForwardContext& forward_;
  int64_t T_;
  int64_t Nv_;
  bool channel_decay_;
  DeltaWorkspace workspace_;
};

}  // namespace

int64_t gated_delta_rule_workspace_bytes_cpu(const CpuContext& context,
                                             const GatedDeltaRuleSizes& sizes) {
  Scratch measure;
  lay_out(measure, context.pool.num_threads(), sizes);
  return measure.bytes();
}

Status gated_delta_rule_cpu(CpuContext& context, const GatedDeltaRuleArgs& args) {
  GatedDeltaRule(context, args).run();
  return {};
}

}  // namespace heddle::ops
