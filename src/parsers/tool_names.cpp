// SPDX-License-Identifier: Apache-2.0
#include "parsers/tool_names.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/edit_distance.h"
#include "parsers/loose_number.h"
#include "parsers/loose_tag.h"
#include "parsers/parameter_type.h"

namespace heddle::parsers {
namespace {

using NamesJson = nlohmann::ordered_json;

constexpr size_t kMaxComparedBytes = 64;  // the most bytes of a name that is compared with similar
                                          // names

const NamesJson* named_member(const NamesJson& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto place = object.find(name);
  return place == object.end() ? nullptr : &*place;
}

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || static_cast<unsigned char>(c) >= 0x80;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Removes words that models write around a tool's name: "functions.f.call", "call_f_0".
std::string_view without_affixes(std::string_view written) {
  constexpr std::string_view kPrefixes[] = {"functions_", "function_", "tools_", "tool_", "call_"};
  constexpr std::string_view kSuffixes[] = {".call", ".run", ".invoke", ".execute"};
  for (const std::string_view suffix : kSuffixes) {
    if (written.ends_with(suffix)) written.remove_suffix(suffix.size());
  }
  const size_t number = written.find_last_of("_:.-");
  if (number != std::string_view::npos && is_number(written.substr(number + 1))) {
    written = written.substr(0, number);
  }
  for (const std::string_view prefix : kPrefixes) {
    if (written.starts_with(prefix)) return written.substr(prefix.size());
  }
  return written;
}

// Removes what models write around names: quotes, space, "()".
std::string_view without_wrapping(std::string_view written) {
  constexpr std::string_view kWrapping = " \t\r\n\"'`";
  const size_t begin = written.find_first_not_of(kWrapping);
  if (begin == std::string_view::npos) return {};
  written = written.substr(begin, written.find_last_not_of(kWrapping) - begin + 1);
  if (written.ends_with("()")) written.remove_suffix(2);
  return written;
}

}  // namespace

void ToolNames::NameIndex::add(std::string_view name) {
  if (!names.emplace(name).second) return;
  in_order.emplace_back(name);
  const auto [place, is_new] = by_word.try_emplace(bare_word(name), name);
  if (!is_new) place->second.clear();
}

std::string ToolNames::NameIndex::resolve(std::string_view written) const {
  written = without_wrapping(written);
  if (names.contains(written)) return std::string(written);
  const auto find_word = [this](std::string_view name) {
    const auto found = by_word.find(bare_word(name));
    return found == by_word.end() ? std::string() : found->second;
  };
  if (std::string name = find_word(written); !name.empty()) return name;
  if (const size_t prefix = written.find_last_of(".:/"); prefix != std::string_view::npos) {
    if (std::string name = find_word(written.substr(prefix + 1)); !name.empty()) return name;
  }
  if (written.size() > kMaxComparedBytes) return std::string(written);
  // The most similar name, if there is only one.
  std::string nearest;
  size_t least = 3;
  for (size_t i = 0; i < std::min(in_order.size(), kMaxCompared); ++i) {
    const std::string& name = in_order[i];
    const size_t allowed = name.size() >= 12 ? 2 : name.size() >= 6 ? 1 : 0;
    const size_t difference =
        std::max(name.size(), written.size()) - std::min(name.size(), written.size());
    if (difference > allowed || allowed == 0 || name.size() > kMaxComparedBytes) continue;
    const size_t distance = edit_distance(written, name);
    if (distance > allowed || distance > least) continue;
    nearest = distance < least ? name : std::string();
    least = distance;
  }
  return nearest.empty() ? std::string(written) : nearest;
}

ToolNames::ToolNames(std::shared_ptr<const NamesJson> tools) : list_(tools) {
  if (tools == nullptr || !tools->is_array()) return;
  for (const NamesJson& tool : *tools) {
    const NamesJson* const function = named_member(tool, "function");
    const NamesJson* const name = function != nullptr ? named_member(*function, "name") : nullptr;
    if (name == nullptr || !name->is_string()) continue;
    const auto& its_name = name->get_ref<const std::string&>();
    if (tools_.names.contains(its_name)) continue;
    tools_.add(its_name);
    NameIndex& parameters = parameters_[its_name];
    const NamesJson* const schema = named_member(*function, "parameters");
    const NamesJson* const properties =
        schema != nullptr ? named_member(*schema, "properties") : nullptr;
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [parameter, ignored] : properties->items()) {
      parameters.add(parameter);
      const auto [place, is_new] = only_tools_.try_emplace(parameter, its_name);
      if (!is_new && place->second != its_name) place->second.clear();
    }
  }
}

bool ToolNames::has(std::string_view tool) const { return tools_.names.contains(tool); }

std::string ToolNames::resolve(std::string_view written) const {
  std::string name = tools_.resolve(written);
  if (has(name)) return name;
  std::string inner = tools_.resolve(without_affixes(without_wrapping(written)));
  return has(inner) ? inner : name;
}

bool ToolNames::has_parameter(std::string_view tool, std::string_view parameter) const {
  const auto found = parameters_.find(tool);
  return found != parameters_.end() && found->second.names.contains(parameter);
}

std::string ToolNames::resolve_parameter(std::string_view tool, std::string_view written) const {
  const auto found = parameters_.find(tool);
  if (found == parameters_.end()) return std::string(without_wrapping(written));
  return found->second.resolve(written);
}

std::optional<std::string> ToolNames::meant_parameter(std::string_view tool,
                                                      std::string_view written) const {
  std::string meant = resolve_parameter(tool, written);
  return has_parameter(tool, meant) ? std::optional(std::move(meant)) : std::nullopt;
}

const std::vector<std::string>& ToolNames::parameters(std::string_view tool) const {
  static const std::vector<std::string> kNone;
  const auto found = parameters_.find(tool);
  return found == parameters_.end() ? kNone : found->second.in_order;
}

std::optional<std::string> ToolNames::meant_number(std::string_view tool,
                                                   std::string_view parameter,
                                                   std::string_view written) const {
  std::optional<std::string> number = loose_number(written);
  const bool may_be_text = number && list_ != nullptr && has_parameter(tool, parameter) &&
                           ParameterType::of(*list_, tool, parameter).may_be_string();
  return may_be_text ? '"' + std::string(written) + '"' : number;
}

JsonScanner::KeyReader ToolNames::key_reader(std::string tool) const {
  return [this, tool = std::move(tool)](std::string_view written) {
    return meant_parameter(tool, written);
  };
}

JsonScanner::NumberReader ToolNames::number_reader(std::string tool) const {
  return [this, tool = std::move(tool)](std::string_view key, std::string_view written) {
    return meant_number(tool, key, written);
  };
}

std::string ToolNames::only_tool_with(std::string_view parameter) const {
  const auto found = only_tools_.find(std::string(parameter));
  return found == only_tools_.end() ? std::string() : found->second;
}

Match ToolNames::begins_with_name(std::string_view text, std::string_view& name) const {
  size_t size = 0;
  while (size < text.size() && is_name_byte(text[size])) ++size;
  count_searched(size);
  name = text.substr(0, size);
  if (size == text.size()) {
    const auto next = tools_.names.lower_bound(name);
    return next != tools_.names.end() && next->starts_with(name) ? Match::kMore : Match::kNo;
  }
  return size > 0 && tools_.names.contains(name) ? Match::kYes : Match::kNo;
}

}  // namespace heddle::parsers
