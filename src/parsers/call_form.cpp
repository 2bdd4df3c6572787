// SPDX-License-Identifier: Apache-2.0
#include "parsers/call_form.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/exact_json.h"
#include "grammar/listed_values.h"
#include "parsers/gemma_calls.h"
#include "parsers/harmony_parser.h"
#include "parsers/parameter_type.h"
#include "parsers/pythonic_calls.h"
#include "parsers/tool_parameters.h"

namespace heddle::parsers {
namespace {

using Json = nlohmann::ordered_json;

// The most bytes of a tool's schema that its parameters may copy to resolve references. A strict
// tool that needs more is refused. For other tools the remaining references are dropped, so that
// the whole form does not exceed the size limit of compiled forms.
constexpr size_t kMaxStrictCopies = size_t{256} << 10;
constexpr size_t kMaxLooseCopies = size_t{32} << 10;

// How a format writes calls whose arguments are one text. Tool names are JSON strings or plain
// text.
struct CallSpelling {
  std::string_view section_token;  // special token before the section, as it is spelled
  std::string_view section_begin;  // text at the beginning of the section with all calls
  std::string_view section_end;
  std::string_view section_end_token;
  std::string_view separator;
  std::string_view call_token;  // special token before each call, as it is spelled
  // text before the index if the index precedes the name; empty: the index, if any, follows the
  // name
  std::string_view before_index;
  std::string_view index_pattern;
  std::string_view before_name;
  bool quotes_name = false;
  std::string_view after_name;
  std::string_view after_arguments;
  std::string_view call_end_token;
  std::string_view arguments_type = "json_schema";  // format type of the arguments
};

// A JSON list of objects {"name": N, "arguments": A} between the section's marks.
CallSpelling listed_objects(CallSpelling marks) {
  if (marks.section_begin.empty()) marks.section_begin = "[";
  if (marks.section_end.empty()) marks.section_end = "]";
  marks.separator = ", ";
  marks.before_name = "{\"name\": ";
  marks.quotes_name = true;
  marks.after_name = ", \"arguments\": ";
  marks.after_arguments = "}";
  return marks;
}

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
    case ToolCallFormat::kJson:
      return CallSpelling{.before_name = "{\"name\": ",
                          .quotes_name = true,
                          .after_name = ", \"arguments\": ",
                          .after_arguments = "}"};
    case ToolCallFormat::kMistral:
      return listed_objects({.section_token = "[TOOL_CALLS]"});
    case ToolCallFormat::kDeepseekV3:  // the notation of V3.1; the parser also reads that of V3
      return CallSpelling{.section_begin = "<｜tool▁calls▁begin｜>",
                          .section_end = "<｜tool▁calls▁end｜>",
                          .before_name = "<｜tool▁call▁begin｜>",
                          .after_name = "<｜tool▁sep｜>",
                          .after_arguments = "<｜tool▁call▁end｜>"};
    case ToolCallFormat::kKimiK2:
      return CallSpelling{.section_begin = "<|tool_calls_section_begin|>",
                          .section_end = "<|tool_calls_section_end|>",
                          .index_pattern = ":[0-9]{1,3}",
                          .before_name = "<|tool_call_begin|>functions.",
                          .after_name = "<|tool_call_argument_begin|>",
                          .after_arguments = "<|tool_call_end|>"};
    case ToolCallFormat::kPythonic:
      return CallSpelling{.section_begin = "[",
                          .section_end = "]",
                          .separator = ", ",
                          .after_name = "(",
                          .after_arguments = ")",
                          .arguments_type = "python_arguments"};
    case ToolCallFormat::kLfm2:
      return CallSpelling{.section_token = "<|tool_call_start|>",
                          .section_begin = "[",
                          .section_end = "]",
                          .section_end_token = "<|tool_call_end|>",
                          .separator = ", ",
                          .after_name = "(",
                          .after_arguments = ")",
                          .arguments_type = "python_arguments"};
    case ToolCallFormat::kGemma4:
      return CallSpelling{.call_token = "<|tool_call>",
                          .before_name = "call:",
                          .call_end_token = "<tool_call|>",
                          .arguments_type = "gemma_arguments"};
    case ToolCallFormat::kGranite:
      return listed_objects({.section_token = "<|tool_call|>"});
    case ToolCallFormat::kNemotronV2:
      return listed_objects({.section_begin = "<TOOLCALL>[", .section_end = "]</TOOLCALL>"});
    case ToolCallFormat::kCohere:
      return CallSpelling{.section_token = "<|START_ACTION|>",
                          .section_begin = "[\n    ",
                          .section_end = "\n]",
                          .section_end_token = "<|END_ACTION|>",
                          .separator = ",\n    ",
                          .before_index = "{\"tool_call_id\": \"",
                          .index_pattern = "[0-9]{1,3}",
                          .before_name = "\", \"tool_name\": ",
                          .quotes_name = true,
                          .after_name = ", \"parameters\": ",
                          .after_arguments = "}"};
    default:
      return std::nullopt;
  }
}

