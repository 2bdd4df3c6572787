// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/state_snapshot.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "ops/linear_attention/snapshot_rows.h"

namespace heddle::ops {

namespace {

// How many slots every part has.
struct SlotCounts {
  int64_t working = std::numeric_limits<int64_t>::max();
  int64_t snapshots = std::numeric_limits<int64_t>::max();
};

bool fits(int32_t slot, int64_t num_slots) { return slot >= 0 && slot < num_slots; }

// One slot of a view.
std::span<const int64_t> slot_dims(const MutableTensorView& view) {
  return view.shape.dims().subspan(1);
}

Status check_working(const char* op, const Context& context,
                     const MirroredSpan<StatePartView>& parts, SlotCounts& counts) {
  HEDDLE_RETURN_IF_ERROR(check_mirrored(op, "parts", context, parts));
  if (parts.host.empty()) return invalid_argument(fmt::format("{}: there are no parts", op));
  for (const StatePartView& part : parts.host) {
    const MutableTensorView& working = part.working;
    if (working.shape.rank() < 2 || working.dtype != DType::kF32 ||
        part.rows * part.width != working.dense_row_stride(working.shape)) {
      return invalid_argument(fmt::format(
          "{}: part {} has working states {} of {}; they must be f32 rows in two dimensions or "
          "more",
          op, &part - parts.host.data(), working.shape.to_string(), to_string(working.dtype)));
    }
    counts.working = std::min(counts.working, working.shape[0]);
  }
  return {};
}

// The format of a part's snapshots, and that they have the part's shape.
Status check_snapshots(const char* op, int64_t index, const StatePartView& part) {
  const MutableTensorView& snapshots = part.snapshots;
  if (snapshots.shape.rank() == 0) {
    return invalid_argument(fmt::format("{}: part {} has no snapshots", op, index));
  }
  const DTypeSet formats = DTypeSet(DType::kF32) | DType::kBf16 | DType::kI8;
  if (!formats.contains(snapshots.dtype) ||
      !std::ranges::equal(slot_dims(snapshots), slot_dims(part.working))) {
    return invalid_argument(fmt::format(
        "{}: part {} has snapshots {} of {}, its working states are {}", op, index,
        snapshots.shape.to_string(), to_string(snapshots.dtype), part.working.shape.to_string()));
  }
  if (snapshots.dtype != DType::kI8) return {};
  const std::span<const int64_t> rows = snapshots.shape.dims();
  if (part.scales.dtype == DType::kF32 &&
      std::ranges::equal(part.scales.shape.dims(), rows.first(rows.size() - 1))) {
    return {};
  }
  return invalid_argument(fmt::format("{}: part {} has scales {} of {} for snapshots {}", op, index,
                                      part.scales.shape.to_string(), to_string(part.scales.dtype),
                                      snapshots.shape.to_string()));
}

Status check_snapshot_copy(const char* op, const Context& context, const SnapshotCopyArgs& args,
                           bool saves) {
  SlotCounts counts;
  HEDDLE_RETURN_IF_ERROR(check_working(op, context, args.parts, counts));
  HEDDLE_RETURN_IF_ERROR(check_mirrored(op, "slots", context, args.slots));
  for (int64_t i = 0; i < args.parts.size(); ++i) {
    const StatePartView& part = args.parts.host[static_cast<size_t>(i)];
    HEDDLE_RETURN_IF_ERROR(check_snapshots(op, i, part));
    counts.snapshots = std::min(counts.snapshots, part.snapshots.shape[0]);
  }
  for (const IdCopy& copy : args.slots.host) {
    const int32_t working = saves ? copy.from : copy.to;
    const int32_t snapshot = saves ? copy.to : copy.from;
    if (!fits(working, counts.working) || !fits(snapshot, counts.snapshots)) {
      return invalid_argument(fmt::format("{}: working slot {} of {} and snapshot slot {} of {}",
                                          op, working, counts.working, snapshot, counts.snapshots));
    }
  }
  return {};
}

}  // namespace

StatePartView state_part(const MutableTensorView& working, const MutableTensorView& snapshots,
                         const MutableTensorView& scales) {
  const std::span<const int64_t> dims = working.shape.dims();
  int64_t rows = 1;
  for (size_t i = 1; i + 1 < dims.size(); ++i) rows *= dims[i];
  return {.working = working,
          .snapshots = snapshots,
          .scales = scales,
          .rows = rows,
          .width = dims.empty() ? 0 : dims.back()};
}

Status save_snapshots(Context& context, const SnapshotCopyArgs& args) {
  if (args.slots.host.empty()) return {};
  HEDDLE_RETURN_IF_ERROR(check_snapshot_copy("save_snapshots", context, args, true));
  return HEDDLE_DISPATCH_DEVICE(context, save_snapshots, args);
}

Status restore_snapshots(Context& context, const SnapshotCopyArgs& args) {
  if (args.slots.host.empty()) return {};
  HEDDLE_RETURN_IF_ERROR(check_snapshot_copy("restore_snapshots", context, args, false));
  return HEDDLE_DISPATCH_DEVICE(context, restore_snapshots, args);
}

Status copy_states(Context& context, const StateCopyArgs& args) {
  if (args.slots.host.empty()) return {};
  SlotCounts counts;
  HEDDLE_RETURN_IF_ERROR(check_working("copy_states", context, args.parts, counts));
  HEDDLE_RETURN_IF_ERROR(check_mirrored("copy_states", "slots", context, args.slots));
  for (const IdCopy& copy : args.slots.host) {
    if (!fits(copy.from, counts.working) || !fits(copy.to, counts.working)) {
      return invalid_argument(
          fmt::format("copy_states: slot {} to slot {} of {}", copy.from, copy.to, counts.working));
    }
  }
  return HEDDLE_DISPATCH_DEVICE(context, copy_states, args);
}

Status zero_states(Context& context, const StateZeroArgs& args) {
  if (args.slots.host.empty()) return {};
  SlotCounts counts;
  HEDDLE_RETURN_IF_ERROR(check_working("zero_states", context, args.parts, counts));
  HEDDLE_RETURN_IF_ERROR(check_mirrored("zero_states", "slots", context, args.slots));
  for (const int32_t slot : args.slots.host) {
    if (!fits(slot, counts.working)) {
      return invalid_argument(fmt::format("zero_states: slot {} of {}", slot, counts.working));
    }
  }
  return HEDDLE_DISPATCH_DEVICE(context, zero_states, args);
}

namespace {

// The rows of one task: `count` rows of a slot of a part, from `first` on.
struct PartRows {
  const StatePartView& part;
  int64_t first = 0;
  int64_t count = 0;

