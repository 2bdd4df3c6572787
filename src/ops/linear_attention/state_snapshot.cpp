// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/state_snapshot.h"

#include <algorithm>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/linear_attention/snapshot_rows.h"

namespace heddle::ops {

namespace {

// Dimensions that all layers have in common.
struct StateDims {
  Dim slots{"slots"}, snapshot_slots{"snapshot slots"}, window{"W - 1"}, C{"C"};
  Dim Nv{"Nv"}, Dv{"Dv"}, Dk{"Dk"};
};

Status check_working(const char* op, const Context& context,
                     const MirroredSpan<StateLayer>& working, StateDims& dims) {
  HEDDLE_RETURN_IF_ERROR(check_mirrored(op, "working layers", context, working));
  if (working.host.empty()) return invalid_argument(fmt::format("{}: there are no layers", op));
  ShapeContract contract(op);
  for (const StateLayer& layer : working.host) {
    contract.expect("working.conv", layer.conv, {&dims.slots, &dims.window, &dims.C}, DType::kF32)
        .expect("working.recurrent", layer.recurrent, {&dims.slots, &dims.Nv, &dims.Dv, &dims.Dk},
                DType::kF32);
  }
  return contract.status();
}

bool lies_within(int32_t slot, int64_t num_slots) { return slot >= 0 && slot < num_slots; }

Status check_snapshot_copy(const char* op, const Context& context, const SnapshotCopyArgs& args,
                           bool saves) {
  if (args.working.size() != args.snapshots.size()) {
    return invalid_argument(fmt::format("{}: {} working layers and {} of snapshots", op,
                                        args.working.size(), args.snapshots.size()));
  }
  StateDims dims;
  HEDDLE_RETURN_IF_ERROR(check_working(op, context, args.working, dims));
  HEDDLE_RETURN_IF_ERROR(check_mirrored(op, "layers of snapshots", context, args.snapshots));
  HEDDLE_RETURN_IF_ERROR(check_mirrored(op, "slots", context, args.slots));
  ShapeContract contract(op);
  for (const SnapshotLayer& layer : args.snapshots.host) {
    contract.expect("snapshots.conv", layer.conv, {&dims.snapshot_slots, &dims.window, &dims.C},
                    DType::kF32);
    expect_snapshot_matrices(contract, layer, {&dims.snapshot_slots, &dims.Nv, &dims.Dv, &dims.Dk});
    if (layer.recurrent.dtype != args.snapshots.host.front().recurrent.dtype) {
      return invalid_argument(fmt::format("{}: layers have snapshots of {} and of {}", op,
                                          to_string(args.snapshots.host.front().recurrent.dtype),
                                          to_string(layer.recurrent.dtype)));
    }
  }
  HEDDLE_RETURN_IF_ERROR(contract.status());
  for (const IdCopy& copy : args.slots.host) {
    const int32_t working = saves ? copy.from : copy.to;
    const int32_t snapshot = saves ? copy.to : copy.from;
    if (!lies_within(working, dims.slots) || !lies_within(snapshot, dims.snapshot_slots)) {
      return invalid_argument(fmt::format("{}: working slot {} of {} and snapshot slot {} of {}",
                                          op, working, dims.slots.value(), snapshot,
                                          dims.snapshot_slots.value()));
    }
  }
  return {};
}

}  // namespace

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
  StateDims dims;
  HEDDLE_RETURN_IF_ERROR(check_working("copy_states", context, args.working, dims));
  HEDDLE_RETURN_IF_ERROR(check_mirrored("copy_states", "slots", context, args.slots));
  for (const IdCopy& copy : args.slots.host) {
    if (!lies_within(copy.from, dims.slots) || !lies_within(copy.to, dims.slots)) {
      return invalid_argument(fmt::format("copy_states: slot {} to slot {} of {}", copy.from,
                                          copy.to, dims.slots.value()));
    }
  }
  return HEDDLE_DISPATCH_DEVICE(context, copy_states, args);
}

Status zero_states(Context& context, const StateZeroArgs& args) {
  if (args.slots.host.empty()) return {};
  StateDims dims;
  HEDDLE_RETURN_IF_ERROR(check_working("zero_states", context, args.working, dims));
  HEDDLE_RETURN_IF_ERROR(check_mirrored("zero_states", "slots", context, args.slots));
  for (const int32_t slot : args.slots.host) {
    if (!lies_within(slot, dims.slots)) {
      return invalid_argument(fmt::format("zero_states: slot {} of {}", slot, dims.slots.value()));
    }
  }
  return HEDDLE_DISPATCH_DEVICE(context, zero_states, args);
}

