// SPDX-License-Identifier: Apache-2.0
#include "chat/arrangement.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chat/json.h"

namespace heddle::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBlankLine = "\n\n";
constexpr size_t kShortIdChars = 9;  // length that Mistral's templates require

std::string text_member(const Json& object, std::string_view name) {
  if (!object.is_object()) return {};
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool has_calls(const Json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty();
}

bool has_content(const Json& message) {
  const auto content = message.find("content");
  return content != message.end() && !content->is_null() && !content->empty() && *content != "";
}

bool is_from(const Json& message, Speaker speaker) { return speaker_of(message) == speaker; }

std::string with_blank_line(std::string first, const std::string& second) {
  if (!first.empty() && !second.empty()) first += kBlankLine;
  return first + second;
}

// A short id computed from the long one, so that an id is the same in every turn.
std::string short_id(std::string_view id) {
  if (id.size() == kShortIdChars &&
      id.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") ==
          std::string_view::npos) {
    return std::string(id);
  }
  constexpr std::string_view kDigits =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a hash
  for (const char byte : id) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  std::string text;
  for (size_t i = 0; i < kShortIdChars; ++i, hash /= kDigits.size()) {
    text += kDigits[hash % kDigits.size()];
  }
  return text;
}

// JSON text as Python's json module writes it.
std::string json_text(const Json& json) {
  Budget unlimited({.max_steps = INT64_MAX, .max_memory_bytes = INT64_MAX});
  TextWriter out(&unlimited);
  const auto value = value_from_json(json);
  if (!value.ok() || !write_json(out, *value, {}).ok()) return "{}";
  return out.take();
}

// Arguments as text: as the client sent them, or as Python's json module writes them.
std::string arguments_text(const Json& arguments) {
  if (!arguments.is_string()) return arguments.is_null() ? "{}" : json_text(arguments);
  auto text = arguments.get<std::string>();
  return text.find_first_not_of(" \t\r\n") == std::string::npos ? "{}" : text;
}

// A tool call as text, for the assistant's message.
std::string call_text(const Json& call) {
  if (!call.is_object() || !call.contains("function")) return {};
  const Json& function = call["function"];
  return fmt::format("{{\"name\": {}, \"arguments\": {}}}",
                     json_text(text_member(function, "name")),
                     arguments_text(function.value("arguments", Json())));
}

class Arranger {
 public:
  Arranger(const Arrangement& how, std::string_view separator) : how_(how), separator_(separator) {}

  Json run(const Json& messages) {
    for (const Json& message : messages) messages_.push_back(message);
    name_results();
    if (how_.calls_as_text || how_.orphans_as_text) write_calls_as_text();
    place_system_texts();
    if (how_.one_call_each) give_calls_messages_of_their_own();
    if (how_.content_apart) set_content_apart();
    if (how_.turns_alternate) join_neighbours();
    Json arranged = Json::array();
    for (Json& message : messages_) {
      finish(message);
      wrap(message);
      arranged.push_back(std::move(message));
    }
    return arranged;
  }

 private:
  [[nodiscard]] std::string content_of(const Json& message) const {
    const auto speaker = speaker_of(message);
    const bool glued = speaker && how_.takes_lists(*speaker);
    return joined_content(message, glued ? std::string_view() : separator_);
  }

  // Adds the function's name to results. Templates may show it, and some clients write it only in
  // the call.
  void name_results() {
    std::map<std::string, std::string> names;
    for (Json& message : messages_) {
      if (has_calls(message)) {
        for (const Json& call : message["tool_calls"]) {
          if (!call.is_object() || !call.contains("function")) continue;
          names[text_member(call, "id")] = text_member(call["function"], "name");
        }
      } else if (is_from(message, Speaker::kTool) && !message.contains("name")) {
        const auto name = names.find(text_member(message, "tool_call_id"));
        if (name != names.end()) message["name"] = name->second;
      }
    }
  }

  // Appends `text` to the last message if that is a user's; otherwise adds a user's message.
  void add_to_user(const std::string& text, std::vector<Json>& messages) const {
    if (!messages.empty() && is_from(messages.back(), Speaker::kUser)) {
      messages.back()["content"] = with_blank_line(content_of(messages.back()), text);
    } else {
      messages.push_back({{"role", "user"}, {"content", text}});
    }
  }

  void write_calls_as_text() {
    std::vector<Json> written;
    std::set<std::string> open;  // ids of all calls before the current message
    bool after_result = false;   // the last message written is a user's message made from a result
    for (Json& message : messages_) {
      if (has_calls(message)) {
        for (const Json& call : message["tool_calls"]) open.insert(text_member(call, "id"));
        if (how_.calls_as_text) {
          std::string text = content_of(message);
          for (const Json& call : message["tool_calls"]) {
            if (!text.empty()) text += '\n';
            text += call_text(call);
          }
          message["content"] = std::move(text);
          message.erase("tool_calls");
        }
      }
      const bool is_result = is_from(message, Speaker::kTool);
      if (is_result &&
          (how_.calls_as_text || !open.contains(text_member(message, "tool_call_id")))) {
        const std::string name = text_member(message, "name");
        std::string text = content_of(message);
        if (!name.empty()) text = fmt::format("Result of {}:\n{}", name, text);
        if (after_result) {
          add_to_user(text, written);
        } else {
          written.push_back({{"role", "user"}, {"content", std::move(text)}});
        }
        after_result = true;
        continue;
      }
      after_result = false;
      written.push_back(std::move(message));
    }
    messages_ = std::move(written);
  }

  void place_system_texts() {
    std::vector<Json> placed;
    size_t next = 0;
    Json first;
    std::string first_text;
    size_t num_first = 0;
    for (; next < messages_.size() && is_from(messages_[next], Speaker::kSystem); ++next) {
      first_text = with_blank_line(std::move(first_text), content_of(messages_[next]));
      if (num_first++ == 0) first = std::move(messages_[next]);
    }
    if (num_first > 1) first["content"] = first_text;
    std::string before_user;  // system text to put at the beginning of the next user's turn
    if (num_first > 0 && how_.systems == SystemTexts::kInTurns) {
      before_user = std::move(first_text);
      num_first = 0;
    } else if (num_first > 0) {
      placed.push_back(std::move(first));
    }
    const auto end_turn = [&] {
      if (!before_user.empty()) add_to_user(std::exchange(before_user, {}), placed);
    };
    for (; next < messages_.size(); ++next) {
      Json& message = messages_[next];
      const bool is_system = is_from(message, Speaker::kSystem);
      if (is_system && how_.systems == SystemTexts::kLateInFirst) {
        const std::string text = content_of(message);
        if (num_first == 0) {
          message["content"] = "";
          placed.insert(placed.begin(), std::move(message));
          num_first = 1;
        }
        placed.front()["content"] = with_blank_line(content_of(placed.front()), text);
      } else if (is_system && how_.systems != SystemTexts::kInPlace) {
        if (!placed.empty() && is_from(placed.back(), Speaker::kUser)) {
          add_to_user(content_of(message), placed);
        } else {
          before_user = with_blank_line(std::move(before_user), content_of(message));
        }
      } else if (!before_user.empty() && is_from(message, Speaker::kUser)) {
        message["content"] = with_blank_line(std::exchange(before_user, {}), content_of(message));
        placed.push_back(std::move(message));
      } else {
        end_turn();
        placed.push_back(std::move(message));
      }
    }
    end_turn();
    messages_ = std::move(placed);
  }

  // Reorders A, B, result of A, result of B to A, result of A, B, result of B.
  void give_calls_messages_of_their_own() {
    std::vector<Json> apart;
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (!has_calls(messages_[i]) || messages_[i]["tool_calls"].size() < 2) {
        apart.push_back(std::move(messages_[i]));
        continue;
      }
      Json message = std::move(messages_[i]);
      const Json calls = std::move(message["tool_calls"]);
      size_t end = i + 1;
      while (end < messages_.size() && is_from(messages_[end], Speaker::kTool)) ++end;
      std::vector<bool> taken(end - i, false);
      for (const Json& call : calls) {
        message["tool_calls"] = Json::array({call});
        apart.push_back(message);
        message = {{"role", "assistant"}, {"content", ""}};
        for (size_t j = i + 1; j < end; ++j) {
          if (taken[j - i] ||
              text_member(messages_[j], "tool_call_id") != text_member(call, "id")) {
            continue;
          }
          taken[j - i] = true;
          apart.push_back(std::move(messages_[j]));
          break;
        }
      }
      for (size_t j = i + 1; j < end; ++j) {
        if (!taken[j - i]) apart.push_back(std::move(messages_[j]));
      }
      i = end - 1;
    }
    messages_ = std::move(apart);
  }

  void set_content_apart() {
    std::vector<Json> apart;
    for (Json& message : messages_) {
      if (has_calls(message) && has_content(message)) {
        Json text = message;
        text.erase("tool_calls");
        apart.push_back(std::move(text));
        message["content"] = "";
        message.erase("reasoning_content");
      }
      apart.push_back(std::move(message));
    }
    messages_ = std::move(apart);
  }

  void join_neighbours() {
    std::vector<Json> joined;
    for (Json& message : messages_) {
      const auto speaker = speaker_of(message);
      const bool is_first =
          joined.empty() || (joined.size() == 1 && is_from(joined.front(), Speaker::kSystem));
      if (is_first && speaker == Speaker::kAssistant) {
        joined.push_back({{"role", "user"}, {"content", ""}});
      }
      const bool joins = !joined.empty() && speaker_of(joined.back()) == speaker &&
                         (speaker == Speaker::kUser || speaker == Speaker::kAssistant) &&
                         !has_calls(message) && !has_calls(joined.back());
      if (joins) {
        joined.back()["content"] = with_blank_line(content_of(joined.back()), content_of(message));
      } else {
        joined.push_back(std::move(message));
      }
    }
    messages_ = std::move(joined);
  }

  void finish(Json& message) const {
    const auto speaker = speaker_of(message);
    const auto content = message.find("content");
    if (content != message.end() && content->is_array() &&
        !(speaker && how_.takes_lists(*speaker))) {
      *content = joined_content(message, separator_);
    }
    if (how_.fills_empty && speaker == Speaker::kAssistant && !has_calls(message) &&
        !has_content(message)) {
      message["content"] = " ";
    }
    if (how_.short_ids && message.contains("tool_call_id")) {
      message["tool_call_id"] = short_id(text_member(message, "tool_call_id"));
    }
    if (!has_calls(message)) return;
    if (how_.null_content && !has_content(message)) message["content"] = nullptr;
    for (Json& call : message["tool_calls"]) {
      if (how_.short_ids) call["id"] = short_id(text_member(call, "id"));
      const auto function = call.find("function");
      if (how_.arguments == ArgumentsForm::kAsSent && function != call.end() &&
          function->is_object()) {
        (*function)["arguments"] = arguments_text(function->value("arguments", Json()));
      }
    }
  }

  // For templates that accept only lists of parts, such as LLaVA's.
  void wrap(Json& message) const {
    const auto speaker = speaker_of(message);
    const auto content = message.find("content");
    if (!speaker || !how_.wraps[static_cast<size_t>(*speaker)] || content == message.end() ||
        !content->is_string()) {
      return;
    }
    Json part = {{"type", "text"}, {"text", std::move(*content)}};
    *content = Json::array({std::move(part)});
  }

  const Arrangement& how_;
  const std::string_view separator_;
  std::vector<Json> messages_;
};

}  // namespace

