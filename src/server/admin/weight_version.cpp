// SPDX-License-Identifier: Apache-2.0
#include "server/admin/weight_version.h"

#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <openssl/sha.h>

#include "server/call/body_fields.h"
#include "server/call/field_reader.h"
#include "server/http/json_text.h"

namespace heddle::server {

namespace {

// Number of names to keep: no event takes as long to arrive as this many updates.
constexpr size_t kMaxNames = 8;

}  // namespace

WeightVersion::Named WeightVersion::get() const {
  const MutexLock lock(mutex_);
  const auto& [num_updates, name] = *names_.rbegin();
  return {.name = name, .num_updates = num_updates};
}

std::string WeightVersion::name_after(int64_t num_updates) const {
  const MutexLock lock(mutex_);
  const auto later = names_.upper_bound(num_updates);
  return later == names_.begin() ? later->second : std::prev(later)->second;
}

std::optional<WeightVersion::Origin> WeightVersion::origin() const {
  const MutexLock lock(mutex_);
  return origin_;
}

void WeightVersion::rename(std::string name) {
  const MutexLock lock(mutex_);
  names_.rbegin()->second = std::move(name);
}

void WeightVersion::update(int64_t num_updates, std::optional<std::string> name, Origin origin) {
  const MutexLock lock(mutex_);
  names_[num_updates] = name ? *std::move(name) : names_.rbegin()->second;
  if (names_.size() > kMaxNames) names_.erase(names_.begin());
  origin_ = std::move(origin);
}

std::string weights_digest(const WeightVersion& weights, const ModelInfo& model,
                           std::string_view model_path, std::string_view server_version) {
  const auto origin = weights.origin();
  const std::string identity = fmt::format(
      "{}\n{}\n{}\n{}\n{}\n{}\n{}", server_version, model.name, model.architecture, model.dtype,
      model.num_parameters, origin ? origin->model_path : model_path, weights.get().num_updates);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(identity.data()), identity.size(), digest.data());
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

std::optional<ApiError> check_weight_version(std::string_view field, std::string_view name) {
  if (name.empty()) return missing_parameter(field);
  if (name.size() <= kMaxWeightVersionBytes) return std::nullopt;
  return invalid_value(field, fmt::format("`{}` has {} bytes; {} are allowed.", field, name.size(),
                                          kMaxWeightVersionBytes));
}

std::variant<WeightVersionOrder, ApiError> read_weight_version(std::string_view body) {
  nlohmann::ordered_json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  WeightVersionOrder order{.name = fields.string(Body::kWeightVersion["new_version"]).value_or(""),
                           .abort_all = fields.flag(Body::kWeightVersion["abort_all_requests"])};
  if (auto error = check_weight_version("new_version", order.name)) fields.fail(*error);
  if (fields.error()) return *fields.error();
  return order;
}

}  // namespace heddle::server
