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
  for (int64_t i = threadIdx.x % kWarp; i < width; i += kWarp) {
    to[i] = from == nullptr ? 0.0f : from[i];
  }
}

__device__ float* row_of(const MutableTensorView& pool, int64_t slot, int64_t row, int64_t width) {
  return static_cast<float*>(pool.data) + slot * pool.row_stride + row * width;
}

// A warp takes one row of a layer, of a matrix or of the convolution window, through all entries of
// the list; a lane reads only what it wrote itself, so that the order of the list holds. Moves 4
// bytes in and 4 (bf16 2, int8 1) out for each number and entry: bandwidth-bound.
__global__ void __launch_bounds__(kThreads) states_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  const int64_t rows = p.matrix_rows + p.window_rows;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t unit = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
       unit < p.num_layers * rows; unit += stride) {
    const int64_t layer = unit / rows, row = unit % rows;
    const bool is_matrix = row < p.matrix_rows;
    for (int64_t i = 0; i < p.num_entries; ++i) {
      if (p.action == StateAction::kZero || p.action == StateAction::kCopy) {
        const MutableTensorView& pool =
            is_matrix ? p.working[layer].recurrent : p.working[layer].conv;
        const int64_t width = is_matrix ? p.Dk : p.C;
        const int64_t at = is_matrix ? row : row - p.matrix_rows;
        if (p.action == StateAction::kZero) {
          copy_row(nullptr, row_of(pool, p.zeroed[i], at, width), width);
        } else {
          copy_row(row_of(pool, p.copies[i].from, at, width),
                   row_of(pool, p.copies[i].to, at, width), width);
        }
      } else if (!is_matrix) {
        const MutableTensorView& working = p.working[layer].conv;
        const MutableTensorView& snapshots = p.snapshots[layer].conv;
        const bool saves = p.action == StateAction::kSave;
        const int64_t at = row - p.matrix_rows;
        copy_row(row_of(saves ? working : snapshots, p.copies[i].from, at, p.C),
                 row_of(saves ? snapshots : working, p.copies[i].to, at, p.C), p.C);
      } else if (p.action == StateAction::kSave) {
        save_row(p, layer, row, p.copies[i]);
      } else {
        restore_row(p, layer, row, p.copies[i]);
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
  const int64_t rows = params.num_layers * (params.matrix_rows + params.window_rows);
  return launch(context, name, states_kernel, grid_of(ceil_div(rows, kWarps)), kThreads, params);
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
