// SPDX-License-Identifier: Apache-2.0
// Products of few rows: chooses the kernel of skinny_kernel.cuh and launches the one for bf16.
#include <bit>
#include <optional>

#include "ops/gemm/skinny_kernel.cuh"

namespace heddle::ops {

namespace {

using skinny::Prologue;

bool is_bf16(const TensorView& x) { return x.dtype == DType::kBf16 && rows_are_aligned(x); }

// Whether T rows of x fit a skinny_kernel block's shared memory.
bool rows_fit(const CudaContext& context, int64_t T, int64_t K, std::optional<quant::Code> code) {
  const bool integers = code && *code != quant::Code::kE4M3;
  return skinny::most_bytes_of_rows(T, K, integers) <= skinny::most_bytes_of_x(context);
}

// Whether the weight is large enough for the Hopper kernel for 8-bit codes, which computes any
// number of rows (a few at a time if they are wide). Measured: in decode steps with weights of 24
// MiB it was 5 % slower than the other kernel, with weights of 100 MiB and more 10 to 20 % faster.
// The limit between them is a guess.
bool has_many_bytes(const CudaContext& context, const TensorView& weight) {
  constexpr int64_t kMany = int64_t{48} << 20;
  constexpr int64_t kGroup = 128;  // columns that share a factor of x in that kernel
  const int64_t N = weight.shape[0], K = weight.shape[1];
  if (weight.packed == nullptr || N * K < kMany) return false;
  for (const quant::PackedWeight::Part& part : weight.packed->parts) {
    const quant::RowFormat& format = part.packed.format;
    if (part.num_rows == 0) continue;
    if (format.K == 0 || format.four_bits()) return false;
    if (format.num_groups() > 1 && format.group_size < kGroup) return false;
  }
  return skinny::bytes_fit(context, 1, K);
}

// The properties that the weights of all products of a launch share.
struct Weights {
  size_t num_parts = 0;
  bool plain = false;
  std::optional<quant::Code> code;  // code of quantised weights; nullopt: bf16
  std::optional<bool> many_bytes;

  // Adds a weight; false if one kernel cannot compute it together with the others. Plain and
  // quantised weights are summed in different orders and cannot share a launch.
  bool add(const CudaContext& context, const TensorView& weight) {
    const bool many = has_many_bytes(context, weight);
    if (many_bytes.value_or(many) != many) return false;
    many_bytes = many;
    if (weight.packed == nullptr) {
      ++num_parts;
      plain = true;
      return !code && is_bf16(weight);
    }
    for (const quant::PackedWeight::Part& part : weight.packed->parts) {
      if (part.num_rows == 0) continue;
      ++num_parts;
      if (plain || !add(part.packed.format)) return false;
    }
    return weight.packed->on_gpu;
  }

 private:
  bool add(const quant::RowFormat& format) {
    if (!skinny::reads(format) || (code && *code != format.code)) return false;
    code = format.code;
    return true;
  }
};

// Adds the parts of a product's weight to those of `params`.
class PartList {
 public:
  explicit PartList(skinny::Params& params) : params_(params) {}

  void add(const LinearArgs& product, const MutableTensorView& residual) {
    if (product.weight.packed == nullptr) {
      add_part(product, residual, 0, product.weight, {});
      return;
    }
    for (const quant::PackedWeight::Part& part : product.weight.packed->parts) {
      if (part.num_rows > 0) add_part(product, residual, part.first_row, part.plain, part.packed);
    }
  }

  void close() {
    for (; num_ < skinny::kParts; ++num_) {
      params_.parts[num_] = {.N = 1, .first_tile = params_.num_tiles};
    }
  }

 private:
  void add_part(const LinearArgs& product, const MutableTensorView& residual, int64_t first,
                const TensorView& plain, const quant::PackedRows& packed) {
    skinny::Part& part = params_.parts[num_++];
    part = {.y = TargetRows::of(product.y), .first_tile = params_.num_tiles};
    part.y.data = static_cast<std::byte*>(part.y.data) + bytes_of(product.y.dtype, first);
    if (product.bias.data != nullptr) part.bias = product.bias.as<float>() + first;
    if (residual.data != nullptr) part.residual = residual.as<CudaBf16>() + first;
    if (packed.format.K == 0) {
      part.weight = plain.as<CudaBf16>();
      part.weight_stride = plain.row_stride;
      part.N = static_cast<int>(plain.shape[0]);
    } else {
      part.packed = skinny::source_of(packed);
      part.N = static_cast<int>(packed.num_rows);
    }
    params_.num_tiles += static_cast<int>(ceil_div(part.N, skinny::kTile));
  }

