// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/launch.cuh"
#include "ops/linear_attention/snapshot_rows.cuh"
#include "ops/linear_attention/state_snapshot.h"

namespace heddle::ops {

namespace {

enum class StateAction { kSave, kRestore, kCopy, kZero };

struct Params {
  StateAction action;
  const StateLayer* working;
  const SnapshotLayer* snapshots;  // to save and to restore
  const IdCopy* copies;
  const int32_t* zeroed;
  int64_t num_entries;
  int64_t num_layers;
  int64_t matrix_rows;  // Nv * Dv of a slot
  int64_t window_rows;  // W - 1
  int64_t Dk, C;
  DType dtype;  // of the snapshots
};

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int64_t kPiece = 128;  // numbers of a row of the window that a warp takes

__device__ SnapshotMatrices matrices_of(const SnapshotLayer& layer, const Params& p) {
  return {.data = layer.recurrent.data,
          .scales = static_cast<float*>(layer.scales.data),
          .slot_stride = layer.recurrent.row_stride,
          .scale_stride = layer.scales.row_stride,
          .Dk = p.Dk,
          .dtype = p.dtype};
}

__device__ void save_row(const Params& p, int64_t layer, int64_t row, const IdCopy& copy) {
  const MutableTensorView& recurrent = p.working[layer].recurrent;
  const float* from =
      static_cast<const float*>(recurrent.data) + copy.from * recurrent.row_stride + row * p.Dk;
  const SnapshotMatrices to = matrices_of(p.snapshots[layer], p);
  const int64_t lane = threadIdx.x % kWarp;
  RowScale scale;
  if (p.dtype == DType::kI8) {
    float largest = 0;
    bool finite = true;
    for (int64_t i = lane; i < p.Dk; i += kWarp) {
      largest = fmaxf(largest, fabsf(from[i]));
      finite = finite && isfinite(from[i]);
    }
    scale = row_scale(largest, finite);
  }
  const int64_t number = to.number_of(copy.to, row);
  for (int64_t i = lane; i < p.Dk; i += kWarp) {
    store_snapshot_number(to, number + i, from[i], scale);
  }
  store_row_scale(to, copy.to, row, scale);
}

__device__ void restore_row(const Params& p, int64_t layer, int64_t row, const IdCopy& copy) {
  const MutableTensorView& recurrent = p.working[layer].recurrent;
  float* to = static_cast<float*>(recurrent.data) + copy.to * recurrent.row_stride + row * p.Dk;
  const SnapshotMatrices from = matrices_of(p.snapshots[layer], p);
  const float scale =
      p.dtype == DType::kI8 ? from.scales[copy.from * from.scale_stride + row] : 1.0f;
  const int64_t number = from.number_of(copy.from, row);
  for (int64_t i = threadIdx.x % kWarp; i < p.Dk; i += kWarp) {
    to[i] = load_snapshot_number(from, number + i, scale);
  }
}

// from: null writes zeros.
__device__ void copy_row(const float* from, float* to, int64_t width) {
  const int64_t lane = threadIdx.x % kWarp;
  const auto places = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
  if (width % 4 == 0 && places % 16 == 0) {
    for (int64_t i = lane * 4; i < width; i += kWarp * 4) {
      *reinterpret_cast<float4*>(to + i) =
          from == nullptr ? float4{0, 0, 0, 0} : *reinterpret_cast<const float4*>(from + i);
    }
    return;
  }
  for (int64_t i = lane; i < width; i += kWarp) to[i] = from == nullptr ? 0.0f : from[i];
}

__device__ float* numbers_of(const MutableTensorView& pool, int64_t slot) {
  return static_cast<float*>(pool.data) + slot * pool.row_stride;
}

// A warp takes a row of a layer's matrices, or a piece of a row of its convolution window, through
// all entries of the list; a lane reads only what it wrote itself, so that the order of the list
// holds. Moves 4 bytes in and 4 (bf16 2, int8 1) out for each number and entry: bandwidth-bound, 8
// states of 6.4 MB 25 us at 4.2 TB/s.
__global__ void __launch_bounds__(kThreads) states_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  const int64_t pieces = ceil_div(p.C, kPiece);  // of a row of the window
  const int64_t units = p.matrix_rows + p.window_rows * pieces;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t at = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; at < p.num_layers * units;
       at += stride) {
    const int64_t layer = at / units, unit = at % units;
    const bool is_matrix = unit < p.matrix_rows;
    const int64_t piece = unit - p.matrix_rows;
    // Of a slot's numbers those from `first` on.
    const int64_t first = is_matrix ? unit * p.Dk : piece / pieces * p.C + piece % pieces * kPiece;
    const int64_t width = is_matrix ? p.Dk : min(kPiece, p.C - piece % pieces * kPiece);
    const auto place = [&](const StateLayer& working, int64_t slot) {
      return numbers_of(is_matrix ? working.recurrent : working.conv, slot) + first;
    };
    for (int64_t i = 0; i < p.num_entries; ++i) {
      const StateLayer& working = p.working[layer];
      if (p.action == StateAction::kZero) {
        copy_row(nullptr, place(working, p.zeroed[i]), width);
      } else if (p.action == StateAction::kCopy) {
        copy_row(place(working, p.copies[i].from), place(working, p.copies[i].to), width);
      } else if (!is_matrix) {
        const MutableTensorView& snapshots = p.snapshots[layer].conv;
        if (p.action == StateAction::kSave) {
          copy_row(place(working, p.copies[i].from), numbers_of(snapshots, p.copies[i].to) + first,
                   width);
        } else {
          copy_row(numbers_of(snapshots, p.copies[i].from) + first, place(working, p.copies[i].to),
                   width);
        }
      } else if (p.action == StateAction::kSave) {
        save_row(p, layer, unit, p.copies[i]);
      } else {
        restore_row(p, layer, unit, p.copies[i]);
      }
    }
  }
}

