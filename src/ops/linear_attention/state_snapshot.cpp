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

constexpr const char* kNames[] = {"save_states", "restore_states", "copy_states", "zero_states"};

bool moves_snapshots(StateMove move) {
  return move == StateMove::kSave || move == StateMove::kRestore;
}

// The dimensions of one slot of a view.
std::span<const int64_t> slot_dims(const MutableTensorView& view) {
  return view.shape.dims().subspan(1);
}

Status check_working(const char* op, int64_t index, const StatePartView& part) {
  const MutableTensorView& working = part.working;
  if (working.shape.rank() >= 2 && working.dtype == DType::kF32 &&
      part.rows * part.width == working.dense_row_stride(working.shape)) {
    return {};
  }
  return invalid_argument(fmt::format(
      "{}: part {} has working states {} of {}; they must be f32 rows in two dimensions or more",
      op, index, working.shape.to_string(), to_string(working.dtype)));
}

// Checks the dtype of a part's snapshots, and that they have the part's shape.
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

Status move_states(Context& context, const StateMoveArgs& args) {
  if (args.slots.host.empty()) return {};
  const char* const op = kNames[static_cast<size_t>(args.move)];
  HEDDLE_RETURN_IF_ERROR(check_mirrored(op, "parts", context, args.parts));
  HEDDLE_RETURN_IF_ERROR(check_mirrored(op, "slots", context, args.slots));
  if (args.parts.host.empty()) return invalid_argument(fmt::format("{}: there are no parts", op));
  // Number of slots that all parts have.
  int64_t working = std::numeric_limits<int64_t>::max(), snapshots = working;
  for (int64_t i = 0; i < args.parts.size(); ++i) {
    const StatePartView& part = args.parts.host[static_cast<size_t>(i)];
    HEDDLE_RETURN_IF_ERROR(check_working(op, i, part));
    working = std::min(working, part.working.shape[0]);
    if (!moves_snapshots(args.move)) continue;
    HEDDLE_RETURN_IF_ERROR(check_snapshots(op, i, part));
    snapshots = std::min(snapshots, part.snapshots.shape[0]);
  }
  const int64_t num_from = args.move == StateMove::kRestore ? snapshots : working;
  const int64_t num_to = args.move == StateMove::kSave ? snapshots : working;
  for (const IdCopy& copy : args.slots.host) {
    const bool reads = args.move != StateMove::kZero;
    if (reads && (copy.from < 0 || copy.from >= num_from)) {
      return invalid_argument(fmt::format("{}: from slot {} of {}", op, copy.from, num_from));
    }
    if (copy.to < 0 || copy.to >= num_to) {
      return invalid_argument(fmt::format("{}: to slot {} of {}", op, copy.to, num_to));
    }
  }
  return HEDDLE_DISPATCH_DEVICE(context, move_states, args);
}

namespace {

// The rows that one task processes: `count` rows of a slot of a part, from row `first` on.
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

// A slot of a part is divided along its first dimension: a task for each value head, or for each
// row.
int64_t num_tasks(const StatePartView& part) {
  return part.working.shape.rank() > 2 ? part.working.shape[1] : 1;
}

void move_rows(StateMove move, const IdCopy& slots, const PartRows& rows) {
  switch (move) {
    case StateMove::kSave:
      encode_snapshot_rows(rows.working(slots.from), rows.count, rows.part.width,
                           rows.snapshots(slots.to));
      return;
    case StateMove::kRestore:
      decode_snapshot_rows(rows.snapshots(slots.from), rows.count, rows.part.width,
                           rows.working(slots.to));
      return;
    case StateMove::kCopy:
      std::memmove(rows.working(slots.to), rows.working(slots.from), rows.num_bytes());
      return;
    case StateMove::kZero:
      std::memset(rows.working(slots.to), 0, rows.num_bytes());
      return;
  }
}

}  // namespace

Status move_states_cpu(CpuContext& context, const StateMoveArgs& args) {
  const std::span<const StatePartView> parts = args.parts.host;
  const int64_t most = num_tasks(*std::ranges::max_element(parts, {}, num_tasks));
  context.pool.parallel_for(std::ssize(parts) * most, [&](int64_t task, int /*worker*/) {
    const StatePartView& part = parts[static_cast<size_t>(task / most)];
    const int64_t tasks = num_tasks(part), index = task % most;
    if (index >= tasks) return;
    const int64_t count = part.rows / tasks;
    const PartRows rows{.part = part, .first = index * count, .count = count};
    for (const IdCopy& slots : args.slots.host) move_rows(args.move, slots, rows);
  });
  return {};
}

}  // namespace heddle::ops
