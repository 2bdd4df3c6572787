// SPDX-License-Identifier: Apache-2.0
// Loads of f32, bf16 and f16 numbers as float32 vectors, stores as bf16, and small pieces kernels
// share. Used like math-inl.h, inside a file compiled through hwy/foreach_target.h. Loads and
// stores need no alignment.
#if defined(HEDDLE_OPS_SIMD_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_SIMD_LOAD_INL_H_
#undef HEDDLE_OPS_SIMD_LOAD_INL_H_
#else
#define HEDDLE_OPS_SIMD_LOAD_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "core/dtype.h"
#include "ops/simd/unroll.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const float* from) {
#if HWY_TARGET == HWY_SCALAR
  float value;
  std::memcpy(&value, from, sizeof(value));  // a plain load would want it aligned
  return hn::Set(d, value);
#else
  return hn::LoadU(d, from);
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const Bf16* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const F16* from) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
}

// Rounds to nearest even; what is no number stays none.
template <class D>
HWY_INLINE void StoreFloats(hn::Vec<D> x, D /*d*/, Bf16* to) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::BitCast(d32, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000u));
  const auto chosen = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(x)), quiet, rounded);
  hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(chosen)), d16, reinterpret_cast<uint16_t*>(to));
}

// Asks for the cache line at `address`, which may lie outside every object.
HWY_INLINE void PrefetchLine(uintptr_t address) {
  hwy::Prefetch(reinterpret_cast<const char*>(address));
}

}  // namespace heddle::ops::simd::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_OPS_SIMD_LOAD_INL_H_
