// SPDX-License-Identifier: Apache-2.0
#include "server/scheduling_fields.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace heddle::server {
namespace {

constexpr double kMaxMilliseconds = 1e10;  // four months

// The header as a number; nothing when it is absent or wrong, which `fields` is told.
template <typename Number>
std::optional<Number> header_number(FieldReader& fields, const CallContext& context,
                                    const char* name, std::string_view wanted) {
  const std::string_view text = context.head.header(name);
  if (text.empty()) return std::nullopt;
  Number number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure == std::errc() && end == text.data() + text.size()) return number;
  fields.fail(invalid_value(name, fmt::format("The header `{}` is \"{}\"; it must be {}.", name,
                                              printable(text, 40), wanted)));
  return std::nullopt;
}

std::string read_key(FieldReader& fields, const char* name) {
  std::string key = fields.string(name).value_or("");
  if (key.size() > kMaxKeyBytes) {
    fields.fail(invalid_value(fields.name_of(name),
                              fmt::format("`{}` has {} bytes; at most {} are allowed.",
                                          fields.name_of(name), key.size(), kMaxKeyBytes)));
  }
  return key;
}

double read_seconds(FieldReader& fields, const char* name) {
  const auto milliseconds =
      fields.number(name, {.min = 0, .max = kMaxMilliseconds, .min_excluded = true});
  return milliseconds.value_or(0) / 1e3;
}

double header_deadline(FieldReader& fields, const CallContext& context) {
  constexpr const char* kName = "x-request-timeout-ms";
  constexpr std::string_view kWanted = "a number of milliseconds above 0";
  const auto milliseconds = header_number<double>(fields, context, kName, kWanted);
  if (!milliseconds) return 0;
  if (!(*milliseconds > 0)) {
    fields.fail(invalid_value(kName, fmt::format("The header `{}` is {}; it must be {}.", kName,
                                                 *milliseconds, kWanted)));
    return 0;
  }
  return std::min(*milliseconds, kMaxMilliseconds) / 1e3;
}

}  // namespace

void SchedulingFields::apply(Request& request) const {
  request.priority = priority;
  request.tenant = tenant;
  request.routing_key = routing_key;
  request.ttft_slo_seconds = ttft_slo_seconds;
  request.deadline_seconds = deadline_seconds;
  request.cache_namespace = cache_namespace;
}

SchedulingFields read_scheduling_fields(FieldReader& fields, const CallContext& context) {
  SchedulingFields result;
  result.priority = fields.integer("priority");
  if (!result.priority) {
    result.priority = header_number<int64_t>(fields, context, "x-priority", "an integer");
  }
  const std::string user = read_key(fields, "user");
  result.tenant = tenant_of(context.fair_key, context.head, user).substr(0, kMaxKeyBytes);
  result.routing_key = read_key(fields, "routing_key");
  result.ttft_slo_seconds = read_seconds(fields, "ttft_slo_ms");
  result.deadline_seconds = read_seconds(fields, "deadline_ms");
  const double header = header_deadline(fields, context);
  if (header > 0) {
    result.deadline_seconds =
        result.deadline_seconds > 0 ? std::min(result.deadline_seconds, header) : header;
  }
  result.cache_namespace =
      cache_namespace(read_key(fields, "cache_salt"), read_key(fields, "extra_key"));
  return result;
}

std::string cache_namespace(std::string_view cache_salt, std::string_view extra_key) {
  if (cache_salt.empty() && extra_key.empty()) return {};
  return fmt::format("{}:{}{}", cache_salt.size(), cache_salt, extra_key);
}

}  // namespace heddle::server
