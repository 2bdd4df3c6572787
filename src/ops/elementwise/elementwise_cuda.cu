// SPDX-License-Identifier: Apache-2.0
// y[t, n] = f(a[t, n], b[t, n]), b one number a row, or a factor (element.cuh).
// A thread owns eight neighbouring elements of a row, and loops with the grid's size as stride.
// Bytes: up to 3 * T * N elements: bandwidth-bound. The only kernel for these ops on CUDA, but for
// few rows skinny_product.cu and few_experts.cu compute gates as part of their products instead.
#include "ops/cuda/launch.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/elementwise/element.cuh"

namespace heddle::ops {

namespace {

struct Params {
  SourceRows a;
  SourceRows b;  // without memory: the op has only the input a
  TargetRows y;
  int64_t N;
  int64_t octets_per_row;
  int64_t num_octets;
  ElementwiseKind kind;
  int64_t run;   // neighbouring columns of a that share a column of b; 1: b is as wide as a
  float factor;  // the factor of kScale, which replaces b
};

constexpr int kThreads = 256;

// A thread computes eight neighbouring elements of a row. Moves up to 3 * T * N elements and does a
// few operations on each: the floor is their bytes over the bandwidth.
__global__ void __launch_bounds__(kThreads) elementwise_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.num_octets;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t t = i / p.octets_per_row;
    const int64_t n = i % p.octets_per_row * kOctet;
    const int64_t count = p.N - n;
    float a[kOctet];
    float b[kOctet] = {};
    p.a.load(t, n, count, a);
    if (p.run > 1 && p.run == p.N) {  // b has one number for the whole row
      p.b.load(t, 0, 1, b);
#pragma unroll
      for (int j = 1; j < kOctet; ++j) b[j] = b[0];
    } else if (p.run > 1) {
      for (int j = 0; j < kOctet && j < count; ++j) {
        float one[kOctet];
        p.b.load(t, (n + j) / p.run, 1, one);
        b[j] = one[0];
      }
    } else if (p.b.data != nullptr) {
      p.b.load(t, n, count, b);
    } else {
#pragma unroll
      for (int j = 0; j < kOctet; ++j) b[j] = p.factor;
    }
#pragma unroll
    for (int j = 0; j < kOctet; ++j) a[j] = element_of(p.kind, a[j], b[j], p.factor);
    p.y.store(t, n, count, a);
  }
}

}  // namespace

Status elementwise_cuda(CudaContext& context, const ElementwiseArgs& args) {
  const bool unary = is_unary(args.kind);
  const int64_t N = args.a.shape[1];
  const int64_t octets = ceil_div(N, kOctet);
  const Params params{.a = SourceRows::of(args.a),
                      .b = unary ? SourceRows() : SourceRows::of(args.b),
                      .y = TargetRows::of(args.y),
                      .N = N,
                      .octets_per_row = octets,
                      .num_octets = args.a.shape[0] * octets,
                      .kind = args.kind,
                      .run = unary ? 1 : N / args.b.shape[1],
                      .factor = args.factor};
  return launch(context, "elementwise", elementwise_kernel,
                grid_of(ceil_div(params.num_octets, kThreads)), kThreads, params);
}

}  // namespace heddle::ops
