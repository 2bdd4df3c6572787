// SPDX-License-Identifier: Apache-2.0
// counts[row, token] += 1 for the entries of a list, up to kMostCounted; a word has two 16-bit
// counts and is changed by compare-and-swap. A thread processes an entry of the list; threads do
// not cooperate. Bytes: a few for each token; the time is that of a launch. The only kernel for
// this on CUDA.
#include "ops/cuda/launch.cuh"
#include "ops/sampling/count_tokens.h"

namespace heddle::ops {

namespace {

constexpr int kThreads = 128;

// A thread counts one token; other threads may count the same token or its neighbour in the word.
__global__ void __launch_bounds__(kThreads)
    count_tokens_kernel(const __grid_constant__ CountTokensArgs p) {
  wait_for_inputs();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.num_tokens) return;
  const CountedToken counted = p.tokens[i];
  const int32_t token =
      counted.id_row == CountedToken::kGiven ? counted.token : p.ids[counted.id_row];
  const int64_t place = counted.counts_row * p.vocab_size + token;
  auto* word = reinterpret_cast<uint32_t*>(p.counts) + place / 2;
  const int shift = static_cast<int>(place % 2) * 16;
  uint32_t seen = *word;
  for (;;) {
    if ((seen >> shift & kMostCounted) == kMostCounted) return;
    const uint32_t before = atomicCAS(word, seen, seen + (1u << shift));
    if (before == seen) return;
    seen = before;
  }
}

}  // namespace

Status count_tokens_cuda(CudaContext& context, const CountTokensArgs& args) {
  return launch(context, "count_tokens", count_tokens_kernel,
                grid_of(ceil_div(args.num_tokens, kThreads)), kThreads, args);
}

}  // namespace heddle::ops