  skinny::Params& params_;
  size_t num_ = 0;
};

Status launch_of(CudaContext& context, const Weights& weights, Prologue prologue,
                 const skinny::Params& params) {
  const std::optional<quant::Code> code = weights.code;
  if (*weights.many_bytes) return skinny::launch_bytes(context, *code, prologue, params);
  if (!code) return skinny::launch_rows<skinny::PlainCodes>(context, prologue, params);
  if (*code == quant::Code::kU4) return skinny::launch_u4(context, prologue, params);
  return *code == quant::Code::kU8 ? skinny::launch_u8(context, prologue, params)
                                   : skinny::launch_e4m3(context, prologue, params);
}

}  // namespace

bool skinny_products_fit(const CudaContext& context, const SkinnyProducts& args) {
  if (context.exact || args.products.empty() || args.products.size() > kSkinnyProducts) {
    return false;
  }
  const TensorView& x = args.products[0].x;
  const int64_t T = x.shape[0], K = x.shape[1];
  if (T < 1 || T > (args.gate ? 1 : kSkinnyRows) || K == 0 || K % (4 * kOctet) != 0) return false;
  bool has_bias = false;
  Weights weights;
  for (const LinearArgs& product : args.products) {
    if (product.x.data != x.data || !weights.add(context, product.weight)) return false;
    has_bias |= product.bias.data != nullptr;
  }
  if (weights.num_parts == 0 || weights.num_parts > skinny::kParts) return false;
  if (*weights.many_bytes ? !skinny::bytes_fit(context, T, K)
                          : !rows_fit(context, T, K, weights.code)) {
    return false;
  }
  if (args.residual.data != nullptr) {
    // Blocks write the residual while others still read x, so the two must not overlap.
    const auto is_residual = [&](const TensorView& read) {
      return read.data == args.residual.data;
    };
    if (args.residual.dtype != DType::kBf16 || is_residual(x)) return false;
    if (args.gate && (is_residual(args.gate->a) || is_residual(args.gate->b))) return false;
  }
  if (args.norm) {
    return !has_bias && args.residual.data == nullptr && args.norm->weight.shape[0] == K &&
           is_bf16(args.norm->x) && is_bf16(args.norm->y) &&
           reinterpret_cast<uintptr_t>(args.norm->weight.data) % 16 == 0;
  }
  if (args.gate) {
    return is_bf16(args.gate->a) && is_bf16(args.gate->b) && args.gate->b.shape[1] == K;
  }
  return is_bf16(x);
}

Status skinny_products(CudaContext& context, const SkinnyProducts& args) {
  TensorView x = args.products[0].x;
  if (args.norm) x = args.norm->x;
  if (args.gate) x = args.gate->a;
  skinny::Params params{.x = x.as<CudaBf16>(),
                        .residual_stride = args.residual.row_stride,
                        .x_stride = x.row_stride,
                        .T = static_cast<int>(x.shape[0]),
                        .K = static_cast<int>(x.shape[1])};
  Weights weights;
  PartList parts(params);
  for (size_t i = 0; i < args.products.size(); ++i) {
    weights.add(context, args.products[i].weight);
    parts.add(args.products[i], i == 0 ? args.residual : MutableTensorView());
  }
  parts.close();
  if (args.norm) {
    params.norm = {.weight = args.norm->weight.as<float>(),
                   .y = args.norm->y.as<CudaBf16>(),
                   .y_stride = args.norm->y.row_stride,
                   .epsilon = args.norm->epsilon};
    return launch_of(context, weights, Prologue::kNorm, params);
  }
  if (args.gate) {
    params.gate = {.b = args.gate->b.as<CudaBf16>(), .kind = args.gate->kind};
    return launch_of(context, weights, Prologue::kGate, params);
  }
  return launch_of(context, weights, Prologue::kNone, params);
}

}  // namespace heddle::ops
