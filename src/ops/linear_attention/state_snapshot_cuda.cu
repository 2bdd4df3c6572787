// SPDX-License-Identifier: Apache-2.0
// Processes lists of states: zero a slot, copy a slot to another, save to a snapshot slot, restore
// from one (all layers). Blocks with the same blockIdx.y process a part of the state
// (state_snapshot.h). A warp processes a piece of a row, 128 numbers or a whole i8 row, for all
// entries of the list in order; a lane every 32nd number. Bytes: reads 4 and writes 4 (bf16 2, int8
// 1) a number and entry: bandwidth-bound. The only kernel for this on CUDA.
#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/linear_attention/snapshot_rows.cuh"
#include "ops/linear_attention/state_snapshot.h"

namespace heddle::ops {

namespace {

struct Params {
  StateMove move;
  const StatePartView* parts;
  const IdCopy* slots;
  int64_t num_entries;
};

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int64_t kPiece = 128;  // numbers of a row that a warp processes

// Numbers of a piece. A warp processes whole rows of i8 snapshots, because a row has one scale.
__host__ __device__ int64_t piece_width(const StatePartView& part) {
  return part.snapshots.dtype == DType::kI8 ? part.width : kPiece;
}

__host__ __device__ int64_t num_pieces(const StatePartView& part) {
  return part.rows * ceil_div(part.width, piece_width(part));
}

// A piece of a row: `width` numbers, from number `first` of the slot on.
struct Piece {
  int64_t row, first, width;
};

__device__ SnapshotMatrices matrices_of(const StatePartView& part) {
  return {.data = part.snapshots.data,
          .scales = static_cast<float*>(part.scales.data),
          .slot_stride = part.snapshots.row_stride,
          .scale_stride = part.scales.row_stride,
          .Dk = part.width,
          .dtype = part.snapshots.dtype};
}

__device__ float* numbers_of(const MutableTensorView& pool, int64_t slot) {
  return static_cast<float*>(pool.data) + slot * pool.row_stride;
}

__device__ void save_piece(const StatePartView& part, const Piece& piece, const IdCopy& copy) {
  const float* from = numbers_of(part.working, copy.from) + piece.first;
  const SnapshotMatrices to = matrices_of(part);
  const int64_t lane = threadIdx.x % kWarp;
  RowScale scale;
  if (to.dtype == DType::kI8) {
    float largest = 0;
    bool finite = true;
    for (int64_t i = lane; i < piece.width; i += kWarp) {
      largest = fmaxf(largest, fabsf(from[i]));
      finite = finite && isfinite(from[i]);
    }
    scale = row_scale(largest, finite);
  }
  const int64_t number = copy.to * to.slot_stride + piece.first;
  for (int64_t i = lane; i < piece.width; i += kWarp) {
    store_snapshot_number(to, number + i, from[i], scale);
  }
  store_row_scale(to, copy.to, piece.row, scale);
}

__device__ void restore_piece(const StatePartView& part, const Piece& piece, const IdCopy& copy) {
  float* to = numbers_of(part.working, copy.to) + piece.first;
  const SnapshotMatrices from = matrices_of(part);
  const float scale =
      from.dtype == DType::kI8 ? from.scales[copy.from * from.scale_stride + piece.row] : 1.0f;
  const int64_t number = copy.from * from.slot_stride + piece.first;
  for (int64_t i = threadIdx.x % kWarp; i < piece.width; i += kWarp) {
    to[i] = load_snapshot_number(from, number + i, scale);
  }
}

// Copies a piece, or writes zeros if `from` is null.
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

// Blocks with the same blockIdx.y process a part. A warp processes a piece of a row for all entries
// of the list and synchronises its lanes between two entries, so that the entries take effect in
// order. Reads 4 bytes and writes 4 (bf16 2, int8 1) for each number and entry: bandwidth-bound, 8
// states of 6.4 MB 25 us at 4.2 TB/s.
__global__ void __launch_bounds__(kThreads) states_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  const StatePartView& part = p.parts[blockIdx.y];
  // Snapshots are plain copies of states.
  const bool is_plain = part.snapshots.dtype == DType::kF32;
  const int64_t per_row = ceil_div(part.width, piece_width(part));
  const int64_t pieces = num_pieces(part);
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t at = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; at < pieces; at += stride) {
    const int64_t begin = at % per_row * piece_width(part);
    const Piece piece{.row = at / per_row,
                      .first = at / per_row * part.width + begin,
                      .width = min(piece_width(part), part.width - begin)};
    const auto working = [&](int64_t slot) { return numbers_of(part.working, slot) + piece.first; };
    const auto plain = [&](int64_t slot) { return numbers_of(part.snapshots, slot) + piece.first; };
    for (int64_t i = 0; i < p.num_entries; ++i) {
      const IdCopy slots = p.slots[i];
      if (p.move == StateMove::kZero) {
        copy_row(nullptr, working(slots.to), piece.width);
      } else if (p.move == StateMove::kCopy) {
        copy_row(working(slots.from), working(slots.to), piece.width);
      } else if (p.move == StateMove::kSave) {
        if (is_plain) {
          copy_row(working(slots.from), plain(slots.to), piece.width);
        } else {
          save_piece(part, piece, slots);
        }
      } else if (is_plain) {
        copy_row(plain(slots.from), working(slots.to), piece.width);
      } else {
        restore_piece(part, piece, slots);
      }
      __syncwarp();
    }
  }
}

}  // namespace

// Launches as many blocks for each part as a part of average size needs; warps of larger parts
// process several pieces.
Status move_states_cuda(CudaContext& context, const StateMoveArgs& args) {
  int64_t pieces = 0;
  for (const StatePartView& part : args.parts.host) pieces += num_pieces(part);
  dim3 grid = grid_of(std::max<int64_t>(ceil_div(pieces, args.parts.size() * kWarps), 1));
  grid.y = static_cast<unsigned>(args.parts.size());
  return launch(context, "move_states", states_kernel, grid, kThreads,
                Params{.move = args.move,
                       .parts = args.parts.device,
                       .slots = args.slots.device,
                       .num_entries = args.slots.size()});
}

}  // namespace heddle::ops
