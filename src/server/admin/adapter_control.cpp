// SPDX-License-Identifier: Apache-2.0
#include "server/admin/adapter_control.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/call/body_fields.h"
#include "server/call/field_reader.h"
#include "server/call/served_adapters.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxAdapterPathBytes = 4096;  // longest path in Linux

std::optional<ApiError> check_enabled(const CallContext& context) {
  if (context.adapters != nullptr && context.adapters->enabled()) return std::nullopt;
  return ApiError{.code = "unsupported_parameter",
                  .message =
                      "This server has no memory for adapters; start it with --enable-lora or "
                      "--lora-paths.",
                  .param = "lora_name"};
}

std::string read_adapter_name(FieldReader& fields) {
  std::string name = fields.string(Body::kUnloadAdapter["lora_name"]).value_or("");
  if (name.empty()) {
    fields.fail(missing_parameter("lora_name"));
  } else if (const Status status = check_adapter_name(name); !status.ok()) {
    fields.fail(invalid_value("lora_name", status.message() + "."));
  }
  return name;
}

JsonAnswer adapters_answer(const CallContext& context, std::string message) {
  Json loaded = Json::object();
  for (const ServedAdapter& adapter : context.adapters->list()) {
    loaded[adapter.name] = adapter.path;
  }
  JsonAnswer answer;
  answer.body.value(Json{
      {"success", true}, {"message", std::move(message)}, {"loaded_adapters", std::move(loaded)}});
  return answer;
}

}  // namespace

AnswerResult answer_load_adapter(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  const std::string name = read_adapter_name(fields);
  const std::string path = fields.string(Body::kLoadAdapter["lora_path"]).value_or("");
  const bool replace = fields.flag(Body::kLoadAdapter["load_inplace"]);
  (void)fields.boolean(Body::kLoadAdapter["pinned"]);  // every loaded adapter stays in memory
  if (path.empty()) fields.fail(missing_parameter("lora_path"));
  const auto is_control = [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; };
  if (path.size() > kMaxAdapterPathBytes || std::ranges::any_of(path, is_control)) {
    fields.fail(invalid_value(
        "lora_path",
        fmt::format("`lora_path` has {} bytes; it must be the path of a folder, of at most {} "
                    "bytes, without control characters.",
                    path.size(), kMaxAdapterPathBytes)));
  }
  if (fields.error()) return *fields.error();
  if (auto error = check_enabled(context)) return *error;
  const auto& served = context.served_names;
  if (std::ranges::find(served, name) != served.end()) {
    return invalid_value(
        "lora_name", fmt::format("`{}` is the name of the model; give the adapter another.", name));
  }
  if (auto error = context.adapters->load(name, path, replace)) return *error;
  return adapters_answer(context, fmt::format("The adapter {} is loaded.", name));
}

AnswerResult answer_unload_adapter(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  const std::string name = read_adapter_name(fields);
  if (fields.error()) return *fields.error();
  if (auto error = check_enabled(context)) return *error;
  if (auto error = context.adapters->unload(name)) return *error;
  return adapters_answer(context, fmt::format("The adapter {} is unloaded.", name));
}

}  // namespace heddle::server
