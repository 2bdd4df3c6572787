// SPDX-License-Identifier: Apache-2.0
// The fields that say when a request runs and with whom it shares the cache (docs/scheduling.md,
// docs/hybrid-cache.md), alike in every API:
//
//   priority         integer; header x-priority where the body has none
//   ttft_slo_ms      first token wanted within
//   deadline_ms      ends with an error after; the header x-request-timeout-ms is the same, and of
//                    both the shorter one counts
//   routing_key      text that `routing-key` groups by
//   user             text; the tenant, unless --fair-key says otherwise
//   cache_salt, extra_key
//                    texts; only requests with the same pair share cached tokens
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <heddle/request.h>

#include "server/api_adapter.h"
#include "server/field_reader.h"

namespace heddle::server {

// These texts are kept as long as the request, or longer.
inline constexpr size_t kMaxKeyBytes = 1024;

struct SchedulingFields {
  std::optional<int64_t> priority;
  std::string tenant;
  std::string routing_key;
  double ttft_slo_seconds = 0;
  double deadline_seconds = 0;
  std::string cache_namespace;

  void apply(Request& request) const;
};

// Errors stay in `fields`.
SchedulingFields read_scheduling_fields(FieldReader& fields, const CallContext& context);

// One text for a pair: different pairs have different texts, two empty ones the empty text.
[[nodiscard]] std::string cache_namespace(std::string_view cache_salt, std::string_view extra_key);

}  // namespace heddle::server