// How a format writes calls with arguments between tags; an argument is a text or JSON.
struct TagSpelling {
  std::string_view section_begin;
  std::string_view section_end;
  std::string_view separator;
  std::string_view call_token;  // special token before each call, as it is spelled
  std::string_view before_name;
  std::string_view after_name;
  std::string_view call_end;
  std::string_view call_end_token;
  std::string_view before_key;
  std::string_view before_text;  // text after the key and before a value that is a text
  std::string_view after_text;   // text after a value that is a text; such a value cannot contain
                                 // it
  std::string_view before_json;
  std::string_view after_json;

  // For forms in which other text is allowed: marks that the parser would take for the beginning of
  // a call, so the text must not contain them. An unmarked call is one without its first tag.
  std::vector<std::string_view> forbidden_marks;
  std::string_view unmarked_before_name;  // text before the name of an unmarked call; empty: the
                                          // format has no such calls
  std::string_view unmarked_call_end;
};

std::optional<TagSpelling> tag_spelling_of(ToolCallFormat format) {
  switch (format) {
    case ToolCallFormat::kQwen3Coder:
      return TagSpelling{.separator = "\n",
                         .before_name = "<tool_call>\n<function=",
                         .after_name = ">\n",
                         .call_end = "</function>\n</tool_call>",
                         .before_key = "<parameter=",
                         .before_text = ">\n",
                         .after_text = "</parameter>\n",
                         .before_json = ">\n",
                         .after_json = "\n</parameter>\n",
                         .forbidden_marks = {},
                         .unmarked_before_name = "<function=",
                         .unmarked_call_end = "</function>"};
    case ToolCallFormat::kGlm:
      return TagSpelling{.separator = "\n",
                         .before_name = "<tool_call>",
                         .after_name = "\n",
                         .call_end = "</tool_call>",
                         .before_key = "<arg_key>",
                         .before_text = "</arg_key>\n<arg_value>",
                         .after_text = "</arg_value>\n",
                         .before_json = "</arg_key>\n<arg_value>",
                         .after_json = "</arg_value>\n",
                         .forbidden_marks = {}};
    case ToolCallFormat::kDeepseekV32:
      return TagSpelling{.section_begin = "<｜DSML｜function_calls>\n",
                         .section_end = "</｜DSML｜function_calls>",
                         .before_name = "<｜DSML｜invoke name=\"",
                         .after_name = "\">\n",
                         .call_end = "</｜DSML｜invoke>\n",
                         .before_key = "<｜DSML｜parameter name=\"",
                         .before_text = "\" string=\"true\">",
                         .after_text = "</｜DSML｜parameter>\n",
                         .before_json = "\" string=\"false\">",
                         .after_json = "</｜DSML｜parameter>\n",
                         .forbidden_marks = {"<｜DSML｜tool_calls>", "<function_calls>",
                                             "<｜DSML｜invoke ", "<invoke "}};
    case ToolCallFormat::kMinimaxM2:
      return TagSpelling{.section_begin = "<minimax:tool_call>\n",
                         .section_end = "</minimax:tool_call>",
                         .before_name = "<invoke name=\"",
                         .after_name = "\">\n",
                         .call_end = "</invoke>\n",
                         .before_key = "<parameter name=\"",
                         .before_text = "\">",
                         .after_text = "</parameter>\n",
                         .before_json = "\">",
                         .after_json = "</parameter>\n",
                         .forbidden_marks = {"<invoke "}};
    case ToolCallFormat::kSeedOss:
      return TagSpelling{.separator = "\n",
                         .call_token = "<seed:tool_call>",
                         .before_name = "\n<function=",
                         .after_name = ">\n",
                         .call_end = "</function>\n",
                         .call_end_token = "</seed:tool_call>",
                         .before_key = "<parameter=",
                         .before_text = ">",
                         .after_text = "</parameter>\n",
                         .before_json = ">",
                         .after_json = "</parameter>\n",
                         .forbidden_marks = {}};
    default:
      return std::nullopt;
  }
}

