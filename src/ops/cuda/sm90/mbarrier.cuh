// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that count arrivals of threads and bytes of bulk copies (PTX mbarrier).
// One thread calls init(); each thread that produces or consumes a stage calls the others for
// itself. A barrier takes 8 bytes; wait() spins on the parity of a phase. Used by the pipelines of
// kernels for Hopper: each stage has one "full" and one "empty" barrier.
#pragma once

#include <cstdint>

namespace heddle::ops::sm90 {

// Converts a pointer to the shared memory address that PTX instructions use.
__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

struct Barrier {
  uint64_t state;
};

__device__ inline void init(Barrier& barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(arrivals));
}

// Makes initialised barriers visible to the copy engine. Call it after init() and before
// __syncthreads(); only then may other threads use the barriers.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void arrive(Barrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier))
               : "memory");
}

// Arrives at the barrier and announces how many bytes copies will write.
__device__ inline void arrive_expecting(Barrier& barrier, uint32_t num_bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
      "r"(num_bytes)
      : "memory");
}

// Waits until the phase of this parity has ended: 0 for the first phase, 1 for the second, and so
// on alternately. On a fresh barrier the phase of parity 1 counts as ended.
__device__ inline void wait(Barrier& barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again_%=;\n"
      "}\n" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
}

}  // namespace heddle::ops::sm90
