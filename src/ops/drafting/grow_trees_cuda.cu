// SPDX-License-Identifier: Apache-2.0
// score(candidate) = score(parent) * p(token); the topk best of a level are the next level's rows,
// and the best of all levels become the drafts (grow_tree_steps.h, shared with the CPU).
// A block computes a tree, a thread every 256th candidate or branch; the steps are separated by
// barriers. Comparisons: the square of the candidates of a level (at most 256), or of a tree
// (1,040). Latency-bound. The only kernels for this on CUDA.
#include "ops/cuda/launch.cuh"
#include "ops/drafting/grow_tree_steps.h"
#include "ops/drafting/grow_trees.h"

namespace heddle::ops {

namespace {

constexpr int kThreads = 256;
constexpr int kMostCandidates = kMostBranches + kMostGrown * kMostBranches;

// The threads of a block as a team.
struct ThreadsTeam {
  template <typename Body>
  __device__ void each(int n, const Body& body) {
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) body(i);
    __syncthreads();
  }
};

__global__ void __launch_bounds__(kThreads)
    grow_trees_kernel(const __grid_constant__ GrowTreesArgs p) {
  wait_for_inputs();
  __shared__ sampling_steps::GrowScratch scratch;
  ThreadsTeam team;
  sampling_steps::grow_tree(team, scratch, p, p.trees[blockIdx.x]);
}

__global__ void __launch_bounds__(kThreads)
    select_drafts_kernel(const __grid_constant__ SelectDraftsArgs p) {
  wait_for_inputs();
  __shared__ int32_t kept[kMostCandidates];
  ThreadsTeam team;
  sampling_steps::select_of_tree(team, kept, p, p.trees[blockIdx.x], p.selected[blockIdx.x]);
}

}  // namespace

Status grow_trees_cuda(CudaContext& context, const GrowTreesArgs& args) {
  return launch(context, "grow_trees", grow_trees_kernel, grid_of(args.num_trees), kThreads, args);
}

Status select_drafts_cuda(CudaContext& context, const SelectDraftsArgs& args) {
  return launch(context, "select_drafts", select_drafts_kernel, grid_of(args.num_trees), kThreads,
                args);
}

}  // namespace heddle::ops