Params params_of(StateAction action, const MirroredSpan<StateLayer>& working, int64_t entries) {
  const StateLayer& layer = working.host.front();
  return {.action = action,
          .working = working.device,
          .snapshots = nullptr,
          .copies = nullptr,
          .zeroed = nullptr,
          .num_entries = entries,
          .num_layers = working.size(),
          .matrix_rows = layer.recurrent.shape[1] * layer.recurrent.shape[2],
          .window_rows = layer.conv.shape[1],
          .Dk = layer.recurrent.shape[3],
          .C = layer.conv.shape[2],
          .dtype = DType::kF32};
}

Status launch_states(CudaContext& context, const char* name, const Params& params) {
  const int64_t units =
      params.num_layers * (params.matrix_rows + params.window_rows * ceil_div(params.C, kPiece));
  return launch(context, name, states_kernel, grid_of(ceil_div(units, kWarps)), kThreads, params);
}

Status launch_snapshots(CudaContext& context, const char* name, StateAction action,
                        const SnapshotCopyArgs& args) {
  Params params = params_of(action, args.working, args.slots.size());
  params.snapshots = args.snapshots.device;
  params.copies = args.slots.device;
  params.dtype = args.snapshots.host.front().recurrent.dtype;
  return launch_states(context, name, params);
}

}  // namespace

Status save_snapshots_cuda(CudaContext& context, const SnapshotCopyArgs& args) {
  return launch_snapshots(context, "save_snapshots", StateAction::kSave, args);
}

Status restore_snapshots_cuda(CudaContext& context, const SnapshotCopyArgs& args) {
  return launch_snapshots(context, "restore_snapshots", StateAction::kRestore, args);
}

Status copy_states_cuda(CudaContext& context, const StateCopyArgs& args) {
  Params params = params_of(StateAction::kCopy, args.working, args.slots.size());
  params.copies = args.slots.device;
  return launch_states(context, "copy_states", params);
}

Status zero_states_cuda(CudaContext& context, const StateZeroArgs& args) {
  Params params = params_of(StateAction::kZero, args.working, args.slots.size());
  params.zeroed = args.slots.device;
  return launch_states(context, "zero_states", params);
}

}  // namespace heddle::ops
