// SPDX-License-Identifier: Apache-2.0
// Loads of f32, bf16, f16 and E4M3 numbers as float32 vectors, stores as bf16 and E4M3, and other
// small functions that kernels share. Included like math-inl.h, inside a file compiled through
// hwy/foreach_target.h. Loads and stores need no alignment.
#if defined(HEDDLE_OPS_SIMD_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_SIMD_LOAD_INL_H_
#undef HEDDLE_OPS_SIMD_LOAD_INL_H_
#else
#define HEDDLE_OPS_SIMD_LOAD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "core/dtype.h"
#include "ops/simd/targets.h"
#include "quant/small_floats.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const float* from) {
#if HWY_TARGET == HWY_SCALAR
  float value;
  ops::simd::copy_unaligned(&value, from, sizeof(value));  // a plain load would require alignment
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

// Converts E4M3 codes to float32, exactly for all codes; NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const quant::E4M3* from) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  // If the bits of a code are placed at the exponent and mantissa of a half-precision number, that
  // number is 2^-8 times the code's value, also for subnormals: half precision has an exponent bias
  // that is larger by 8, and one more exponent bit. F16C then converts it to fp32.
  const hn::Rebind<int8_t, D> d8;
  const hn::Rebind<int16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> df16;
  const auto wide = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(from)));
  const auto half = hn::And(hn::ShiftLeft<7>(wide), hn::Set(d16, static_cast<int16_t>(0xbf80)));
  // Adding one to the largest magnitude, which is NaN's, fills the exponent.
  const auto carry = hn::And(hn::Add(half, hn::Set(d16, 0x80)), hn::Set(d16, 0x4000));
  return hn::Mul(hn::PromoteTo(d, hn::BitCast(df16, hn::Or(half, carry))), hn::Set(d, 256.0f));
#else
  const hn::Rebind<uint8_t, D> d8;
  const hn::RebindToUnsigned<D> d32;
  const auto code = hn::PromoteTo(d32, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(from)));
  const auto magnitude = hn::And(code, hn::Set(d32, 0x7fu));
  const auto sign = hn::BitCast(d, hn::ShiftLeft<24>(hn::And(code, hn::Set(d32, 0x80u))));
  // Without F16C: the same steps as quant::e4m3_to_float().
  const auto scaled = hn::Mul(hn::BitCast(d, hn::ShiftLeft<20>(magnitude)), hn::Set(d, 0x1p120f));
  const auto none = hn::BitCast(d, hn::Set(d32, 0x7fc00000u));
  const auto is_none = hn::RebindMask(d, hn::Eq(magnitude, hn::Set(d32, 0x7fu)));
  return hn::Or(sign, hn::IfThenElse(is_none, none, scaled));
#endif
}

// Converts float32 to bf16, rounded to nearest even; NaN stays NaN.
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

// Converts float32 to E4M3 like quant::float_to_e4m3(): rounds to nearest even and saturates at
// +-448; NaN stays NaN.
template <class D>
HWY_INLINE void StoreFloats(hn::Vec<D> x, D d, quant::E4M3* to) {
  const hn::Rebind<uint8_t, D> d8;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::BitCast(d32, x);
  const auto largest = hn::BitCast(d32, hn::Set(d, quant::kE4M3Max));
  const auto magnitude = hn::Min(hn::And(bits, hn::Set(d32, 0x7fffffffu)), largest);
  const auto odd = hn::And(hn::ShiftRight<20>(magnitude), hn::Set(d32, 1u));
  const auto rounded =
      hn::Sub(hn::ShiftRight<20>(hn::Add(magnitude, hn::Add(odd, hn::Set(d32, 0x7ffffu)))),
              hn::Set(d32, 120u << 3));
  // Adding 2^14 makes 2^-9 the last bit of the sum, so that the addition rounds to a multiple of
  // 2^-9.
  const auto aligned = hn::Set(d, 0x1p14f);
  const auto subnormal = hn::Sub(hn::BitCast(d32, hn::Add(hn::BitCast(d, magnitude), aligned)),
                                 hn::BitCast(d32, aligned));
  const auto small = hn::Lt(magnitude, hn::BitCast(d32, hn::Set(d, 0x1p-6f)));
  const auto code = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(x)), hn::Set(d32, 0x7fu),
                                   hn::IfThenElse(small, subnormal, rounded));
  const auto sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(d32, 0x80u));
  hn::StoreU(hn::TruncateTo(d8, hn::Or(sign, code)), d8, reinterpret_cast<uint8_t*>(to));
}

// Prefetches the cache line at `address`, which may be outside of every object.
HWY_INLINE void PrefetchLine(uintptr_t address) {
  hwy::Prefetch(reinterpret_cast<const char*>(address));
}

}  // namespace heddle::ops::simd::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_OPS_SIMD_LOAD_INL_H_
