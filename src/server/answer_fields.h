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

// {"device": reused, "matched_tokens": .., "exact_repeat": .., "deferred_ms": .., "lost_tokens":
// ..}: how much of the prompt was there already, how far the cache knew it, and why the rest of
// that was computed again.
[[nodiscard]] nlohmann::ordered_json cache_details(const CacheReport& report);

// {"eviction": .., "missing_state": .., "grid": .., "last_token": ..}
[[nodiscard]] nlohmann::ordered_json loss_details(const CacheLoss& lost);

// A masked token's -inf is not JSON: it prints as -9999.
[[nodiscard]] double printable_logprob(float logprob);

}  // namespace heddle::server
