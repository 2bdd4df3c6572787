// SPDX-License-Identifier: Apache-2.0
// Replaces draw_weight_cuda.cu and draw_rows_cuda.cu in builds without CUDA.
#include "checkpoint/copy_job.h"
#include "checkpoint/drawn_codes.h"
#include "checkpoint/drawn_weight.h"

namespace heddle::checkpoint {

Status draw_weight_cuda(device::CudaDevice&, device::CudaStream&, const DrawnWeight&,
                        const CopyJob&, std::byte*) {
  return unimplemented("this program was built without CUDA");
}

Status draw_rows_cuda(device::CudaDevice&, device::CudaStream&, const DrawnRows&,
                      const quant::PackedRows&) {
  return unimplemented("this program was built without CUDA");
}

}  // namespace heddle::checkpoint
