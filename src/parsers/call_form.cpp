// SPDX-License-Identifier: Apache-2.0
#include "parsers/call_form.h"

#include <string>
#include <string_view>
#include <utility>

namespace heddle::parsers {
namespace {

using Json = nlohmann::ordered_json;

// How a format writes calls with arguments in JSON. Names stand in JSON's quotes or plainly.
struct CallSpelling {
  std::string_view section_begin;  // around all calls
  std::string_view section_end;
  std::string_view separator;
  std::string_view before_name;
  bool quotes_name = false;
  std::string_view index_pattern;  // between the name and `after_name`
  std::string_view after_name;
  std::string_view after_arguments;
};

std::optional<CallSpelling> spelling_of(ToolCallFormat format) {
  switch (format) {
    case ToolCallFormat::kQwen:
      return CallSpelling{.separator = "\n",
                          .before_name = "<tool_call>\n{\"name\": ",
                          .quotes_name = true,
                          .after_name = ", \"arguments\": ",
                          .after_arguments = "}\n</tool_call>"};
    case ToolCallFormat::kLlama3:
      return CallSpelling{.separator = "; ",
                          .before_name = "{\"name\": ",
                          .quotes_name = true,
                          .after_name = ", \"parameters\": ",
                          .after_arguments = "}"};
    case ToolCallFormat::kMistral:
      return CallSpelling{.section_begin = "[TOOL_CALLS][",
                          .section_end = "]",
                          .separator = ", ",
                          .before_name = "{\"name\": ",
                          .quotes_name = true,
                          .after_name = ", \"arguments\": ",
                          .after_arguments = "}"};
    case ToolCallFormat::kDeepseekV3:  // as V3.1 writes them; the parser reads V3's, too
      return CallSpelling{.section_begin = "<｜tool▁calls▁begin｜>",
                          .section_end = "<｜tool▁calls▁end｜>",
                          .before_name = "<｜tool▁call▁begin｜>",
                          .after_name = "<｜tool▁sep｜>",
                          .after_arguments = "<｜tool▁call▁end｜>"};
    case ToolCallFormat::kKimiK2:
      return CallSpelling{.section_begin = "<|tool_calls_section_begin|>",
                          .section_end = "<|tool_calls_section_end|>",
                          .before_name = "<|tool_call_begin|>functions.",
                          .index_pattern = ":[0-9]{1,3}",
                          .after_name = "<|tool_call_argument_begin|>",
                          .after_arguments = "<|tool_call_end|>"};
    case ToolCallFormat::kNone:
    case ToolCallFormat::kQwen3Coder:
    case ToolCallFormat::kDeepseekV32:
    case ToolCallFormat::kGlm:
    case ToolCallFormat::kPythonic:
    case ToolCallFormat::kHarmony:
      break;
  }
  return std::nullopt;
}

Json text_form(std::string_view text) { return {{"type", "const_string"}, {"value", text}}; }

Json sequence_form(Json elements) {
  return {{"type", "sequence"}, {"elements", std::move(elements)}};
}

Json call_tag(const CallableTool& tool, const CallSpelling& spelling) {
  std::string begin(spelling.before_name);
  begin += spelling.quotes_name ? Json(tool.name).dump() : tool.name;
  Json content = {{"type", "json_schema"}, {"json_schema", tool.parameters}};
  if (spelling.index_pattern.empty()) {
    begin += spelling.after_name;
  } else {
    content =
        sequence_form(Json::array({Json{{"type", "regex"}, {"pattern", spelling.index_pattern}},
                                   text_form(spelling.after_name), std::move(content)}));
  }
  return {{"begin", std::move(begin)},
          {"content", std::move(content)},
          {"end", spelling.after_arguments}};
}

// Of the text that a call begins with: it tells calls from other text.
std::string_view first_word(std::string_view text) {
  return text.substr(0, text.find_first_of(" \n"));
}

}  // namespace

std::optional<Json> call_form(const std::vector<CallableTool>& tools,
                              const CallFormOptions& options) {
  const std::optional<CallSpelling> spelling = spelling_of(options.format);
  // Where a special token is the mark, a form would have to spell it, which the model does not.
  if (!spelling || (options.beside_text && needs_special_tokens(options.format))) {
    return std::nullopt;
  }
  Json tags = Json::array();
  for (const CallableTool& tool : tools) tags.push_back(call_tag(tool, *spelling));
  const bool has_section = !spelling->section_begin.empty();
  if (options.beside_text && !has_section) {
    return Json{{"type", "triggered_tags"},
                {"triggers", Json::array({first_word(spelling->before_name)})},
                {"tags", std::move(tags)},
                {"stop_after_first", options.one_call}};
  }
  Json calls = {{"type", "tags_with_separator"},
                {"tags", std::move(tags)},
                {"separator", spelling->separator},
                {"at_least_one", true},
                {"stop_after_first", options.one_call}};
  if (!has_section) return calls;
  if (!options.beside_text) {
    return sequence_form(Json::array(
        {text_form(spelling->section_begin), std::move(calls), text_form(spelling->section_end)}));
  }
  return Json{{"type", "triggered_tags"},
              {"triggers", Json::array({spelling->section_begin})},
              {"tags", Json::array({Json{{"begin", spelling->section_begin},
                                         {"content", std::move(calls)},
                                         {"end", spelling->section_end}}})},
              {"stop_after_first", options.one_call}};
}

}  // namespace heddle::parsers
