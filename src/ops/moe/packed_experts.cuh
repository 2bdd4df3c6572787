// SPDX-License-Identifier: Apache-2.0
// The products of expert_rows.cuh for quantised experts; all experts of a weight have the same
// format.
#pragma once

#include "ops/moe/expert_rows.cuh"
#include "quant/packed_rows.h"

namespace heddle::ops {

// Enqueues the first or the second product. `rows` are the weight rows of all experts. Error:
// kDeviceLost.
Status packed_expert_up(CudaContext& context, const expert_rows::ProductParams& product,
                        const TensorView& x, const quant::PackedRows& rows, int64_t num_tiles);
Status packed_expert_down(CudaContext& context, const expert_rows::ProductParams& product,
                          const TensorView& x, const quant::PackedRows& rows, int64_t num_tiles);

}  // namespace heddle::ops
