// SPDX-License-Identifier: Apache-2.0
#include "runner/program/kv_storage.h"

#include <fmt/format.h>

#include "core/log.h"

namespace heddle::runner {

using checkpoint::KvCacheScheme;

std::optional<DType> choose_kv_dtype(const KvRequest& request,
                                     const checkpoint::ModelConfig& config) {
  if (request.asked) return request.asked;
  const KvCacheScheme scheme =
      config.quantization ? config.quantization->kv_cache : KvCacheScheme::kNone;
  if (scheme == KvCacheScheme::kNone || request.float32_run) return std::nullopt;
  if (scheme == KvCacheScheme::kFp8) return DType::kF8E4M3;
  log_warning(
      "the checkpoint asks for a KV cache that is not served; it is stored as the weights are");
  return std::nullopt;
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
