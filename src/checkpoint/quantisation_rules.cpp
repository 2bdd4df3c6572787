// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quantisation_rules.h"

#include <algorithm>
#include <array>
#include <string>

namespace heddle::checkpoint {

bool is_quantisable(std::string_view tensor, int rank, bool include_lm_head) {
  // kv_b_proj is read by columns as well as by rows, which packed rows are not made for.
  constexpr std::array<std::string_view, 19> kDelicate = {
      "embed",      ".gate.weight", ".router.",   "shared_expert_gate",
      "in_proj_ba", "in_proj_a",    "in_proj_b.", "conv1d",
      "norm",       "mtp.fc",       "eh_proj",    ".bias",
      "_proj_bias", "kv_b_proj",    ".b_proj.",   ".f_a_proj.",
      ".f_b_proj.", ".g_a_proj.",   ".g_b_proj."};
  // Matrices are weights of modules, or bare blocks of all experts.
  const bool matrix =
      tensor.ends_with(".weight") || tensor.find(".experts.") != std::string_view::npos;
  if (rank < 2 || !matrix) return false;
  if (tensor.starts_with("lm_head.")) return include_lm_head;
  return std::ranges::none_of(kDelicate, [&](std::string_view part) {
    return tensor.find(part) != std::string_view::npos;
  });
}

bool width_fits(int64_t K, const Rounding& rounding) {
  return rounding.scheme != quant::Scheme::kInt4 || K % rounding.group_size == 0;
}

Result<Rounding> parse_rounding(std::string_view name) {
  if (name == "fp8") return Rounding{.scheme = quant::Scheme::kFp8};
  if (name == "int8") return Rounding{.scheme = quant::Scheme::kInt8};
  if (name == "int4") return Rounding{.scheme = quant::Scheme::kInt4};
  if (name == "int4-g64") return Rounding{.scheme = quant::Scheme::kInt4, .group_size = 64};
  if (name == "int4-g32") return Rounding{.scheme = quant::Scheme::kInt4, .group_size = 32};
  return invalid_argument("quantization \"" + std::string(name) +
                          "\" is not known; use fp8, int8, int4, int4-g64 or int4-g32");
}

}  // namespace heddle::checkpoint
