// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_options.h"

#include <string_view>

#include "core/choice_names.h"

namespace heddle {

namespace {

constexpr ChoiceNames<SnapshotPolicy, 3> kSnapshotPolicies = {{
    {"multi", SnapshotPolicy::kMulti},
    {"extra_buffer", SnapshotPolicy::kExtraBuffer},
    {"no_buffer", SnapshotPolicy::kNoBuffer},
}};

constexpr ChoiceNames<StateDtype, 5> kStateDtypes = {{
    {"float32", StateDtype::kFloat32},
    {"bfloat16", StateDtype::kBfloat16},
    {"int8", StateDtype::kInt8},
    {"fp32", StateDtype::kFloat32},
    {"bf16", StateDtype::kBfloat16},
}};

constexpr ChoiceNames<EvictionPolicy, 2> kEvictionPolicies = {{
    {"flops", EvictionPolicy::kFlops},
    {"lru", EvictionPolicy::kLru},
}};

}  // namespace

std::string_view to_string(SnapshotPolicy policy) { return name_of(kSnapshotPolicies, policy); }

Result<SnapshotPolicy> parse_snapshot_policy(std::string_view name) {
  return choice_of(kSnapshotPolicies, name, "state_snapshots", "multi, extra_buffer or no_buffer");
}

std::string_view to_string(StateDtype dtype) { return name_of(kStateDtypes, dtype); }

Result<StateDtype> parse_state_dtype(std::string_view name) {
  return choice_of(kStateDtypes, name, "state_dtype", "float32, bfloat16 or int8");
}

std::string_view to_string(EvictionPolicy policy) { return name_of(kEvictionPolicies, policy); }

Result<EvictionPolicy> parse_eviction_policy(std::string_view name) {
  return choice_of(kEvictionPolicies, name, "eviction", "flops or lru");
}

}  // namespace heddle
