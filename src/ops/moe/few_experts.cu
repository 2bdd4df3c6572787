// SPDX-License-Identifier: Apache-2.0
// Decides which calls few_experts.h computes; and its kernels (few_experts_kernel.cuh) for weights
// in bf16. Used for one token, or while T * A <= E / 3, with quantised weights 2 * E, if there is a
// kernel for the width of w2's rows.
#include <algorithm>
#include <bit>

#include "ops/gemm/skinny_product.h"
#include "ops/moe/few_experts.h"
#include "ops/moe/few_experts_kernel.cuh"

namespace heddle::ops {

namespace {

using few_experts::PlainExperts, few_experts::kWarps, few_experts::kScoresPerLane;

// Bytes of shared memory that every kernel may use, without those for the experts of its token.
constexpr int64_t kMostShared = (48 << 10) - int64_t{sizeof(ChosenExperts)};
constexpr int64_t kShare = 3;  // the (token, slot) pairs must be at most E / kShare
// With quantised weights there may be kPackedShare pairs for each expert. The weights of an expert
// that several tokens chose are then read again from the second-level cache, but with fewer
// instructions than a row needs in tiles of several rows.
constexpr int64_t kPackedShare = 2;

bool has_whole_octets(const TensorView& experts) {
  return experts.dtype == DType::kBf16 && experts.shape[2] % kOctet == 0 && experts.dense() &&
         reinterpret_cast<uintptr_t>(experts.data) % 16 == 0;
}

// The rows of a weight that is quantised in one part; null for other weights.
const quant::PackedRows* packed_rows(const TensorView& weight) {
  if (weight.packed == nullptr || weight.packed->parts.size() != 1) return nullptr;
  const quant::PackedWeight::Part& part = weight.packed->parts[0];
  return part.plain.data == nullptr ? &part.packed : nullptr;
}

// Whether the kernels support the format: groups of 8 times a power of two columns, or one group
// for a row.
bool has_shared_octets(const quant::PackedRows& rows) {
  const quant::RowFormat& format = rows.format;
  const bool one = format.num_groups() == 1;
  const auto group_size = static_cast<uint64_t>(format.group_size);
  const bool exponents = format.scale == quant::ScaleType::kE8M0;
  return format.K % kOctet == 0 && format.group_index == nullptr &&
         (one || (std::has_single_bit(group_size) && group_size % kOctet == 0)) &&
         std::has_single_bit(static_cast<uint64_t>(rows.rows_per_scale)) &&
         exponents == (format.code == quant::Code::kE2M1);
}

// Whether a kernel that was compiled for one of the weights can read the other, too.
bool have_one_form(const quant::PackedRows& a, const quant::PackedRows& b) {
  return a.format.code == b.format.code && a.format.scale == b.format.scale;
}

bool experts_fit(const TensorView& w13, const TensorView& w2) {
  if (w13.packed == nullptr) return has_whole_octets(w13) && has_whole_octets(w2);
  const quant::PackedRows* const up = packed_rows(w13);
  const quant::PackedRows* const down = packed_rows(w2);
  return up != nullptr && down != nullptr && has_shared_octets(*up) && has_shared_octets(*down) &&
         up->format.code == down->format.code;
}

// Whether the weight has integer codes, for which x needs 3 bytes per number: two bytes, and a
// share of its octet's factor and sum.
bool has_integers(const TensorView& experts) {
  const quant::PackedRows* const rows = packed_rows(experts);
  return rows != nullptr &&
         (rows->format.code == quant::Code::kU4 || rows->format.code == quant::Code::kU8);
}

bool shared_fits(const SharedExpert& shared, const TensorView& w2) {
  if (shared.down.shape[1] != w2.shape[2]) return false;
  if (w2.packed == nullptr) {
    return shared.down.dtype == DType::kBf16 && rows_are_aligned(shared.down);
  }
  const quant::PackedRows* const own = packed_rows(shared.down);
  const quant::PackedRows& down = *packed_rows(w2);
  return own != nullptr && has_shared_octets(*own) && have_one_form(*own, down) &&
         own->format.group_size == down.format.group_size &&
         own->format.constant_zero == down.format.constant_zero;
}

}  // namespace

bool few_experts_fit(const CudaContext& context, const RoutedMoeArgs& args, int64_t T) {
  const int64_t H = args.x.shape[1], I = args.w2.shape[2], E = args.w2.shape[0];
  const int64_t A = args.experts_per_token;
  const bool few = args.w13.packed == nullptr ? T * A * kShare <= E
                                              : T <= kSkinnyRows && T * A <= kPackedShare * E;
  return (T == 1 || few) && args.x.dtype == DType::kBf16 && rows_are_aligned(args.x) &&
         experts_fit(args.w13, args.w2) && !(context.exact && has_integers(args.w13)) &&
         (has_integers(args.w13) ? 3 : 2) * std::max(H, (A + 1) * I) <= kMostShared &&
         few_experts::down_kernel_of<PlainExperts>(I) != nullptr &&
         (!args.shared || shared_fits(*args.shared, args.w2));
}

bool few_experts_add(const CudaContext& context, const RoutedMoeArgs& args, int64_t T) {
  const int64_t warps = kWarps * few_experts::blocks_at_once(context, T);
  return few_experts_fit(context, args, T) && args.x.shape[1] <= warps * kWarp;
}

bool few_experts_route(const RoutedMoeArgs& args) {
  return args.scoring == RouterScoring{} && args.correction.data == nullptr &&
         args.expert_scales.data == nullptr &&
         args.router_logits.shape[1] <= kScoresPerLane * kWarp;
}

Status run_few_experts(CudaContext& context, const FewExpertsArgs& args) {
  if (args.moe->w13.packed == nullptr) return few_experts::run<PlainExperts>(context, args);
  switch (packed_rows(args.moe->w13)->format.code) {
    case quant::Code::kU4:
      return few_experts::run_u4(context, args);
    case quant::Code::kU8:
      return few_experts::run_u8(context, args);
    case quant::Code::kE2M1:
      return few_experts::run_e2m1(context, args);
    case quant::Code::kE4M3:
      break;
  }
  return few_experts::run_e4m3(context, args);
}

}  // namespace heddle::ops