namespace {

// A task is a value head of a layer, for all entries of the list in their order; the first head
// takes the convolution window along.
template <class ForWindow, class ForRows>
void for_each_head(CpuContext& context, std::span<const StateLayer> working, int64_t num_entries,
                   const ForWindow& for_window, const ForRows& for_rows) {
  const int64_t Nv = working[0].recurrent.shape[1];
  context.pool.parallel_for(std::ssize(working) * Nv, [&](int64_t task, int /*worker*/) {
    for (int64_t entry = 0; entry < num_entries; ++entry) {
      const auto i = static_cast<size_t>(entry);
      const auto layer = static_cast<size_t>(task / Nv);
      if (task % Nv == 0) for_window(i, layer);
      for_rows(i, layer, task % Nv * working[layer].recurrent.shape[2]);
    }
  });
}

int64_t head_numbers(const StateLayer& layer) {
  return layer.recurrent.shape[2] * layer.recurrent.shape[3];
}

size_t window_bytes(const StateLayer& layer) {
  return static_cast<size_t>(bytes_of(DType::kF32, layer.conv.shape[1] * layer.conv.shape[2]));
}

// From value row `row` on, counted over the heads of a slot.
float* matrix_rows(const StateLayer& layer, int32_t slot, int64_t row) {
  return layer.recurrent.row<float>(slot) + row * layer.recurrent.shape[3];
}

}  // namespace

Status save_snapshots_cpu(CpuContext& context, const SnapshotCopyArgs& args) {
  const std::span working = args.working.host;
  const std::span snapshots = args.snapshots.host;
  const std::span slots = args.slots.host;
  for_each_head(
      context, working, args.slots.size(),
      [&](size_t i, size_t layer) {
        std::memcpy(snapshots[layer].conv.row<float>(slots[i].to),
                    working[layer].conv.row<float>(slots[i].from), window_bytes(working[layer]));
      },
      [&](size_t i, size_t layer, int64_t row) {
        const MutableTensorView& matrices = working[layer].recurrent;
        encode_snapshot_rows(matrix_rows(working[layer], slots[i].from, row), matrices.shape[2],
                             matrices.shape[3], snapshot_rows(snapshots[layer], slots[i].to, row));
      });
  return {};
}

Status restore_snapshots_cpu(CpuContext& context, const SnapshotCopyArgs& args) {
  const std::span working = args.working.host;
  const std::span snapshots = args.snapshots.host;
  const std::span slots = args.slots.host;
  for_each_head(
      context, working, args.slots.size(),
      [&](size_t i, size_t layer) {
        std::memcpy(working[layer].conv.row<float>(slots[i].to),
                    snapshots[layer].conv.row<float>(slots[i].from), window_bytes(working[layer]));
      },
      [&](size_t i, size_t layer, int64_t row) {
        const MutableTensorView& matrices = working[layer].recurrent;
        decode_snapshot_rows(snapshot_rows(snapshots[layer], slots[i].from, row), matrices.shape[2],
                             matrices.shape[3], matrix_rows(working[layer], slots[i].to, row));
      });
  return {};
}

Status copy_states_cpu(CpuContext& context, const StateCopyArgs& args) {
  const std::span working = args.working.host;
  const std::span slots = args.slots.host;
  for_each_head(
      context, working, args.slots.size(),
      [&](size_t i, size_t layer) {
        std::memmove(working[layer].conv.row<float>(slots[i].to),
                     working[layer].conv.row<float>(slots[i].from), window_bytes(working[layer]));
      },
      [&](size_t i, size_t layer, int64_t row) {
        std::memmove(matrix_rows(working[layer], slots[i].to, row),
                     matrix_rows(working[layer], slots[i].from, row),
                     static_cast<size_t>(bytes_of(DType::kF32, head_numbers(working[layer]))));
      });
  return {};
}

Status zero_states_cpu(CpuContext& context, const StateZeroArgs& args) {
  const std::span working = args.working.host;
  const std::span slots = args.slots.host;
  for_each_head(
      context, working, args.slots.size(),
      [&](size_t i, size_t layer) {
        std::memset(working[layer].conv.row<float>(slots[i]), 0, window_bytes(working[layer]));
      },
      [&](size_t i, size_t layer, int64_t row) {
        std::fill_n(matrix_rows(working[layer], slots[i], row), head_numbers(working[layer]), 0.0f);
      });
  return {};
}

}  // namespace heddle::ops