Json text_form(std::string_view text) { return {{"type", "const_string"}, {"value", text}}; }

Json token_form(std::string_view text) { return {{"type", "token"}, {"token", text}}; }

Json pattern_form(std::string_view pattern) { return {{"type", "regex"}, {"pattern", pattern}}; }

Json sequence_form(Json elements) {
  return {{"type", "sequence"}, {"elements", std::move(elements)}};
}

// The form of a part of a tool's arguments, given by a schema.
Json schema_form(std::string_view type, Json schema, const CallableTool& tool) {
  Json form = {{"type", type}, {"json_schema", std::move(schema)}};
  if (!tool.is_strict) form.update({{"strict", false}, {"of", tool.name}});
  return form;
}

// One entry of tags_with_separator. `begin` and `end` are texts; the special tokens before and
// after them may be absent.
template <typename Spelling>
Json tag_between(const Spelling& spelling, std::string begin, Json content, std::string_view end) {
  if (spelling.call_token.empty()) {
    return {{"begin", std::move(begin)}, {"content", std::move(content)}, {"end", end}};
  }
  content = sequence_form(Json::array(
      {token_form(spelling.call_token), text_form(begin), std::move(content), text_form(end)}));
  return {
      {"begin", ""}, {"content", std::move(content)}, {"end", token_form(spelling.call_end_token)}};
}

Json call_tag(const CallableTool& tool, const CallSpelling& spelling) {
  std::string begin(spelling.before_name);
  begin += spelling.quotes_name ? Json(tool.name).dump() : tool.name;
  Json content = schema_form(spelling.arguments_type, tool.parameters, tool);
  const bool begins_with_index = !spelling.before_index.empty();
  if (begins_with_index) {
    begin += spelling.after_name;
    content = sequence_form(
        Json::array({pattern_form(spelling.index_pattern), text_form(begin), std::move(content)}));
    begin = spelling.before_index;
  } else if (spelling.index_pattern.empty()) {
    begin += spelling.after_name;
  } else {
    content = sequence_form(Json::array({pattern_form(spelling.index_pattern),
                                         text_form(spelling.after_name), std::move(content)}));
  }
  return tag_between(spelling, std::move(begin), std::move(content), spelling.after_arguments);
}

Json any_text_form() { return {{"type", "any_text"}}; }

Json tag_form(std::string begin, Json content, std::string_view end) {
  return {
      {"type", "tag"}, {"begin", std::move(begin)}, {"content", std::move(content)}, {"end", end}};
}

// The values of a schema that lists all of them. If its other keywords cannot be enforced, the
// values of its own enum or const.
std::optional<std::vector<Json>> values_of(const Json& schema, const Json& root) {
  if (auto values = grammar::listed_values(schema, root)) return values;
  if (!schema.is_object()) return std::nullopt;
  if (const auto value = schema.find("const"); value != schema.end()) return std::vector{*value};
  const auto values = schema.find("enum");
  if (values == schema.end() || !values->is_array() || values->empty()) return std::nullopt;
  return std::vector<Json>(values->begin(), values->end());
}

// The text that the parser reads as this value of an enum; none if there is no such text.
std::optional<std::string> text_of_value(const Json& value, const ParameterType& type) {
  std::string text = value.is_string() ? value.get<std::string>() : dump_exact_json(value);
  const Result<Json> read = parse_exact_json(type.to_json(text));
  if (!read.ok() || *read != value) return std::nullopt;
  return text;
}

Json text_tag(const std::string& key, Json content, const TagSpelling& spelling) {
  return tag_form(std::string(spelling.before_key) + key + std::string(spelling.before_text),
                  std::move(content), spelling.after_text);
}

