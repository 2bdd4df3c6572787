// SPDX-License-Identifier: Apache-2.0
// Vectorised exp, sigmoid, silu, gelu, tanh and softplus for float32, in Highway's per-target
// style. Inside a file that is compiled through hwy/foreach_target.h:
//
//   #include "ops/simd/targets.h"  // before any <hwy/...>
//   ...
//   #include "ops/simd/math-inl.h"  // after foreach_target.h
//   HWY_BEFORE_NAMESPACE();
//   namespace heddle::ops::HWY_NAMESPACE {
//   namespace hn = hwy::HWY_NAMESPACE;
//   namespace math = heddle::ops::simd::HWY_NAMESPACE;
//   ... math::Silu(d, x) ...
//
// Each lane is computed by the same operations, so that an element's result does not depend on its
// lane or on the other lanes. NaN gives NaN; the only other inputs that give NaN are -inf in Silu
// and Gelu. math_test.cpp checks the accuracy that is stated at each function.
#if defined(HEDDLE_OPS_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_SIMD_MATH_INL_H_
#undef HEDDLE_OPS_SIMD_MATH_INL_H_
#else
#define HEDDLE_OPS_SIMD_MATH_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// ln 2 in two parts: the first has 15 significant bits, so that n * kLn2High is exact for |n| <
// 512.
inline constexpr float kLn2High = 0.693145751953125f;
inline constexpr float kLn2Low = 1.42860682030941723212e-6f;

// 2^n for integers n in [-126, 127].
template <class D, class VI>
HWY_INLINE hn::Vec<D> PowerOfTwo(D d, VI n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// e^x, at most 1.5 ulp from the true value; 0 below -104 and denormal results rounded once; +inf
// above 88.73. Exp(-inf) = 0, Exp(0) = 1 exactly.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  // At these bounds the result is already 0 or +inf. They keep n so small that two factors can
  // scale by 2^n.
  const V clamped = hn::Min(hn::Max(x, hn::Set(d, -104.0f)), hn::Set(d, 89.0f));
  // x = n ln 2 + r with |r| <= ln 2 / 2.
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504088896341f)));
  const V r =
      hn::NegMulAdd(n, hn::Set(d, kLn2Low), hn::NegMulAdd(n, hn::Set(d, kLn2High), clamped));
  // Taylor series of e^r; for these r the first omitted term, r^8 / 8!, is below 6e-9.
  V p = hn::Set(d, 1.0f / 5040.0f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 720.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  // Multiplies by 2^n in two steps: 2^n itself leaves the normal range for n = 128 and n < -126.
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const V scaled = hn::Mul(hn::Mul(p, PowerOfTwo(d, half)), PowerOfTwo(d, hn::Sub(whole, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, scaled);  // Min and Max may have lost a NaN
}

// 1 / (1 + e^-x), at most 3 ulp; 0 below -88.73.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  namespace self = heddle::ops::simd::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, self::Exp(d, hn::Neg(x))));
}

// x / (1 + e^-x), at most 3 ulp; -0 below -88.73.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Silu(D d, V x) {
  namespace self = heddle::ops::simd::HWY_NAMESPACE;
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), self::Exp(d, hn::Neg(x))));
}

// gelu(x) = x / 2 (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3). At most 3
// ulp, except where x is negative and u large: there the error of the exponent is multiplied by
// 2|u|.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Gelu(D d, V x) {
  namespace self = heddle::ops::simd::HWY_NAMESPACE;
  constexpr float kTwoRoots = 1.59576912160573071f;  // 2 sqrt(2/pi)
  const V cubic = hn::MulAdd(hn::Mul(hn::Set(d, 0.044715f), hn::Mul(x, x)), x, x);
  const V e = self::Exp(d, hn::Mul(hn::Set(d, -kTwoRoots), cubic));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), e));
}

// tanh(x), at most 4 ulp: for |x| below 0.35 by a series whose first omitted term is below 2e-8 of
// the sum, otherwise by the exponential.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Tanh(D d, V x) {
  namespace self = heddle::ops::simd::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f);
  const V x2 = hn::Mul(x, x);
  V p = hn::Set(d, -1382.0f / 155925.0f);
  p = hn::MulAdd(p, x2, hn::Set(d, 62.0f / 2835.0f));
  p = hn::MulAdd(p, x2, hn::Set(d, -17.0f / 315.0f));
  p = hn::MulAdd(p, x2, hn::Set(d, 2.0f / 15.0f));
  p = hn::MulAdd(p, x2, hn::Set(d, -1.0f / 3.0f));
  const V small = hn::MulAdd(hn::Mul(p, x2), x, x);
  const V magnitude = hn::Abs(x);
  const V e = self::Exp(d, hn::Add(magnitude, magnitude));
  const V large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.35f)), small, hn::CopySign(large, x));
}

// ln(1 + e) for e >= 0 (not infinite), at most 3 ulp, also where e is tiny.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log1pOfNonNegative(D d, V e) {
  const hn::RebindToSigned<D> di;
  const V one = hn::Set(d, 1.0f);
  const V u = hn::Add(one, e);
  const V lost = hn::Sub(e, hn::Sub(u, one));  // the part of e that the addition rounded away
  // u = 2^k m with m in [sqrt(1/2), sqrt(2)). Adding the difference between the bits of 1 and of
  // sqrt(1/2) carries into the exponent for m >= sqrt(2), so that the exponent field becomes k.
  const auto bits = hn::BitCast(di, u);
  const auto biased = hn::Add(bits, hn::Set(di, 0x3f800000 - 0x3f3504f3));
  const auto exponent = hn::Sub(hn::ShiftRight<23>(biased), hn::Set(di, 127));
  const V m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent)));
  const V k = hn::ConvertTo(d, exponent);
  // ln m = 2 (s + s^3/3 + s^5/5 + ...), s = (m - 1) / (m + 1), |s| <= 0.1716: s^11 / 11 is below
  // 4e-10.
  const V s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const V s2 = hn::Mul(s, s);
  V series = hn::Set(d, 2.0f / 9.0f);
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 7.0f));
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 5.0f));
  series = hn::MulAdd(series, s2, hn::Set(d, 2.0f / 3.0f));
  const V small = hn::MulAdd(k, hn::Set(d, kLn2Low), hn::Div(lost, u));
  const V tail = hn::MulAdd(hn::Mul(series, s2), s, small);
  return hn::MulAdd(k, hn::Set(d, kLn2High), hn::Add(hn::Add(s, s), tail));
}

// softplus(x) = ln(1 + e^x); above 20 x itself, to which it is equal in float32. At most 4 ulp.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Softplus(D d, V x) {
  namespace self = heddle::ops::simd::HWY_NAMESPACE;
  const V limit = hn::Set(d, 20.0f);
  const V e =
      // The argument is bounded so that the result is finite also in lanes where x is used instead.
      self::Exp(d, hn::Min(x, limit));
  const V soft = self::Log1pOfNonNegative(d, e);
  return hn::IfThenElse(hn::Le(x, limit), soft, x);  // NaN is not <= 20: it stays NaN
}

}  // namespace heddle::ops::simd::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_OPS_SIMD_MATH_INL_H_
