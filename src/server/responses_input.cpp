// SPDX-License-Identifier: Apache-2.0
#include "server/responses_input.h"

#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/caller.h"
#include "server/http_message.h"
#include "server/json_text.h"
#include "server/response_tools.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// Appends the text of a string, or of parts that are text. `shows_types`: other parts become
// "[TYPE]".
std::optional<ApiError> read_parts_of_item(const Json& content, const std::string& param,
                                           std::string& text, bool shows_types = false) {
  if (content.is_string()) {
    text += content.get_ref<const std::string&>();
    return std::nullopt;
  }
  if (!content.is_array()) return invalid_type(param, "a string or a list of parts");
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", param, i);
    if (!content[i].is_object()) return invalid_type(name, "an object");
    FieldReader part(content[i], name + ".");
    const std::string type = part.string("type").value_or("");
    if (part.error()) return part.error();
    if (shows_types && !part.find("text")) {
      text += fmt::format("[{}]", printable(type, 40));
      continue;
    }
    if (type == "input_image" || type == "input_file" || type == "input_audio") {
      return ApiError{.code = "unsupported_parameter",
                      .message = fmt::format("`{}` is a part of type {}; this model takes text "
                                             "only.",
                                             name, type),
                      .param = name};
    }
    const char* const field = type == "refusal" ? "refusal" : "text";
    const auto more = part.string(field);
    if (part.error()) return part.error();
    if (!more) return missing_parameter(fmt::format("{}.{}", name, field));
    text += *more;
  }
  return std::nullopt;
}

class ItemReader {
 public:
  explicit ItemReader(Json& messages) : messages_(messages) {}

  std::optional<ApiError> read(const Json& value, const std::string& param) {
    if (!value.is_object()) return invalid_type(param, "an object");
    FieldReader item(value, param + ".");
    const std::string type = item.string("type").value_or("message");
    if (item.error()) return item.error();
    if (type == "message") return read_message_item(item, param);
    if (type == "function_call") return read_call(item, param);
    if (type == "reasoning") return read_reasoning(item, param);
    if (type.ends_with(kOutputSuffix)) return read_call_output(item, param);
    if (type.ends_with(kCallSuffix)) return read_foreign_call(value, type, item, param);
    if (type.starts_with("mcp_") || type == "compaction") return std::nullopt;
    return invalid_value(param + ".type",
                         fmt::format("`{}.type` is \"{}\"; it must be message, function_call, "
                                     "function_call_output, reasoning or one that OpenAI's tools "
                                     "leave.",
                                     param, printable(type, 40)));
  }

  // The assistant says nothing more in this turn: calls that are text, and a reasoning that was cut
  // off, stand in a message of their own.
  void end_turn() {
    if (notes_.empty() && reasoning_.empty()) return;
    Json message = {{"role", "assistant"}, {"content", std::exchange(notes_, {})}};
    if (!reasoning_.empty()) message["reasoning_content"] = std::exchange(reasoning_, {});
    messages_.push_back(std::move(message));
  }

 private:
  static constexpr std::string_view kCallSuffix = "_call";
  static constexpr std::string_view kOutputSuffix = "_call_output";

  // A call of another tool than a function. Where the client ran it, it has an id to which an
  // output belongs: it is a call like others, named as the tool. A call that OpenAI's servers ran
  // themselves becomes text at the beginning of what the assistant says next in this turn.
  std::optional<ApiError> read_foreign_call(const Json& value, const std::string& type,
                                            FieldReader& item, const std::string& param) {
    const auto id = item.string("call_id");
    if (item.error()) return item.error();
    Json shown = value;
    for (const char* const name : {"type", "id", "call_id", "status", "result"}) shown.erase(name);
    if (!id) {
      notes_ += fmt::format("[{}: {}]\n", type, dump_json(shown));
      return std::nullopt;
    }
    const Json name = shown.value("name", Json());
    const Json space = shown.value("namespace", Json());
    for (const char* const own : {"name", "namespace"}) shown.erase(own);
    const Json call = {
        {"call_id", *id},
        {"name", name.is_string() ? name : Json(type.substr(0, type.size() - kCallSuffix.size()))},
        {"namespace", space},
        {"arguments", dump_json(shown)}};
    FieldReader translated(call, param + ".");
    return read_call(translated, param);
  }

  std::optional<ApiError> read_message_item(FieldReader& item, const std::string& param) {
    const auto role = item.string("role");
    const Json* content = item.find("content");
    if (item.error()) return item.error();
    if (!role) return missing_parameter(param + ".role");
    if (content == nullptr) return missing_parameter(param + ".content");
    std::string text;
    if (auto error = read_parts_of_item(*content, param + ".content", text)) return error;
    if (*role == "assistant") {
      text.insert(0, std::exchange(notes_, {}));
    } else {
      end_turn();
    }
    Json message = {{"role", *role}, {"content", std::move(text)}};
    if (*role == "assistant" && !reasoning_.empty()) {
      message["reasoning_content"] = std::exchange(reasoning_, {});
    }
    messages_.push_back(std::move(message));
    return std::nullopt;
  }

