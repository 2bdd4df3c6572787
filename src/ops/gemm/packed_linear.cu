// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/launch.cuh"
#include "ops/cuda/packed_rows.cuh"
#include "ops/gemm/linear_rows.cuh"
#include "ops/gemm/packed_linear.h"

namespace heddle::ops {

namespace {

constexpr int kThreads = 256;

template <typename WeightRows>
struct DequantiseParams {
  WeightRows weight;
  TargetRows y;
  int64_t K;
  int64_t octets_per_row, num_octets;
};

// A thread dequantises eight numbers. Reads the codes and scales once and writes N * K numbers: the
// floor is these bytes over the bandwidth.
template <typename WeightRows>
__global__ void __launch_bounds__(kThreads)
    dequantise_kernel(const __grid_constant__ DequantiseParams<WeightRows> p) {
  wait_for_inputs();
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.num_octets;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t n = i / p.octets_per_row;
    const auto k = static_cast<int32_t>(i - n * p.octets_per_row) * kOctet;
    const auto row = p.weight.row(n);
    float values[kOctet];
    if (p.weight.source.octets_share) {
      row.widen(row.octet(k), k, values);
    } else {
      row.widen_each(row.octet(k), k, static_cast<int32_t>(p.K) - k, values);
    }
    p.y.store(n, k, p.K - k, values);
  }
}

Status multiply_rows(CudaContext& context, const LinearArgs& args, const quant::PackedRows& rows) {
  return with_packed_rows(rows, 0, [&](const auto& weight) {
    const AnyRows x{args.x.data, args.x.row_stride, args.x.dtype};
    return linear_rows::multiply(context, args, x, weight, rows_are_aligned(args.x));
  });
}

LinearArgs rows_of(const LinearArgs& args, int64_t first, int64_t count) {
  LinearArgs some = args;
  const auto* x = static_cast<const std::byte*>(args.x.data);
  some.x = TensorView(x + bytes_of(args.x.dtype, first * args.x.row_stride), args.x.dtype,
                      Shape{count, args.x.shape[1]}, args.x.row_stride);
  auto* y = static_cast<std::byte*>(args.y.data);
  some.y = MutableTensorView(y + bytes_of(args.y.dtype, first * args.y.row_stride), args.y.dtype,
                             Shape{count, args.y.shape[1]}, args.y.row_stride);
  return some;
}

// Dequantises the weight slice by slice into the workspace and multiplies each slice.
Status multiply_dense(CudaContext& context, const LinearArgs& args, const quant::PackedRows& rows) {
  const int64_t N = rows.num_rows, K = rows.format.K;
  const DType dtype = args.x.dtype;
  constexpr int64_t kRowsTogether = 128;
  int64_t at_once = kDequantisedBytes / bytes_of(dtype, K);
  at_once = at_once >= N ? N : at_once / kRowsTogether * kRowsTogether;
  const auto address = reinterpret_cast<uintptr_t>(args.workspace.data());
  std::byte* const slice =
      args.workspace.data() +
      (kDequantisedAlignment - address % kDequantisedAlignment) % kDequantisedAlignment;
  for (int64_t first = 0; first < N; first += at_once) {
    const int64_t count = std::min(at_once, N - first);
    const MutableTensorView dense(slice, dtype, Shape{count, K});
    HEDDLE_RETURN_IF_ERROR(dequantise_rows(context, rows.cut(first, count), dense));
    HEDDLE_RETURN_IF_ERROR(linear_cuda(context, columns_of(args, first, dense)));
  }
  return {};
}

// Number of rows of x that skinny_products() computes in one launch, chosen so that there are as
// few launches as possible; 0 if it does not support the product.
int64_t rows_of_a_turn(const CudaContext& context, const LinearArgs& args) {
  const int64_t T = args.x.shape[0];
  if (T > kSkinnyRows) return 0;
  for (int64_t turns = 1; turns <= T; ++turns) {
    const int64_t rows = ceil_div(T, turns);
    const LinearArgs first = rows_of(args, 0, rows);
    if (skinny_products_fit(context, {.products = {&first, 1}})) return rows;
  }
  return 0;
}

// If rows of x are wide, a block has no room for all of them: then each launch computes some rows
// and reads the whole weight.
Status multiply_in_turns(CudaContext& context, const LinearArgs& args, int64_t rows) {
  const int64_t T = args.x.shape[0];
  for (int64_t t = 0; t < T; t += rows) {
    const LinearArgs turn = rows_of(args, t, std::min(rows, T - t));
    HEDDLE_RETURN_IF_ERROR(skinny_products(context, {.products = {&turn, 1}}));
  }
  return {};
}

}  // namespace

LinearArgs columns_of(const LinearArgs& args, int64_t first, const TensorView& weight) {
  const int64_t count = weight.shape[0];
  LinearArgs part = args;
  part.weight = weight;
  auto* y = static_cast<std::byte*>(args.y.data);
  part.y = MutableTensorView(y + bytes_of(args.y.dtype, first), args.y.dtype,
                             Shape{args.y.shape[0], count}, args.y.row_stride);
  if (args.bias.data != nullptr) {
    part.bias = TensorView(args.bias.as<float>() + first, DType::kF32, Shape{count});
  }
  return part;
}

LinearArgs plain_columns(const LinearArgs& args, int64_t first, int64_t count) {
  const auto* weight = static_cast<const std::byte*>(args.weight.data);
  return columns_of(
      args, first,
      TensorView(weight + bytes_of(args.weight.dtype, first * args.weight.row_stride),
                 args.weight.dtype, Shape{count, args.weight.shape[1]}, args.weight.row_stride));
}

Status dequantise_rows(CudaContext& context, const quant::PackedRows& rows,
                       const MutableTensorView& y) {
  const int64_t K = rows.format.K;
  const int64_t octets = ceil_div(K, kOctet);
  return with_packed_rows(rows, 0, [&](const auto& weight) {
    const DequantiseParams<std::decay_t<decltype(weight)>> params{
        .weight = weight,
        .y = TargetRows::of(y),
        .K = K,
        .octets_per_row = octets,
        .num_octets = rows.num_rows * octets};
    return launch(context, "dequantise", dequantise_kernel<std::decay_t<decltype(weight)>>,
                  grid_of(ceil_div(params.num_octets, kThreads)), kThreads, params);
  });
}

Status packed_linear(CudaContext& context, const LinearArgs& args) {
  const bool dense = context.products != nullptr && !context.exact && args.x.shape[0] > kSkinnyRows;
  for (const quant::PackedWeight::Part& part : args.weight.packed->parts) {
    if (part.plain.data != nullptr) {
      HEDDLE_RETURN_IF_ERROR(linear_cuda(context, columns_of(args, part.first_row, part.plain)));
      continue;
    }
    // skinny_products() may support this part alone, even if it does not support the other parts.
    quant::PackedWeight alone{.parts = {part}, .on_gpu = args.weight.packed->on_gpu};
    alone.parts[0].first_row = 0;
    TensorView weight(nullptr, DType::kPacked, Shape{part.num_rows, args.x.shape[1]});
    weight.packed = &alone;
    const LinearArgs columns = columns_of(args, part.first_row, weight);
    const int64_t rows = rows_of_a_turn(context, columns);
    HEDDLE_RETURN_IF_ERROR(rows > 0 ? multiply_in_turns(context, columns, rows)
                           : dense  ? multiply_dense(context, columns, part.packed)
                                    : multiply_rows(context, columns, part.packed));
  }
  return {};
}

}  // namespace heddle::ops
