// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_options.h"

#include <string_view>

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(CacheOptionsTest, EveryChoiceIsReadByTheNameItIsShownBy) {
  for (const auto policy :
       {SnapshotPolicy::kMulti, SnapshotPolicy::kExtraBuffer, SnapshotPolicy::kNoBuffer}) {
    EXPECT_EQ(parse_snapshot_policy(to_string(policy)).value(), policy);
  }
  for (const auto dtype : {StateDtype::kFloat32, StateDtype::kBfloat16, StateDtype::kInt8}) {
    EXPECT_EQ(parse_state_dtype(to_string(dtype)).value(), dtype);
  }
  for (const auto policy : {EvictionPolicy::kFlops, EvictionPolicy::kLru}) {
    EXPECT_EQ(parse_eviction_policy(to_string(policy)).value(), policy);
  }
}

TEST(CacheOptionsTest, ShowsTheNamesOfTheDocuments) {
  EXPECT_EQ(to_string(SnapshotPolicy::kMulti), "multi");
  EXPECT_EQ(to_string(SnapshotPolicy::kExtraBuffer), "extra_buffer");
  EXPECT_EQ(to_string(SnapshotPolicy::kNoBuffer), "no_buffer");
  EXPECT_EQ(to_string(StateDtype::kFloat32), "float32");
  EXPECT_EQ(to_string(StateDtype::kBfloat16), "bfloat16");
  EXPECT_EQ(to_string(StateDtype::kInt8), "int8");
  EXPECT_EQ(to_string(EvictionPolicy::kFlops), "flops");
  EXPECT_EQ(to_string(EvictionPolicy::kLru), "lru");
}

TEST(CacheOptionsTest, StateFormatsHaveShortNames) {
  EXPECT_EQ(parse_state_dtype("fp32").value(), StateDtype::kFloat32);
  EXPECT_EQ(parse_state_dtype("bf16").value(), StateDtype::kBfloat16);
}

TEST(CacheOptionsTest, AnUnknownNameIsAnErrorThatListsTheNames) {
  EXPECT_EQ(parse_snapshot_policy("none").status().message(),
            "state_snapshots \"none\" is not known; use multi, extra_buffer or no_buffer");
  EXPECT_EQ(parse_eviction_policy("fifo").status().message(),
            "eviction \"fifo\" is not known; use flops or lru");
  for (const char* wrong : {"float16", "int4", ""}) {
    const Status status = parse_state_dtype(wrong).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("use float32, bfloat16 or int8"), std::string_view::npos);
  }
}

}  // namespace
}  // namespace heddle
