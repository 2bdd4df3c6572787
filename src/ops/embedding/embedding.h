// SPDX-License-Identifier: Apache-2.0
// y[t, h] = table[ids[t], h]
#pragma once

#include "core/tensor.h"
#include "ops/context.h"

namespace heddle::ops {

struct EmbeddingArgs {
  TensorView ids;       // token ids [T] i32, each in [0, V)
  TensorView table;     // vectors of all tokens [V, H] f32, bf16 or f16; on the CPU also quantised
  MutableTensorView y;  // output [T, H], activations(context)
};

// Exact if y's dtype holds the table's numbers, else rounded to nearest. Reads T*H elements of the
// table and writes as many. Allocates nothing. Error: kInvalidArgument, naming the tensor that
// disagrees. Ids are not checked here: the runner does so once a step
// (runner/program/forward_pass.h).
Status embedding(Context& context, const EmbeddingArgs& args);
Status embedding_cpu(CpuContext& context, const EmbeddingArgs& args);    // args already checked
Status embedding_cuda(CudaContext& context, const EmbeddingArgs& args);  // args already checked

}  // namespace heddle::ops