  [[nodiscard]] size_t num_bytes() const {
    return static_cast<size_t>(bytes_of(DType::kF32, count * part.width));
  }

  [[nodiscard]] float* working(int32_t slot) const {
    return part.working.row<float>(slot) + first * part.width;
  }

  [[nodiscard]] SnapshotRows snapshots(int32_t slot) const {
    const MutableTensorView& pool = part.snapshots;
    const int64_t number = slot * pool.row_stride + first * part.width;
    return {.dtype = pool.dtype,
            .data = pool.as<std::byte>() + bytes_of(pool.dtype, number),
            .scales = pool.dtype == DType::kI8 ? part.scales.row<float>(slot) + first : nullptr};
  }
};

// A part's slot is cut along its first dimension: a task for each value head, or for each row.
int64_t num_tasks(const StatePartView& part) {
  return part.working.shape.rank() > 2 ? part.working.shape[1] : 1;
}

// Calls body(entry, rows) for each entry of a list, in its order, and all rows of all parts.
template <class Entry, class Body>
void for_each_entry(CpuContext& context, std::span<const StatePartView> parts,
                    std::span<const Entry> entries, const Body& body) {
  const int64_t most = num_tasks(*std::ranges::max_element(parts, {}, num_tasks));
  context.pool.parallel_for(std::ssize(parts) * most, [&](int64_t task, int /*worker*/) {
    const StatePartView& part = parts[static_cast<size_t>(task / most)];
    const int64_t tasks = num_tasks(part), index = task % most;
    if (index >= tasks) return;
    const int64_t count = part.rows / tasks;
    for (const Entry& entry : entries) {
      body(entry, PartRows{.part = part, .first = index * count, .count = count});
    }
  });
}

}  // namespace

Status save_snapshots_cpu(CpuContext& context, const SnapshotCopyArgs& args) {
  for_each_entry(context, args.parts.host, args.slots.host,
                 [](const IdCopy& copy, const PartRows& rows) {
                   encode_snapshot_rows(rows.working(copy.from), rows.count, rows.part.width,
                                        rows.snapshots(copy.to));
                 });
  return {};
}

Status restore_snapshots_cpu(CpuContext& context, const SnapshotCopyArgs& args) {
  for_each_entry(context, args.parts.host, args.slots.host,
                 [](const IdCopy& copy, const PartRows& rows) {
                   decode_snapshot_rows(rows.snapshots(copy.from), rows.count, rows.part.width,
                                        rows.working(copy.to));
                 });
  return {};
}

Status copy_states_cpu(CpuContext& context, const StateCopyArgs& args) {
  for_each_entry(context, args.parts.host, args.slots.host,
                 [](const IdCopy& copy, const PartRows& rows) {
                   std::memmove(rows.working(copy.to), rows.working(copy.from), rows.num_bytes());
                 });
  return {};
}

Status zero_states_cpu(CpuContext& context, const StateZeroArgs& args) {
  for_each_entry(context, args.parts.host, args.slots.host,
                 [](const int32_t& slot, const PartRows& rows) {
                   std::memset(rows.working(slot), 0, rows.num_bytes());
                 });
  return {};
}

}  // namespace heddle::ops
