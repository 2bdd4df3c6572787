// SPDX-License-Identifier: Apache-2.0
#include "chat/limits.h"

#include <fmt/format.h>

namespace heddle::chat {

Status Budget::fits(size_t bytes) const {
  const auto limit = static_cast<size_t>(limits_.max_memory_bytes);
  if (bytes <= limit && memory_bytes_ <= limit - bytes) return {};
  return invalid_argument(fmt::format(
      "the template needs more than {} bytes for intermediate values (max_memory_bytes)",
      limits_.max_memory_bytes));
}

Status Budget::out_of_steps() const {
  return invalid_argument(
      fmt::format("the template takes more than {} steps (max_steps)", limits_.max_steps));
}

}  // namespace heddle::chat
