// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <fmt/format.h>

#include <heddle/engine.h>

namespace heddle {
namespace {

std::string size(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.2f} GiB", value / (1 << 30));
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  return fmt::format("{:.1f} KiB", value / (1 << 10));
}

}  // namespace

std::string MemoryPlan::to_string() const {
  std::string text = fmt::format("weights {}", size(weights_bytes));
  if (mapped_weights_bytes > 0) text += fmt::format(" and {} mapped", size(mapped_weights_bytes));
  if (kv_pool_bytes > 0) {
    text += fmt::format(", KV {} for {} tokens in {}, pages of {}", size(kv_pool_bytes), kv_tokens,
                        kv_dtype, page_size);
  }
  if (state_pool_bytes > 0) {
    text += fmt::format(", states {} for {} sequences", size(state_pool_bytes), state_slots);
  }
  if (frozen_pool_bytes > 0) {
    text += fmt::format(", cached states {} for {} in {}", size(frozen_pool_bytes), frozen_slots,
                        frozen_dtype);
  }
  if (shared_pool_bytes > 0) {
    text += fmt::format(", {} within {}", frozen_pool_bytes > 0 ? "all" : "both",
                        size(shared_pool_bytes));
  }
  text += fmt::format(", activations {}; at most {} requests at once", size(activation_bytes),
                      max_running_requests);
  return text;
}

}  // namespace heddle
