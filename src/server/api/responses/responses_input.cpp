// SPDX-License-Identifier: Apache-2.0
#include "server/api/responses/responses_input.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chat/arrangement.h"
#include "core/printable.h"
#include "server/api/responses/response_tools.h"
#include "server/call/body_fields.h"
#include "server/call/custom_tools.h"
#include "server/call/document_part.h"
#include "server/call/history_repair.h"
#include "server/http/caller.h"
#include "server/http/http_message.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// The author of a content, which determines how parts that are no text are read.
enum class Writer : uint8_t {
  kAsking,   // the client, in its new message: media are refused, because the model cannot process
             // them
  kEarlier,  // a model, a tool or a client earlier: nothing is an error
};

class ItemReader {
 public:
  ItemReader(const CallContext& context, Json& messages) : context_(context), messages_(messages) {}

  // Reads an item. `is_asked`: no answer follows it.
  std::optional<ApiError> read(const Json& value, const std::string& param, bool is_asked) {
    if (!value.is_object()) return invalid_type(param, "an object");
    FieldReader item(value, param + ".");
    const std::string type = item.string("type").value_or("message");
    if (item.error()) return item.error();
    if (type == "message") return read_message_item(item, param, is_asked);
    if (type == "function_call") return read_call(item, param);
    if (type == "reasoning") return read_reasoning(item, param);
    if (type.ends_with(kOutputSuffix) || type == "tool_search_output" || type == "program_output") {
      return read_call_output(value, type, item, param);
    }
    if (type.ends_with(kCallSuffix) || type == "program") {
      return read_foreign_call(value, type, item, param);
    }
    if (is_passed_over(type)) return std::nullopt;
    if (type == "agent_message" || type == "additional_tools") {
      return read_foreign_message(value, type, param);
    }
    context_.note_unused("type of an item", type);
    add_note(shown_as_text(type, value));
    return std::nullopt;
  }

  // Ends the assistant's turn: notes about calls, and reasoning that was cut off, become a message
  // of their own.
  void end_turn() {
    if (notes_.empty() && reasoning_.empty()) return;
    Json message = {{"role", "assistant"}, {"content", std::exchange(notes_, {})}};
    if (!reasoning_.empty()) message["reasoning_content"] = std::exchange(reasoning_, {});
    messages_.push_back(std::move(message));
  }

 private:
  static constexpr std::string_view kCallSuffix = "_call";
  static constexpr std::string_view kOutputSuffix = "_call_output";

  // Whether items of this type are ignored: they are for the client's own use, encrypted for
  // OpenAI's servers, or about tools of MCP servers, which OpenAI's servers would call.
  static bool is_passed_over(std::string_view type) {
    constexpr std::array<std::string_view, 7> kTypes = {
        "compaction",     "compaction_trigger",   "context_compaction",   "ghost_snapshot",
        "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"};
    return std::ranges::find(kTypes, type) != kTypes.end();
  }

  void add_note(const std::string& note) { notes_ += note + "\n"; }

