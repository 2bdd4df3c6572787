// SPDX-License-Identifier: Apache-2.0
#include "chat/tool_members.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <nlohmann/json.hpp>

namespace heddle::chat {
namespace {

using Json = nlohmann::ordered_json;

Json empty_member(std::string_view name) {
  if (name == "description") return "";
  return {{"type", "object"}, {"properties", Json::object()}};
}

constexpr std::array<const char*, 2> kMembers = {"description", "parameters"};

bool has_null(const Json& function) {
  return std::ranges::any_of(kMembers, [&](const char* member) {
    const auto found = function.find(member);
    return found != function.end() && found->is_null();
  });
}

// A tool's function; null if it is not a tool.
template <typename Tool>
Tool* function_of(Tool& tool) {
  if (!tool.is_object()) return nullptr;
  const auto function = tool.find("function");
  return function != tool.end() && function->is_object() ? &*function : nullptr;
}

}  // namespace

ToolMembers::ToolMembers(const ChatTemplate& chat_template) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "x"}}});
  const Json bare = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  for (const auto& needed : std::vector<std::vector<std::string>>{
           {}, {"description"}, {"parameters"}, {"description", "parameters"}}) {
    needed_ = needed;
    if (!chat_template.render(messages, complete(bare), true, nullptr).ok()) continue;
    Json nulls = complete(bare);
    for (const char* const member : kMembers) nulls[0]["function"][member] = nullptr;
    takes_null_ = chat_template.render(messages, nulls, true, nullptr).ok();
    return;
  }
  needed_.clear();
}

bool ToolMembers::misses(const Json& tools) const {
  return std::ranges::any_of(tools, [this](const Json& tool) {
    const Json* const function = function_of(tool);
    if (function == nullptr) return false;
    return (!takes_null_ && has_null(*function)) ||
           std::ranges::any_of(
               needed_, [&](const std::string& member) { return !function->contains(member); });
  });
}

Json ToolMembers::complete(Json tools) const {
  for (Json& tool : tools) {
    Json* const function = function_of(tool);
    if (function == nullptr) continue;
    for (const char* const member : kMembers) {
      const auto found = function->find(member);
      if (!takes_null_ && found != function->end() && found->is_null()) function->erase(member);
    }
    for (const std::string& member : needed_) {
      if (!function->contains(member)) (*function)[member] = empty_member(member);
    }
  }
  return tools;
}

}  // namespace heddle::chat