std::optional<Speaker> speaker_of(const Json& message) {
  const std::string role = text_member(message, "role");
  if (role == "system" || role == "developer") return Speaker::kSystem;
  if (role == "user") return Speaker::kUser;
  if (role == "assistant") return Speaker::kAssistant;
  if (role == "tool" || role == "function") return Speaker::kTool;
  return std::nullopt;
}

ConversationTraits traits_of(const Json& messages) {
  ConversationTraits traits;
  std::optional<Speaker> last;
  for (const Json& message : messages) {
    const auto speaker = speaker_of(message);
    const bool is_system = speaker == Speaker::kSystem;
    if (is_system) {
      if (last && (last != Speaker::kSystem || traits.has_late_system)) {
        traits.has_late_system = true;
      } else {
        traits.has_several_first |= traits.has_system;
      }
      traits.has_system = true;
    }
    traits.breaks_turns |= speaker == last && !is_system;
    traits.breaks_turns |= speaker == Speaker::kAssistant && (!last || last == Speaker::kSystem);
    const auto content = message.find("content");
    traits.has_lists |= content != message.end() && content->is_array();
    if (has_calls(message)) {
      traits.has_calls = true;
      traits.has_parallel_calls |= message["tool_calls"].size() > 1;
      traits.has_content_beside_calls |= has_content(message);
    }
    traits.has_empty_answer |=
        speaker == Speaker::kAssistant && !has_calls(message) && !has_content(message);
    traits.has_results |= speaker == Speaker::kTool;
    last = speaker;
  }
  return traits;
}

Json arrange(const Json& messages, const Arrangement& arrangement, std::string_view separator) {
  return Arranger(arrangement, separator).run(messages);
}

std::string joined_content(const Json& message, std::string_view separator) {
  const auto content = message.find("content");
  if (content == message.end()) return {};
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  if (!content->is_array()) return text;
  bool is_first = true;
  for (const Json& part : *content) {
    if (!std::exchange(is_first, false)) text += separator;
    text += text_member(part, "text");
  }
  return text;
}

}  // namespace heddle::chat
