// SPDX-License-Identifier: Apache-2.0
#include "server/answer_fields.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace heddle::server {

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

nlohmann::ordered_json matched_stop(const Finish& finish) {
  if (finish.matched_text) return *finish.matched_text;
  if (finish.matched_token) return *finish.matched_token;
  return nullptr;
}

nlohmann::ordered_json cache_details(const CacheReport& report) {
  return {{"device", report.reused_tokens},
          {"matched_tokens", report.matched_tokens},
          {"exact_repeat", report.exact_repeat},
          {"deferred_ms", report.deferred_seconds * 1e3},
          {"lost_tokens", loss_details(report.lost)}};
}

nlohmann::ordered_json loss_details(const CacheLoss& lost) {
  return {{"eviction", lost.eviction},
          {"missing_state", lost.missing_state},
          {"grid", lost.grid},
          {"last_token", lost.last_token}};
}

double printable_logprob(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

}  // namespace heddle::server