  std::optional<ApiError> read_call(FieldReader& item, const std::string& param) {
    const auto id = item.string("call_id");
    const auto name = item.string("name");
    const auto space = item.string("namespace");
    const auto arguments = item.string("arguments");
    if (item.error()) return item.error();
    if (!id) return missing_parameter(param + ".call_id");
    if (!name) return missing_parameter(param + ".name");
    // Calls of one turn are one message.
    if (messages_.empty() || messages_.back()["role"] != "assistant") {
      Json message = {{"role", "assistant"}, {"content", std::exchange(notes_, {})}};
      if (!reasoning_.empty()) message["reasoning_content"] = std::exchange(reasoning_, {});
      messages_.push_back(std::move(message));
    }
    messages_.back()["tool_calls"].push_back({{"id", *id},
                                              {"type", "function"},
                                              {"function",
                                               {{"name", name_in_prompt(space.value_or(""), *name)},
                                                {"arguments", arguments.value_or("{}")}}}});
    return std::nullopt;
  }

  std::optional<ApiError> read_call_output(FieldReader& item, const std::string& param) {
    const auto id = item.string("call_id");
    const Json* output = item.find("output");
    if (item.error()) return item.error();
    if (!id) return missing_parameter(param + ".call_id");
    if (output == nullptr) return missing_parameter(param + ".output");
    std::string text;
    if (output->is_object()) {
      const Json type = output->value("type", Json("output"));
      text =
          fmt::format("[{}]", type.is_string() ? printable(type.get<std::string>(), 40) : "output");
    } else if (auto error = read_parts_of_item(*output, param + ".output", text,
                                               /*shows_types=*/true)) {
      return error;
    }
    messages_.push_back({{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(text)}});
    return std::nullopt;
  }

  std::optional<ApiError> read_reasoning(FieldReader& item, const std::string& param) {
    const Json* content = item.find("content");
    if (content == nullptr) return std::nullopt;
    return read_parts_of_item(*content, param + ".content", reasoning_);
  }

  Json& messages_;
  std::string reasoning_;  // of the assistant's next message in this turn, as these
  std::string notes_;
};

std::string_view id_prefix_of(const std::string& type) {
  if (type == "message") return "msg";
  if (type == "reasoning") return "rs";
  if (type == "function_call") return "fc";
  if (type == "custom_tool_call") return "ctc";
  return "item";
}

// Puts the items that are referred to in the place of the references, from the item `begin` on.
std::optional<ApiError> resolve_references(const KnownItems& known, Json& items, size_t begin) {
  std::unordered_set<std::string> resolved;
  for (size_t i = begin; i < items.size(); ++i) {
    if (!items[i].is_object() || items[i].value("type", Json()) != "item_reference") continue;
    const std::string param = fmt::format("input[{}].id", i - begin);
    FieldReader reference(items[i], fmt::format("input[{}].", i - begin));
    const auto id = reference.string("id");
    if (reference.error()) return reference.error();
    if (!id) return missing_parameter(param);
    const auto item = known.store == nullptr ? nullptr : known.store->find_item(*id, known.holder);
    if (item == nullptr) {
      return ApiError{.status = 404,
                      .code = "not_found",
                      .message = fmt::format("There is no item `{}`; items are kept for an hour "
                                             "with the response that wrote them. Send the item.",
                                             printable(*id, 128)),
                      .param = param};
    }
    if (!resolved.insert(*id).second) {
      return invalid_value(param, fmt::format("The item `{}` is referred to twice.", *id));
    }
    items[i] = *item;
  }
  return std::nullopt;
}

// Gives the items a type and an id, where their client has given none.
void name_items(Json& items) {
  const std::string random = new_request_id("");
  for (size_t i = 0; i < items.size(); ++i) {
    Json& item = items[i];
    if (item["type"].is_null()) item["type"] = "message";
    if (item["id"].is_string()) continue;
    const auto type = item["type"].get<std::string>();
    item["id"] = fmt::format("{}_{}_{}", id_prefix_of(type), random, i);
  }
}

}  // namespace

void append_output_items(const Json& output, Json& items) {
  bool is_empty = true;
  for (const Json& item : output) {
    // A call that was cut off has arguments that are no JSON.
    const bool is_call = item["type"] == "function_call" || item["type"] == "custom_tool_call";
    if (is_call && item["status"] != "completed") continue;
    items.push_back(item);
    is_empty = false;
  }
  // An empty answer is one, too: templates may want users and assistants to take turns.
  if (is_empty) items.push_back({{"type", "message"}, {"role", "assistant"}, {"content", ""}});
}

std::optional<ApiError> read_responses_input(FieldReader& fields, const KnownItems& known,
                                             Json& items, Json& messages) {
  const Json* input = fields.find("input");
  if (input == nullptr) return missing_parameter("input");
  const size_t num_earlier = items.size();
  if (input->is_string()) {
    items.push_back({{"type", "message"}, {"role", "user"}, {"content", *input}});
  } else if (input->is_array()) {
    if (input->empty() && num_earlier == 0) return invalid_value("input", "`input` is empty.");
    items.insert(items.end(), input->begin(), input->end());
  } else {
    return invalid_type("input", "a string or a list of items");
  }
  if (auto error = resolve_references(known, items, num_earlier)) return error;
  ItemReader reader(messages);
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string param = i < num_earlier ? std::string("previous_response_id")
                                              : fmt::format("input[{}]", i - num_earlier);
    if (auto error = reader.read(items[i], param)) return error;
  }
  reader.end_turn();
  name_items(items);
  return std::nullopt;
}

}  // namespace heddle::server
