// SPDX-License-Identifier: Apache-2.0
// held = number of leading drafts of a chain that equal the token drawn before them and do not end
// the text; missing = num_drafts - held. Requests a copy of the state after the last held draft to
// the working slot. A thread processes a sequence; threads do not cooperate. Bytes: 8 a draft, and
// the tokens that end texts; latency-bound, about 2 us. The only kernel for chains of drafts on a
// GPU. The host walks trees (speculative/draft_tree.h).
#include "ops/cuda/launch.cuh"
#include "ops/drafting/walk_drafts.h"

namespace heddle::ops {

namespace {

constexpr int kThreads = 64;

__device__ bool is_ending(const WalkDraftsArgs& p, const WalkedDrafts& walked, int32_t token) {
  bool found = token < 0;
  for (int32_t e = 0; e < walked.num_endings; ++e) {
    found = found || p.endings[walked.endings_begin + e] == token;
  }
  return found;
}

__global__ void __launch_bounds__(kThreads)
    walk_drafts_kernel(const __grid_constant__ WalkDraftsArgs p) {
  wait_for_inputs();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.num_sequences) return;
  const WalkedDrafts walked = p.sequences[i];
  const int32_t* drafts = p.ids + walked.first_row + 1;
  int32_t* drawn = p.drawn + walked.logit_row;
  int32_t held = 0;
  for (; held < walked.num_drafts; ++held) {
    const int32_t draft = drafts[held];
    if ((walked.simulated >> held & 1) != 0) {
      const bool holds = (walked.holding >> held & 1) != 0;
      if (holds) {
        drawn[held] = draft;
      } else if (drawn[held] == draft) {
        drawn[held] = draft == 0 ? 1 : draft - 1;
      }
    }
    if (drawn[held] != draft || is_ending(p, walked, draft)) break;
  }
  p.missing[i] = walked.num_drafts - held;
  p.told[i] = walked.num_drafts - held;
  if (walked.draft_slot == 0) return;
  const bool all = held == walked.num_drafts;
  p.copies[walked.copy] = {.from = walked.draft_slot + (all ? 0 : 1 + held),
                           .to = walked.state_slot};
}

}  // namespace

Status walk_drafts_cuda(CudaContext& context, const WalkDraftsArgs& args) {
  return launch(context, "walk_drafts", walk_drafts_kernel,
                grid_of(ceil_div(args.num_sequences, kThreads)), kThreads, args);
}

}  // namespace heddle::ops
