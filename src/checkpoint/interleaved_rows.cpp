// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interleaved_rows.h"

#include "core/check.h"

namespace heddle::checkpoint {

namespace {

// Splits [groups x (part 0 | part 1 | ...)] into [groups x part 0 | groups x part 1 | ...].
std::vector<RowRun> split_groups(int64_t num_groups, const std::vector<int64_t>& parts) {
  int64_t group_rows = 0;
  for (const int64_t part : parts) group_rows += part;
  std::vector<RowRun> runs;
  runs.reserve(static_cast<size_t>(num_groups) * parts.size());
  int64_t part_offset = 0;  // offset of the part within its group
  for (const int64_t part : parts) {
    for (int64_t group = 0; group < num_groups; ++group) {
      runs.push_back({.source_row = group * group_rows + part_offset,
                      .target_row = num_groups * part_offset + group * part,
                      .num_rows = part});
    }
    part_offset += part;
  }
  return runs;
}

int64_t value_heads_per_key_head(const DeltaNetHeads& heads) {
  HEDDLE_CHECK(heads.num_key_heads > 0);
  HEDDLE_CHECK_EQ(heads.num_value_heads % heads.num_key_heads, 0);
  return heads.num_value_heads / heads.num_key_heads;
}

}  // namespace

std::vector<RowRun> deinterleave_qkvz_rows(const DeltaNetHeads& heads) {
  const int64_t values = value_heads_per_key_head(heads) * heads.value_dim;
  return split_groups(heads.num_key_heads, {heads.key_dim, heads.key_dim, values, values});
}

std::vector<RowRun> deinterleave_ba_rows(const DeltaNetHeads& heads) {
  const int64_t values = value_heads_per_key_head(heads);
  return split_groups(heads.num_key_heads, {values, values});
}

std::vector<RowRun> split_query_gate_rows(int64_t num_heads, int64_t head_dim) {
  return split_groups(num_heads, {head_dim, head_dim});
}

std::vector<RowRun> split_gate_up_rows(int64_t num_blocks, int64_t intermediate_size) {
  const int64_t I = intermediate_size;
  std::vector<RowRun> runs;
  runs.reserve(static_cast<size_t>(2 * num_blocks));
  for (int64_t first = 0; first < num_blocks * 2 * I; first += 2 * I) {
    for (const int64_t part : {0, 1}) {
      runs.push_back({.source_row = first + part,
                      .target_row = first + part * I,
                      .num_rows = I,
                      .source_step = 2});
    }
  }
  return runs;
}

std::vector<RowRun> shifted(std::vector<RowRun> runs, int64_t offset) {
  for (RowRun& run : runs) run.target_row += offset;
  return runs;
}

}  // namespace heddle::checkpoint