  // Reads a text, or parts that are text. For other parts the type is written, or they are refused.
  std::optional<ApiError> read_parts(const Json& content, const std::string& param, Writer writer,
                                     Json& texts) const {
    if (content.is_string()) {
      texts = content;
      return std::nullopt;
    }
    if (!content.is_array()) return invalid_type(param, "a string or a list of parts");
    texts = Json::array();
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string name = fmt::format("{}[{}]", param, i);
      std::string text;
      if (auto error = read_part(content[i], name, writer, text)) return error;
      texts.push_back({{"type", "text"}, {"text", std::move(text)}});
    }
    if (texts.empty()) texts = "";
    return std::nullopt;
  }

  std::optional<ApiError> read_part(const Json& value, const std::string& param, Writer writer,
                                    std::string& text) const {
    if (value.is_string()) {
      text = value.get<std::string>();
      return std::nullopt;
    }
    if (!value.is_object()) return invalid_type(param, "an object");
    FieldReader part(value, param + ".");
    const std::string type = part.string("type").value_or("");
    if (part.error()) return part.error();
    if (is_media_part(type) && !part.find("text")) {
      text = fmt::format("[{}]", type);
      if (writer != Writer::kAsking) return std::nullopt;
      return ApiError{.code = "unsupported_parameter",
                      .message = fmt::format("`{}` is a part of type {}; this model takes text "
                                             "only.",
                                             param, type),
                      .param = param};
    }
    if (auto document = read_document_part(context_, value, type, param)) {
      if (const auto* const error = std::get_if<ApiError>(&*document)) {
        if (writer == Writer::kAsking) return *error;
        text = fmt::format("[{}]", type);
      } else {
        text = std::get<std::string>(*document);
      }
      return std::nullopt;
    }
    const char* const field = type == "refusal" ? "refusal" : "text";
    if (is_text_part(type) || part.find(field)) {
      const auto more = part.string(field);
      if (part.error()) return part.error();
      if (!more) return missing_parameter(fmt::format("{}.{}", param, field));
      text = *more;
      return std::nullopt;
    }
    if (part.find("type")) context_.note_unused("type of a part", type);
    text = shown_as_text(part.find("type") ? type : "output", value);
    return std::nullopt;
  }

  static bool is_text_part(std::string_view type) {
    return type == "text" || type == "input_text" || type == "output_text" || type == "refusal" ||
           type == "summary_text" || type == "reasoning_text";
  }

  // Reads a content as in read_parts(), joined to one text.
  std::optional<ApiError> read_text(const Json& content, const std::string& param, Writer writer,
                                    std::string& text) const {
    Json texts;
    if (auto error = read_parts(content, param, writer, texts)) return error;
    text += chat::joined_content({{"content", std::move(texts)}}, "");
    return std::nullopt;
  }

  // A call of a tool that is no function. If the client ran it, it has a `call_id` to which an
  // output belongs: it becomes a call of the tool's name. A call that OpenAI's servers ran becomes
  // text at the beginning of the assistant's next message in this turn.
  std::optional<ApiError> read_foreign_call(const Json& value, const std::string& type,
                                            FieldReader& item, const std::string& param) {
    const auto id = item.string("call_id");
    if (item.error()) return item.error();
    Json shown = value;
    for (const char* const name :
         {"type", "id", "call_id", "status", "result", "caller", "fingerprint"}) {
      shown.erase(name);
    }
    if (!id) {
      add_note(fmt::format("[{}: {}]", type, dump_json(shown)));
      return std::nullopt;
    }
    const Json name = shown.value("name", Json());
    const Json space = shown.value("namespace", Json());
    for (const char* const own : {"name", "namespace"}) shown.erase(own);
    const std::string tool =
        type.ends_with(kCallSuffix) ? type.substr(0, type.size() - kCallSuffix.size()) : type;
    const Json call = {{"call_id", *id},
                       {"name", name.is_string() ? name : Json(tool)},
                       {"namespace", space},
                       {"arguments", dump_json(shown)}};
    FieldReader translated(call, param + ".");
    return read_call(translated, param);
  }

  // Reads a message of another agent, or tools that an item adds later, as text.
  std::optional<ApiError> read_foreign_message(const Json& value, const std::string& type,
                                               const std::string& param) {
    end_turn();
    const bool is_tools = type == "additional_tools";
    std::string text;
    const Json content = value.value("content", value.value("message", Json()));
    if (is_tools || !(content.is_string() || content.is_array())) {
      text = shown_as_text(type, value);
    } else if (auto error = read_text(content, param + ".content", Writer::kEarlier, text)) {
      return error;
    }
    messages_.push_back({{"role", is_tools ? "developer" : "user"}, {"content", std::move(text)}});
    return std::nullopt;
  }

  std::optional<ApiError> read_message_item(FieldReader& item, const std::string& param,
                                            bool is_asked) {
    const auto role = item.string("role");
    const Json* content = item.find("content");
    if (item.error()) return item.error();
    if (!role) return missing_parameter(param + ".role");
    const bool is_assistant = *role == "assistant";
    if (content == nullptr) return missing_parameter(param + ".content");
    Json texts;
    if (auto error = read_parts(*content, param + ".content",
                                is_asked ? Writer::kAsking : Writer::kEarlier, texts)) {
      return error;
    }
    if (!is_assistant) {
      end_turn();
      messages_.push_back({{"role", *role}, {"content", std::move(texts)}});
      return std::nullopt;
    }
    std::string text =
        std::exchange(notes_, {}) + chat::joined_content({{"content", std::move(texts)}}, "");
    if (has_open_calls() && reasoning_.empty()) {  // the text follows the calls of the same answer
      add_to_last(text);
      return std::nullopt;
    }
    Json message = {{"role", *role}, {"content", std::move(text)}};
    if (!reasoning_.empty()) message["reasoning_content"] = std::exchange(reasoning_, {});
    messages_.push_back(std::move(message));
    return std::nullopt;
  }

  // Appends a line to the last message, which must be an assistant's.
  void add_to_last(std::string_view text) {
    std::string& said = messages_.back()["content"].get_ref<std::string&>();
    if (!said.empty() && !said.ends_with('\n') && !text.empty()) said += '\n';
    said += text;
  }

  [[nodiscard]] bool has_open_calls() const {
    return !messages_.empty() && messages_.back()["role"] == "assistant" &&
           messages_.back().contains("tool_calls");
  }

  // Whether the last calls include one with this id; without an id, whether any of them has no
  // result yet.
  [[nodiscard]] bool has_open_call(const std::optional<std::string>& id) const {
    size_t num_results = 0;
    for (auto message = messages_.rbegin(); message != messages_.rend(); ++message) {
      if ((*message)["role"] == "tool") {
        ++num_results;
        continue;
      }
      const auto calls = message->find("tool_calls");
      if (calls == message->end()) return false;
      if (!id) return num_results < calls->size();
      return std::ranges::any_of(
          *calls, [&id](const Json& call) { return call.value("id", Json()) == *id; });
    }
    return false;
  }

  // Puts the notes before the result that follows them, so the output of a `program` without a
  // `call_id` comes after its note. No note is put between the results of open calls.
  void place_notes_before_result(const std::optional<std::string>& id) {
    if (notes_.empty()) return;
    if (has_open_calls() && reasoning_.empty()) {
      add_to_last(std::exchange(notes_, {}));
    } else if (!has_open_call(id)) {
      end_turn();
    }
  }

  std::optional<ApiError> read_call(FieldReader& item, const std::string& param) {
    const auto id = item.string("call_id");
    const auto name = item.string("name");
    const auto space = item.string("namespace");
    const auto arguments = item.string("arguments");
    if (item.error()) return item.error();
    if (!name) return missing_parameter(param + ".name");
    // Calls of one turn form one message.
    if (messages_.empty() || messages_.back()["role"] != "assistant" || !reasoning_.empty()) {
      Json message = {{"role", "assistant"}, {"content", std::exchange(notes_, {})}};
      if (!reasoning_.empty()) message["reasoning_content"] = std::exchange(reasoning_, {});
      messages_.push_back(std::move(message));
    } else {
      add_to_last(std::exchange(notes_, {}));
    }
    Json call = {{"type", "function"},
                 {"function",
                  {{"name", name_in_prompt(space.value_or(""), *name)},
                   {"arguments", arguments.value_or("{}")}}}};
    if (id) call["id"] = *id;
    messages_.back()["tool_calls"].push_back(std::move(call));
    return std::nullopt;
  }

  // Reads the output of a call. Some kinds have it under another name, or have only a status, and
  // the call's id as their own id.
  std::optional<ApiError> read_call_output(const Json& value, const std::string& type,
                                           FieldReader& item, const std::string& param) {
    auto id = item.string("call_id");
    if (!id) id = item.string("id");
    if (item.error()) return item.error();
    place_notes_before_result(id);
    const Json* output = item.find("output");
    if (output == nullptr) output = item.find("result");
    if (output == nullptr && type == "apply_patch_call_output") output = item.find("status");
    std::string text;
    if (output == nullptr) {
      const Json* const tools = item.find("tools");
      if (tools != nullptr) text = dump_json(*tools);
    } else if (output->is_object()) {
      if (auto error = read_part(*output, param + ".output", Writer::kEarlier, text)) return error;
    } else if (auto error = read_text(*output, param + ".output", Writer::kEarlier, text)) {
      return error;
    }
    Json message = {{"role", "tool"}, {"content", std::move(text)}};
    if (id) message["tool_call_id"] = *id;
    if (const Json name = value.value("name", Json()); name.is_string()) message["name"] = name;
    messages_.push_back(std::move(message));
    return std::nullopt;
  }

  // Reads the reasoning text, or its summary if servers have withheld the text.
  std::optional<ApiError> read_reasoning(FieldReader& item, const std::string& param) {
    const size_t num_before = reasoning_.size();
    for (const char* const field : {"content", "summary"}) {
      const Json* const texts = item.find(field);
      if (texts == nullptr || reasoning_.size() > num_before) continue;
      if (auto error =
              read_text(*texts, fmt::format("{}.{}", param, field), Writer::kEarlier, reasoning_)) {
        return error;
      }
    }
    return std::nullopt;
  }

  const CallContext& context_;
  Json& messages_;
  std::string reasoning_;  // reasoning for the assistant's next message in this turn, as are the
                           // members below
  std::string notes_;
};

