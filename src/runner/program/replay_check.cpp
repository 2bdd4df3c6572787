// SPDX-License-Identifier: Apache-2.0
#include "runner/program/replay_check.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

namespace heddle::runner {

namespace {

// Names of the arrays, which follow the nodes in a list. Steps in pieces list only the first array.
constexpr std::array<std::string_view, 10> kArrays = {
    "row_sequences", "query_start",    "context_lens", "kv_lens",     "state_slots",
    "snapshots",     "snapshot_start", "logit_rows",   "tree_starts", "tree_masks"};

// Number of arrays including the page tables, which come last.
constexpr size_t kNumArrays = kArrays.size() + ops::kMaxPageTables;

std::array<const void*, kNumArrays> arrays_of(const ops::DeviceBatch& batch) {
  std::array<const void*, kNumArrays> arrays = {
      batch.row_sequences, batch.query_start, batch.context_lens,   batch.kv_lens,
      batch.state_slots,   batch.snapshots,   batch.snapshot_start, batch.logit_rows,
      batch.tree_starts,   batch.tree_masks};
  std::ranges::copy(batch.page_tables, arrays.begin() + kArrays.size());
  return arrays;
}

}  // namespace

void ReplayCheck::list_batch(const ops::DeviceBatch& batch, bool whole,
                             std::vector<graph::TakenValue>& taken) const {
  const size_t num_nodes = executor_->whole().end;
  const auto arrays = arrays_of(batch);
  for (size_t i = 0; i < (whole ? arrays.size() : 1); ++i) {
    taken.push_back({num_nodes + i, reinterpret_cast<uintptr_t>(arrays[i])});
  }
}

std::string ReplayCheck::name_of(size_t node) const {
  const size_t num_nodes = executor_->whole().end;
  if (node < num_nodes) return executor_->name_of(node);
  const size_t array = node - num_nodes;
  if (array < kArrays.size()) return fmt::format("the batch's {}", kArrays[array]);
  return fmt::format("the batch's page table {}", array - kArrays.size());
}

Status ReplayCheck::compare(const std::vector<graph::TakenValue>& captured,
                            const std::vector<graph::TakenValue>& now) const {
  HEDDLE_CHECK_EQ(captured.size(), now.size());
  const auto [was, is] = std::ranges::mismatch(captured, now, {}, &graph::TakenValue::value,
                                               &graph::TakenValue::value);
  if (was == captured.end()) return {};
  return internal_error(
      fmt::format("a captured step cannot be launched again: {} took {:#x}, an address or a row "
                  "stride, when it was captured, and would take {:#x} now",
                  name_of(was->node), was->value, is->value));
}

}  // namespace heddle::runner
