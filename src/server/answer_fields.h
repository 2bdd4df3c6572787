// SPDX-License-Identifier: Apache-2.0
// Small values all APIs spell alike: how an answer ended, what matched, a token's log probability.
#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include <heddle/request.h>

namespace heddle::server {

[[nodiscard]] std::string_view finish_name(FinishReason reason);

// The stop token's id, the stop text, or null.
[[nodiscard]] nlohmann::ordered_json matched_stop(const Finish& finish);

// {"device": reused, "matched_tokens": .., "exact_repeat": .., "deferred_ms": ..}: how much of the
// prompt was there already, and how far the cache knew it.
[[nodiscard]] nlohmann::ordered_json cache_details(const CacheReport& report);

// A masked token's -inf is not JSON: it prints as -9999.
[[nodiscard]] double printable_logprob(float logprob);

}  // namespace heddle::server
