// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_options.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace heddle {

namespace {

// An enumerator's first name is the one that it is shown by.
template <typename Choice, size_t kCount>
using ChoiceNames = std::array<std::pair<std::string_view, Choice>, kCount>;

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

template <typename Choice, size_t kCount>
std::string_view name_of(const ChoiceNames<Choice, kCount>& names, Choice choice) {
  return std::ranges::find(names, choice, &std::pair<std::string_view, Choice>::second)->first;
}

template <typename Choice, size_t kCount>
Result<Choice> choice_of(const ChoiceNames<Choice, kCount>& names, std::string_view name,
                         std::string_view field, std::string_view shown_names) {
  const auto found = std::ranges::find(names, name, &std::pair<std::string_view, Choice>::first);
  if (found != names.end()) return found->second;
  return invalid_argument(fmt::format("{} \"{}\" is not known; use {}", field, name, shown_names));
}

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
