// SPDX-License-Identifier: Apache-2.0
#include "runner/kv_format.h"

#include <fmt/format.h>

#include "core/log.h"

namespace heddle::runner {

namespace {

using checkpoint::KvCacheScheme;

// Keys and values are parts of one row, whose latent and rotated channels no single scale fits.
bool keeps_latents(const models::CacheNeeds& needs) {
  return needs.num_kv_layers > 0 && needs.kv_value_dim == 0;
}

}  // namespace

Result<std::optional<DType>> parse_kv_dtype(std::string_view name) {
  if (name == "auto") return std::optional<DType>();
  if (name == "fp8_e4m3" || name == "fp8") return std::optional(DType::kF8E4M3);
  if (name == "fp8_e5m2") {
    return invalid_argument(
        "kv_cache_dtype \"fp8_e5m2\" rounds twice as coarsely as fp8_e4m3, whose scales make up "
        "for its smaller range; use fp8_e4m3");
  }
  const Result<DType> dtype = parse_dtype(name);
  if (dtype.ok()) return std::optional(*dtype);
  return invalid_argument(
      fmt::format("kv_cache_dtype \"{}\" is not known; use auto, float32, bfloat16, float16 or "
                  "fp8_e4m3",
                  name));
}

Result<std::optional<DType>> choose_kv_dtype(const KvRequest& request,
                                             const checkpoint::ModelConfig& config,
                                             const models::CacheNeeds& needs) {
  if (request.asked) {
    if (*request.asked == DType::kF8E4M3 && keeps_latents(needs)) {
      return unimplemented(fmt::format(
          "kv_cache_dtype fp8_e4m3: {} keeps latents, which are served in 16 or 32 bits; use auto",
          config.architecture));
    }
    return request.asked;
  }
  const KvCacheScheme scheme =
      config.quantization ? config.quantization->kv_cache : KvCacheScheme::kNone;
  if (scheme == KvCacheScheme::kNone || request.float32_run) return std::optional<DType>();
  if (scheme == KvCacheScheme::kFp8 && !keeps_latents(needs)) return std::optional(DType::kF8E4M3);
  log_warning(
      "the checkpoint asks for a KV cache that is not served; it is stored as the weights are");
  return std::optional<DType>();
}

Result<std::vector<checkpoint::KvScales>> load_kv_scales(const checkpoint::WeightSource& source,
                                                         const models::CacheNeeds& needs) {
  HEDDLE_ASSIGN_OR_RETURN(checkpoint::StoredKvScales scales,
                          checkpoint::read_kv_scales(source, needs.kv_modules));
  if (!scales.missing.empty()) {
    const size_t total = 2 * scales.layers.size();
    log_warning(fmt::format(
        "{} of {} scales for an FP8 KV cache are missing and taken as 1, first that of {}",
        scales.missing.size(), total, scales.missing.front()));
  }
  return std::move(scales.layers);
}

}  // namespace heddle::runner
