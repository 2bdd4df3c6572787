// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/delta_rule_core.h"

#include "ops/linear_attention/delta_rule_scratch.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear_attention/delta_rule_core.cpp"
#include <hwy/foreach_target.h>

#include "ops/linear_attention/delta_rule_chunked-inl.h"
#include "ops/linear_attention/delta_rule_recurrent-inl.h"

#if HWY_ONCE

namespace heddle::ops {

namespace delta {

HWY_EXPORT(gates);
HWY_EXPORT(recurrent);
HWY_EXPORT(chunked);

namespace {

void run_gates(const DeltaGates& from, float* g, float* beta) {
  HWY_DYNAMIC_DISPATCH(gates)(from, g, beta);
}

void run_recurrent(const DeltaRuleHead& head, float* scratch) {
  HWY_DYNAMIC_DISPATCH(recurrent)(head, scratch);
}

void run_chunked(const DeltaRuleHead& head, const DeltaSnapshots& snapshots, float* scratch) {
  HWY_DYNAMIC_DISPATCH(chunked)(head, snapshots, scratch);
}

}  // namespace

}  // namespace delta

int64_t delta_rule_scratch_floats(int64_t key_dim, int64_t value_dim, bool channel_decay) {
  return DeltaScratch(nullptr, key_dim, value_dim, channel_decay).floats;
}

void delta_rule_gates(const DeltaGates& gates, float* g, float* beta) {
  delta::run_gates(gates, g, beta);
}

void delta_rule_recurrent(const DeltaRuleHead& head, float* scratch) {
  delta::run_recurrent(head, scratch);
}

void delta_rule_chunked(const DeltaRuleHead& head, const DeltaSnapshots& snapshots,
                        float* scratch) {
  delta::run_chunked(head, snapshots, scratch);
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