std::string_view id_prefix_of(const std::string& type) {
  if (type == "message") return "msg";
  if (type == "reasoning") return "rs";
  if (type == "function_call") return "fc";
  if (type == "custom_tool_call") return "ctc";
  return "item";
}

// Whether an item is a reference, which may come without a type.
bool is_reference(const Json& item) {
  const Json type = item.value("type", Json());
  if (type.is_null()) return item.contains("id") && !item.contains("role");
  return type == "item_reference";
}

// Replaces references by the items that they refer to, beginning at index `begin`.
std::optional<ApiError> resolve_references(const KnownItems& known, Json& items, size_t begin) {
  std::unordered_set<std::string> resolved;
  for (size_t i = begin; i < items.size(); ++i) {
    if (!items[i].is_object() || !is_reference(items[i])) continue;
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

// Gives a type and an id to items whose client has sent none.
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

// Repairs the items of the history from index `begin` on. Returns the number of items up to the end
// of the history; the items after it are the client's new input.
size_t repair_items(const CallContext& context, Json& items, size_t begin) {
  const size_t num_past = num_past_items(items, begin);
  const HistoryRepair repair(context);
  size_t kept = begin;
  bool follows_question = false;
  for (size_t i = begin; i < num_past; ++i) {
    Json item = std::move(items[i]);
    if (!repair.make_object(item)) continue;
    repair.response_item(item, follows_question);
    const Json role = item.value("role", Json());
    follows_question = role == "user" || !role.is_string();
    items[kept++] = std::move(item);
  }
  auto& list = items.get_ref<Json::array_t&>();
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(kept),
             list.begin() + static_cast<std::ptrdiff_t>(num_past));
  return kept;
}

}  // namespace

void append_output_items(const Json& output, Json& items) {
  for (const Json& item : output) items.push_back(item);
  // An empty answer also becomes a message, because templates may require users and assistants to
  // alternate.
  if (output.empty())
    items.push_back({{"type", "message"}, {"role", "assistant"}, {"content", ""}});
}

std::optional<ApiError> read_responses_input(FieldReader& fields, const CallContext& context,
                                             const KnownItems& known, Json& items, Json& messages) {
  const Json* input = fields.find(Body::kResponsesPrompt["input"]);
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
  const size_t num_past = repair_items(context, items, num_earlier);
  if (auto error = resolve_references(known, items, num_earlier)) return error;
  ItemReader reader(context, messages);
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string param = i < num_earlier ? std::string("previous_response_id")
                                              : fmt::format("input[{}]", i - num_earlier);
    if (auto error = reader.read(items[i], param, /*is_asked=*/i >= num_past)) return error;
  }
  reader.end_turn();
  name_items(items);
  return std::nullopt;
}

}  // namespace heddle::server
