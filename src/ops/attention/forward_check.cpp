// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/forward_check.h"

#include <fmt/format.h>

namespace heddle::ops {

Status check_batch_rows(const char* op, const ForwardContext* forward, int64_t T) {
  if (forward == nullptr) {
    return invalid_argument(fmt::format("{}: needs a ForwardContext, has none", op));
  }
  const int64_t B = forward->num_sequences();
  if (static_cast<int64_t>(forward->query_start.size()) != B + 1) {
    return invalid_argument(fmt::format("{}: query_start has {} entries, {} sequences need {}", op,
                                        forward->query_start.size(), B, B + 1));
  }
  if (forward->query_start[0] != 0 || forward->query_start[static_cast<size_t>(B)] != T) {
    return invalid_argument(fmt::format("{}: query_start covers rows {} to {}, the tensors have {}",
                                        op, forward->query_start[0],
                                        forward->query_start[static_cast<size_t>(B)], T));
  }
  for (int64_t b = 0; b < B; ++b) {
    if (forward->num_rows(b) <= 0 || forward->context_lens[static_cast<size_t>(b)] < 0) {
      return invalid_argument(fmt::format(
          "{}: sequence {} has {} rows after {} tokens; every sequence needs at least one row", op,
          b, forward->num_rows(b), forward->context_lens[static_cast<size_t>(b)]));
    }
  }
  return {};
}

Status check_batch_states(const char* op, const ForwardContext& forward, int64_t num_slots,
                          int64_t num_snapshot_slots) {
  const int64_t B = forward.num_sequences();
  if (static_cast<int64_t>(forward.state_slots.size()) != B) {
    return invalid_argument(
        fmt::format("{}: state_slots has {} entries, the batch has {} sequences", op,
                    forward.state_slots.size(), B));
  }
  for (int64_t b = 0; b < B; ++b) {
    const int32_t slot = forward.state_slots[static_cast<size_t>(b)];
    if (slot < 0 || slot >= num_slots) {
      return invalid_argument(fmt::format("{}: sequence {} has state slot {}, the pool has {}", op,
                                          b, slot, num_slots));
    }
  }
  const StateSnapshot* previous = nullptr;
  for (const StateSnapshot& snapshot : forward.snapshots) {
    if (snapshot.sequence < 0 || snapshot.sequence >= B || snapshot.slot < 0 ||
        snapshot.slot >= num_snapshot_slots || snapshot.num_tokens < 1 ||
        snapshot.num_tokens > forward.num_rows(snapshot.sequence)) {
      return invalid_argument(fmt::format(
          "{}: snapshot of sequence {} after {} tokens in slot {} does not fit {} sequences and "
          "{} slots",
          op, snapshot.sequence, snapshot.num_tokens, snapshot.slot, B, num_snapshot_slots));
    }
    if (previous != nullptr &&
        (previous->sequence > snapshot.sequence ||
         (previous->sequence == snapshot.sequence && previous->num_tokens > snapshot.num_tokens))) {
      return invalid_argument(
          fmt::format("{}: snapshots must be sorted by sequence, then by num_tokens", op));
    }
    previous = &snapshot;
  }
  return {};
}

Status check_batch_pages(const char* op, const ForwardContext& forward, int64_t num_pages,
                         int64_t page_size) {
  const int64_t B = forward.num_sequences();
  if (forward.page_size != page_size) {
    return invalid_argument(
        fmt::format("{}: the batch has pages of {} tokens, the pool pages of {}", op,
                    forward.page_size, page_size));
  }
  if (!forward.kv_lens.empty() && static_cast<int64_t>(forward.kv_lens.size()) != B) {
    return invalid_argument(fmt::format("{}: kv_lens has {} entries, the batch has {} sequences",
                                        op, forward.kv_lens.size(), B));
  }
  if (static_cast<int64_t>(forward.page_table.size()) < B * forward.page_table_width) {
    return invalid_argument(fmt::format("{}: page_table has {} entries, {} x {} are needed", op,
                                        forward.page_table.size(), B, forward.page_table_width));
  }
  for (int64_t b = 0; b < B; ++b) {
    const int64_t length = forward.context_lens[static_cast<size_t>(b)] + forward.num_rows(b);
    const int64_t used = (length + page_size - 1) / page_size;
    if (used > forward.page_table_width) {
      return invalid_argument(
          fmt::format("{}: sequence {} has {} tokens, its page table has room for {}", op, b,
                      length, forward.page_table_width * page_size));
    }
    const int32_t* pages = forward.pages(b);
    bool inside = true;
    for (int64_t i = 0; i < used; ++i) {
      inside &= static_cast<uint32_t>(pages[i]) < static_cast<uint64_t>(num_pages);
    }
    if (!inside) {
      return invalid_argument(
          fmt::format("{}: sequence {} names a page outside the pool of {}", op, b, num_pages));
    }
  }
  return {};
}

}  // namespace heddle::ops