// A text that the parser does not read as a number, a list or an object.
Json plain_text_tag(const std::string& key, const TagSpelling& spelling) {
  Json rest = {
      {"type", "tag"}, {"begin", ""}, {"content", any_text_form()}, {"end", spelling.after_text}};
  return sequence_form(Json::array(
      {text_form(std::string(spelling.before_key) + key + std::string(spelling.before_text)),
       Json{{"type", "regex"}, {"pattern", R"([^\s{\[(<0-9+.\-"'])"}}, std::move(rest)}));
}

// The form of a parameter with a value. The parser reads the value by the same types. Null: no
// value is possible.
Json parameter_form(const std::string& key, const Json& schema, const ToolParameters& parameters,
                    size_t& num_bytes_left, const CallableTool& tool, const TagSpelling& spelling) {
  const bool is_optional = !parameters.requires_property(key);
  const ParameterType type = ParameterType::of_schema(schema, tool.parameters);
  const Json object = schema.is_object() ? schema : Json{{"allOf", Json::array({schema})}};
  const auto as_text = [&](Json form) {
    if (!tool.is_strict) return form;
    if (is_optional) form["optional"] = true;
    form["stands_for"] = parameters.as_document(schema, object, num_bytes_left);
    return form;
  };
  const auto json_tag = [&](Json whole) {
    whole = parameters.as_document(schema, std::move(whole), num_bytes_left);
    Json value = schema_form("json_schema", std::move(whole), tool);
    if (is_optional) value["optional"] = true;
    return tag_form(std::string(spelling.before_key) + key + std::string(spelling.before_json),
                    std::move(value), spelling.after_json);
  };
  if (type.is_unsaid()) return as_text(text_tag(key, any_text_form(), spelling));
  if (!type.may_be_string()) return json_tag(object);
  if (const auto values = values_of(schema, tool.parameters)) {
    // If the tags say whether a value is a text, values that are not texts need other tags.
    const bool tags_say_type = spelling.before_text != spelling.before_json;
    Json texts = Json::array();
    Json others = Json::array();
    for (const Json& value : *values) {
      if (tags_say_type) {
        const bool is_text = value.is_string();
        (is_text ? texts : others)
            .push_back(text_form(is_text ? value.get<std::string>() : dump_exact_json(value)));
      } else if (const auto text = text_of_value(value, type)) {
        texts.push_back(text_form(*text));
      }
    }
    Json tags = Json::array();
    const auto add_tag = [&](std::string_view before, Json& elements) {
      if (elements.empty()) return;
      tags.push_back(tag_form(std::string(spelling.before_key) + key + std::string(before),
                              {{"type", "or"}, {"elements", std::move(elements)}},
                              spelling.after_json));
    };
    add_tag(spelling.before_text, texts);
    add_tag(spelling.before_json, others);
    if (tags.empty() && tool.is_strict && is_optional) return nullptr;
    if (tags.size() == 1) return as_text(std::move(tags.front()));
    if (!tags.empty()) return as_text({{"type", "or"}, {"elements", std::move(tags)}});
  }
  if (type.is_string() || !(type.may_be_number() || type.may_be_structure())) {
    return as_text(text_tag(key, any_text_form(), spelling));
  }
  // The parser reads a text that looks like a number, a list or an object as one, so the form must
  // require valid JSON.
  Json others = Json::array({"array", "boolean", "null", "number", "object"});
  Json json = json_tag({{"type", std::move(others)}, {"allOf", Json::array({schema})}});
  return as_text({{"type", "or"},
                  {"elements", Json::array({std::move(json), plain_text_tag(key, spelling)})}});
}

// The form of the arguments: the properties in their order; any object if the schema describes no
// properties.
Json parameters_form(const CallableTool& tool, const TagSpelling& spelling) {
  const ToolParameters parameters(tool.parameters);
  if (!parameters.has_properties()) {
    const Json key = {{"type", "regex"}, {"pattern", "[A-Za-z_][A-Za-z0-9_-]{0,63}"}};
    const Json value =
        tag_form(std::string(spelling.before_text), any_text_form(), spelling.after_text);
    return {{"type", "tags_with_separator"},
            {"tags", Json::array({Json{{"begin", spelling.before_key},
                                       {"content", sequence_form(Json::array({key, value}))},
                                       {"end", ""}}})},
            {"separator", ""}};
  }
  size_t num_bytes_left = tool.is_strict ? kMaxStrictCopies : kMaxLooseCopies;
  Json elements = Json::array({text_form("")});
  for (const auto& [key, schema] : parameters.properties()) {
    Json one = parameter_form(key, *schema, parameters, num_bytes_left, tool, spelling);
    if (one.is_null()) continue;
    elements.push_back(
        parameters.requires_property(key)
            ? std::move(one)
            : Json{{"type", "or"}, {"elements", Json::array({text_form(""), std::move(one)})}});
  }
  return sequence_form(std::move(elements));
}

Json call_tag(const CallableTool& tool, const TagSpelling& spelling) {
  std::string begin(spelling.before_name);
  begin += tool.name;
  begin += spelling.after_name;
  return tag_between(spelling, std::move(begin), parameters_form(tool, spelling),
                     spelling.call_end);
}

// How a format writes an answer of several messages, with special tokens `<|..|>` between texts.
struct MessageSpelling {
  std::string_view reasoning_begin;
  std::string_view reasoning_end;  // special token after the reasoning
  std::string_view next_message;
  std::string_view before_name;
  std::string_view after_name;
  std::span<const std::string_view> forbidden_marks;  // marks that reasoning must not contain
};

std::optional<MessageSpelling> message_spelling_of(ToolCallFormat format) {
  if (format != ToolCallFormat::kHarmony) return std::nullopt;
  return MessageSpelling{.reasoning_begin = "<|channel|>analysis<|message|>",
                         .reasoning_end = "<|end|>",
                         .next_message = "<|start|>assistant",
                         .before_name = "<|channel|>commentary to=functions.",
                         .after_name = " <|constrain|>json<|message|>",
                         .forbidden_marks = HarmonyParser::kMessageEnds};
}

void append_marked_text(std::string_view text, Json& elements) {
  while (!text.empty()) {
    const bool is_token = text.starts_with("<|");
    const size_t size = is_token ? text.find("|>") + 2 : std::min(text.find("<|"), text.size());
    const std::string_view part = text.substr(0, size);
    elements.push_back(is_token ? token_form(part) : text_form(part));
    text.remove_prefix(size);
  }
}

// Optional reasoning, then one call. The answer ends after it, because the format's next token ends
// answers.
Json messages_form(const std::vector<CallableTool>& tools, const MessageSpelling& spelling) {
  Json reasoning = Json::array();
  append_marked_text(spelling.reasoning_begin, reasoning);
  Json thought = any_text_form();
  for (const std::string_view mark : spelling.forbidden_marks) thought["excludes"].push_back(mark);
  reasoning.push_back({{"type", "tag"},
                       {"begin", ""},
                       {"content", std::move(thought)},
                       {"end", token_form(spelling.reasoning_end)}});
  append_marked_text(spelling.next_message, reasoning);
  Json calls = Json::array();
  for (const CallableTool& tool : tools) {
    Json call = Json::array();
    append_marked_text(spelling.before_name, call);
    call.push_back(text_form(tool.name));
    append_marked_text(spelling.after_name, call);
    call.push_back(schema_form("json_schema", tool.parameters, tool));
    calls.push_back(sequence_form(std::move(call)));
  }
  Json may_reason = Json::array({text_form(""), sequence_form(std::move(reasoning))});
  return sequence_form(Json::array({Json{{"type", "or"}, {"elements", std::move(may_reason)}},
                                    Json{{"type", "or"}, {"elements", std::move(calls)}}}));
}

// The form of an answer that consists of calls only.
template <typename Spelling>
Json calls_form(const std::vector<CallableTool>& tools, const Spelling& spelling, bool one_call) {
  Json tags = Json::array();
  for (const CallableTool& tool : tools) tags.push_back(call_tag(tool, spelling));
  return {{"type", "tags_with_separator"},
          {"tags", std::move(tags)},
          {"separator", spelling.separator},
          {"at_least_one", true},
          {"stop_after_first", one_call}};
}

template <typename Spelling>
Json section_form(Json calls, const Spelling& spelling) {
  if (spelling.section_begin.empty()) return calls;
  return sequence_form(Json::array(
      {text_form(spelling.section_begin), std::move(calls), text_form(spelling.section_end)}));
}

// The first word of a call's text, by which calls are distinguished from other text.
std::string_view first_word(std::string_view text) {
  const size_t end = text.find_first_of(" \n>");
  return end == std::string_view::npos ? text : text.substr(0, text[end] == '>' ? end + 1 : end);
}

// The form of text with any number of calls in it.
template <typename Spelling>
Json beside_text(Json calls, const Spelling& spelling, bool one_call) {
  Json trigger = first_word(spelling.before_name);
  Json tags = std::move(calls["tags"]);
  if (!spelling.section_begin.empty()) {
    const std::string_view mark = first_word(spelling.section_begin);
    trigger = mark;
    calls["tags"] = std::move(tags);
    tags = Json::array({Json{{"begin", spelling.section_begin},
                             {"content", std::move(calls)},
                             {"end", spelling.section_end}}});
  }
  return {{"type", "triggered_tags"},
          {"triggers", Json::array({std::move(trigger)})},
          {"tags", std::move(tags)},
          {"stop_after_first", one_call}};
}

}  // namespace

std::optional<Json> call_form(const std::vector<CallableTool>& tools,
                              const CallFormOptions& options) {
  // A form would have to spell a mark that is a special token, but the model writes the token.
  if (options.beside_text && needs_special_tokens(options.format)) return std::nullopt;
  if (const auto spelling = tag_spelling_of(options.format)) {
    Json calls = calls_form(tools, *spelling, options.one_call);
    if (!options.beside_text) return section_form(std::move(calls), *spelling);
    Json form = beside_text(std::move(calls), *spelling, options.one_call);
    for (const std::string_view mark : spelling->forbidden_marks) form["triggers"].push_back(mark);
    if (spelling->unmarked_before_name.empty()) return form;
    TagSpelling unmarked = *spelling;
    unmarked.before_name = spelling->unmarked_before_name;
    unmarked.call_end = spelling->unmarked_call_end;
    form["triggers"].push_back(unmarked.before_name);
    for (const CallableTool& tool : tools) form["tags"].push_back(call_tag(tool, unmarked));
    return form;
  }
  if (const auto spelling = message_spelling_of(options.format)) {
    return messages_form(tools, *spelling);
  }
  const std::optional<CallSpelling> spelling = spelling_of(options.format);
  if (!spelling) return std::nullopt;
  Json calls = calls_form(tools, *spelling, options.one_call);
  if (options.beside_text) return beside_text(std::move(calls), *spelling, options.one_call);
  Json section = section_form(std::move(calls), *spelling);
  if (spelling->section_token.empty()) return section;
  Json form = sequence_form(Json::array({token_form(spelling->section_token), std::move(section)}));
  if (!spelling->section_end_token.empty()) {
    form["elements"].push_back(token_form(spelling->section_end_token));
  }
  return form;
}

Json arguments_form(const CallableTool& tool, ToolCallFormat format) {
  const std::string_view type = spelling_of(format).value_or(CallSpelling{}).arguments_type;
  return schema_form(type, tool.parameters, tool);
}

bool can_name(std::string_view tool, ToolCallFormat format) {
  switch (format) {
    case ToolCallFormat::kPythonic:
    case ToolCallFormat::kLfm2:
      return PythonicCallParser::takes_name(tool);
    case ToolCallFormat::kGemma4:
      return GemmaCallParser::takes_name(tool);
    case ToolCallFormat::kHarmony:
      return HarmonyParser::takes_name(tool);
    default:
      return true;
  }
}

bool has_reasoning(ToolCallFormat format) { return message_spelling_of(format).has_value(); }

std::optional<std::string> bound_not_enforced(const Json& parameters, ToolCallFormat format) {
  if (!tag_spelling_of(format)) return std::nullopt;
  const ToolParameters split(parameters);
  for (const auto& [key, schema] : split.properties()) {
    if (!ParameterType::of_schema(*schema, parameters).may_be_string()) continue;
    if (values_of(*schema, parameters)) continue;
    const std::string_view bound = ParameterType::text_bound_of(*schema, parameters);
    if (!bound.empty()) return fmt::format("`{}` of `{}`", bound, key);
  }
  return std::nullopt;
}

std::optional<std::string> keyword_not_enforced(const Json& parameters, ToolCallFormat format) {
  if (!tag_spelling_of(format)) return std::nullopt;
  const ToolParameters split(parameters);
  if (split.problem().empty()) return std::nullopt;
  return split.problem();
}

}  // namespace heddle::parsers
