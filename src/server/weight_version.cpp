// SPDX-License-Identifier: Apache-2.0
#include "server/weight_version.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/field_reader.h"
#include "server/json_text.h"

namespace heddle::server {

std::variant<WeightVersionOrder, ApiError> read_weight_version(std::string_view body) {
  nlohmann::ordered_json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  WeightVersionOrder order{.name = fields.string("new_version").value_or(""),
                           .abort_all = fields.boolean("abort_all_requests").value_or(true)};
  if (order.name.empty()) fields.fail(missing_parameter("new_version"));
  if (order.name.size() > kMaxWeightVersionBytes) {
    fields.fail(
        invalid_value("new_version", fmt::format("`new_version` has {} bytes; {} are allowed.",
                                                 order.name.size(), kMaxWeightVersionBytes)));
  }
  if (fields.error()) return *fields.error();
  return order;
}

}  // namespace heddle::server
