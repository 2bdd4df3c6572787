// SPDX-License-Identifier: Apache-2.0
// Which tensors of an unquantised checkpoint are worth quantising: the matrices of attention,
// mixers, MLPs and experts. Embeddings, routers, gates, convolutions and norms stay as they are,
// because they are small or delicate; the output head unless it is asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "quant/round_to_nearest.h"

namespace heddle::checkpoint {

struct Rounding {
  quant::Scheme scheme = quant::Scheme::kInt8;
  int64_t group_size = 128;  // of kInt4
  bool include_lm_head = false;
};

// Whether the tensor is such a matrix, by its name and rank.
[[nodiscard]] bool is_quantisable(std::string_view tensor, int rank, bool include_lm_head);

// Whether a row of K columns can be cut into this scheme's groups.
[[nodiscard]] bool width_fits(int64_t K, const Rounding& rounding);

// "fp8", "int8", "int4" (groups of 128), "int4-g64", "int4-g32". Error: kInvalidArgument, listing
// them.
Result<Rounding> parse_rounding(std::string_view name);

}  // namespace heddle::checkpoint
