// SPDX-License-Identifier: Apache-2.0
#include "server/call/answer_form.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/exact_json.h"
#include "core/printable.h"
#include "grammar/json_schema.h"
#include "grammar/schema_references.h"
#include "parsers/answer_parser.h"
#include "parsers/call_form.h"
#include "parsers/formats.h"
#include "parsers/tool_call_parser.h"
#include "server/call/body_fields.h"
#include "server/http/http_message.h"

namespace heddle::server {
namespace {

using grammar::GrammarKind;
using Json = nlohmann::ordered_json;

constexpr size_t kMaxChoiceTexts = 1024;
constexpr size_t kMaxCallableTools = 1024;  // limit for the tools in one constraint

struct FormField {
  Field field;
  GrammarKind kind;
};

// Fields of the request itself.
constexpr std::array kFormFields = std::to_array<FormField>({
    {Body::kForm["json_schema"], GrammarKind::kJsonSchema},
    {Body::kForm["regex"], GrammarKind::kRegex},
    {Body::kForm["ebnf"], GrammarKind::kEbnf},
    {Body::kForm["structural_tag"], GrammarKind::kStructuralTag},
    {Body::kForm["guided_json"], GrammarKind::kJsonSchema},
    {Body::kForm["guided_regex"], GrammarKind::kRegex},
    {Body::kForm["guided_grammar"], GrammarKind::kEbnf},
});

// Members of `structured_outputs`.
constexpr std::array kOutputFields = std::to_array<FormField>({
    {Body::kStructuredOutputs["json"], GrammarKind::kJsonSchema},
    {Body::kStructuredOutputs["regex"], GrammarKind::kRegex},
    {Body::kStructuredOutputs["grammar"], GrammarKind::kEbnf},
    {Body::kStructuredOutputs["structural_tag"], GrammarKind::kStructuralTag},
});

AnswerForm form_of(GrammarKind kind, std::string text, std::string param) {
  AnswerForm form{.source = {.kind = kind, .text = std::move(text)},
                  .param = std::move(param),
                  .is_schema_given = kind == GrammarKind::kJsonSchema};
  return form;
}

AnswerForm tag_form(Json format, std::string param) {
  return form_of(GrammarKind::kStructuralTag, dump_exact_json(Json{{"format", std::move(format)}}),
                 std::move(param));
}

// Stores the first constraint and reports a second one as an error.
void take(std::optional<AnswerForm>& form, AnswerForm next, FieldReader& fields) {
  if (form) {
    fields.fail(invalid_value(
        next.param, fmt::format("`{}` and `{}` both say what the answer must look like; give one.",
                                form->param, next.param)));
  } else {
    form = std::move(next);
  }
}

void read_form_field(const FormField& form_field, FieldReader& fields,
                     std::optional<AnswerForm>& form) {
  const Field& field = form_field.field;
  const Json* const value = fields.find(field);
  if (value == nullptr) return;
  const bool is_json = field.type == FieldType::kStringOrObject;
  if (is_json && value->is_object()) {
    take(form, form_of(form_field.kind, dump_exact_json(*value), fields.name_of(field)), fields);
  } else if (value->is_string()) {
    take(form, form_of(form_field.kind, value->get<std::string>(), fields.name_of(field)), fields);
  } else {
    fields.fail(
        invalid_type(fields.name_of(field), is_json ? "a string or an object" : "a string"));
  }
}

void read_choice(const Field& name, FieldReader& fields, std::optional<AnswerForm>& form) {
  const auto choices = fields.strings(name);
  if (!choices) return;
  const std::string param = fields.name_of(name);
  if (choices->empty() || choices->size() > kMaxChoiceTexts) {
    fields.fail(invalid_value(param, fmt::format("`{}` has {} texts; give 1 to {}.", param,
                                                 choices->size(), kMaxChoiceTexts)));
    return;
  }
  Json elements = Json::array();
  for (const std::string& choice : *choices) {
    elements.push_back({{"type", "const_string"}, {"value", choice}});
  }
  take(form, tag_form({{"type", "or"}, {"elements", std::move(elements)}}, param), fields);
}

void read_structured_outputs(FieldReader& fields, std::optional<AnswerForm>& form) {
  const Json* const outputs = fields.object(Body::kForm["structured_outputs"]);
  if (outputs == nullptr) return;
  FieldReader inner(*outputs, fields.name_of("structured_outputs") + ".");
  for (const FormField& field : kOutputFields) read_form_field(field, inner, form);
  read_choice(Body::kStructuredOutputs["choice"], inner, form);
  if (inner.flag(Body::kStructuredOutputs["json_object"])) {
    take(form, form_of(GrammarKind::kJsonObject, {}, inner.name_of("json_object")), inner);
  }
  if (inner.error()) fields.fail(*inner.error());
}

void read_response_format(FieldReader& fields, std::optional<AnswerForm>& form) {
  const Json* const format = fields.object(Body::kForm["response_format"]);
  if (format == nullptr) return;
  const std::string param = fields.name_of("response_format");
  FieldReader inner(*format, param + ".");
  const std::string type = inner.string(Body::kResponseFormat["type"]).value_or("");
  // The schema is in an object `json_schema`, or directly in `response_format`.
  const Json* const named =
      type == "json_schema" ? inner.object(Body::kResponseFormat["json_schema"]) : nullptr;
  if (inner.error()) {
    fields.fail(*inner.error());
  } else if (type.empty()) {
    fields.fail(missing_parameter(param + ".type"));
  } else if (type == "json_object" || type == "json_schema") {
    const Json* const schema =
        FieldReader(named != nullptr ? *named : *format).find(Body::kNamedSchema["schema"]);
    if (schema == nullptr && type == "json_object") {
      take(form, form_of(GrammarKind::kJsonObject, {}, param), fields);
    } else if (schema == nullptr) {
      fields.fail(missing_parameter(param + ".json_schema.schema"));
    } else {
      take(form, form_of(GrammarKind::kJsonSchema, dump_exact_json(*schema), param), fields);
    }
  } else if (type == "structural_tag") {
    take(form, form_of(GrammarKind::kStructuralTag, dump_exact_json(*format), param), fields);
  } else if (type != "text") {
    fields.fail(invalid_value(
        param + ".type",
        fmt::format("`{}.type` must be text, json_object, json_schema or structural_tag.", param)));
  }
}

double seconds_of_thread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

ApiError compile_timeout(std::string_view param) {
  ApiError error = invalid_value(
      param, fmt::format("The forms that `{}` asks for take longer than {} s to compile; ask for "
                         "fewer or simpler ones, or for some of them in a call before this one.",
                         param, CompileClock::kMaxSeconds));
  error.code = "grammar_timeout";
  return error;
}

ApiError tool_error(std::string_view name, const std::string& param, std::string_view reason) {
  return {.code = "invalid_tool",
          .message = fmt::format("The tool \"{}\" is `strict`, but `{}` cannot be kept to: {}.",
                                 printable(name, 100), param, reason),
          .param = param};
}

// Called from time to time while a constraint is compiled: whether the client has disconnected.
std::optional<ApiError> check_client(const CallContext& context) {
  if (context.is_cancelled == nullptr || !(*context.is_cancelled)()) return std::nullopt;
  return error_from_status(cancelled("the client left or the server stops"), context.id);
}

// The schema for the arguments of a tool that is `strict` or must be called, restricted to objects.
// None if it has no usable schema. If there are too many references by name, they stay unresolved,
// which for a strict tool is an error.
Result<std::optional<Json>> schema_of_arguments(const Json& function, bool is_strict) {
  const Json given = function.value("parameters", Json());
  if (!given.is_object()) {
    return std::optional(Json{{"type", "object"}, {"properties", Json::object()}});
  }
  const Result<std::optional<Json>> pointed = grammar::point_references(given);
  if (is_strict && !pointed.ok()) return pointed.status();
  Json schema = pointed.ok() && *pointed ? **pointed : given;
  const auto type = given.find("type");
  const bool may_be_object =
      type == given.end() || *type == "object" ||
      (type->is_array() && std::ranges::find(*type, Json("object")) != type->end());
  if (!may_be_object) return std::optional<Json>();
  // Arguments are always objects, even if the schema allows other types.
  schema["type"] = "object";
  return std::optional(std::move(schema));
}

// The tools that an answer may call, with the schemas of the arguments that are enforced. Errors
// are left in `fields`.
std::vector<parsers::CallableTool> callable_tools(const ToolFields& tools,
                                                  parsers::ToolCallFormat format,
                                                  FieldReader& fields,
                                                  std::vector<ToolArguments>& arguments) {
  std::vector<parsers::CallableTool> result;
  for (size_t i = 0; i < tools.tools->size(); ++i) {
    const Json& function = (*tools.tools)[i]["function"];
    std::string name = function["name"].get<std::string>();
    if (tools.choice.kind == ToolChoice::Kind::kNamed && name != tools.choice.name) continue;
    const bool is_strict = function.value("strict", Json(false)) == true;
    if (!parsers::can_name(name, format)) {
      if (!tools.choice.forces_call()) continue;
      const std::string param = fmt::format("tools[{}].function.name", i);
      fields.fail(
          {.code = "invalid_tool",
           .message = fmt::format("The tool \"{}\" cannot be called: the served model's "
                                  "format of calls, \"{}\", has no such names; use letters, "
                                  "digits, _ and -.",
                                  printable(name, 100), to_string(format)),
           .param = param});
      break;
    }
    const std::string param = fmt::format("tools[{}].function.parameters", i);
    std::optional<Json> schema;
    if (is_strict || tools.choice.forces_call()) {
      Result<std::optional<Json>> own = schema_of_arguments(function, is_strict);
      if (!own.ok()) {
        fields.fail(tool_error(name, param, own.status().message()));
        break;
      }
      schema = std::move(own).value();
    }
    if (is_strict) {
      const auto bound = schema ? parsers::bound_not_enforced(*schema, format) : std::nullopt;
      const auto keyword = schema ? parsers::keyword_not_enforced(*schema, format) : std::nullopt;
      if (!schema || bound || keyword) {
        std::string reason = "its type must be \"object\"";
        if (bound) {
          reason = fmt::format("{}, a text that calls of the format {} write between tags", *bound,
                               to_string(format));
        }
        if (keyword) {
          reason = fmt::format("{}; calls of the format {} write each parameter between tags",
                               printable(*keyword, 200), to_string(format));
        }
        fields.fail(tool_error(name, param, reason));
        break;
      }
    }
    if (!schema) {
      result.push_back({.name = std::move(name), .parameters = {{"type", "object"}}});
      continue;
    }
    parsers::CallableTool tool = {
        .name = std::move(name), .parameters = *std::move(schema), .is_strict = is_strict};
    if (is_strict) {
      const Json part = {{"format", parsers::arguments_form(tool, format)}};
      arguments.push_back(
          {.name = tool.name,
           .param = param,
           .source = {.kind = GrammarKind::kStructuralTag, .text = dump_exact_json(part)}});
    }
    result.push_back(std::move(tool));
  }
  return result;
}

bool any_strict(const Json& tools) {
  return std::ranges::any_of(tools, [](const Json& tool) {
    return tool["function"].value("strict", Json(false)) == true;
  });
}

// A constraint as an element of a structural tag; none for a constraint that is a structural tag
// itself, and for schemas with errors, which are reported later.
std::optional<Json> format_of(const grammar::GrammarSource& source) {
  switch (source.kind) {
    case GrammarKind::kJsonObject:
      return Json{{"type", "json_schema"}, {"json_schema", {{"type", "object"}}}};
    case GrammarKind::kJsonSchema: {
      auto schema = grammar::parse_schema(source.text);
      if (!schema.ok()) return std::nullopt;
      return Json{{"type", "json_schema"}, {"json_schema", std::move(schema).value()}};
    }
    case GrammarKind::kRegex:
      return Json{{"type", "regex"}, {"pattern", source.text}};
    case GrammarKind::kEbnf:
      return Json{{"type", "grammar"}, {"grammar", source.text}};
    case GrammarKind::kStructuralTag:
      break;
  }
  return std::nullopt;
}

// A check that ends a compilation when the client has disconnected or the time is up.
grammar::CompileCheck check_of(const CallContext& context, const CompileClock& clock) {
  return [&context, &clock]() -> Status {
    if (context.is_cancelled != nullptr && (*context.is_cancelled)()) {
      return cancelled("the client left or the server stops");
    }
    return clock.check("").has_value() ? timed_out("the form takes too long to compile")
                                       : ok_status();
  };
}

// Finds the tool that keeps a constraint from compiling, if a single one does.
std::optional<ApiError> find_tool_error(const CallContext& context,
                                        const std::vector<ToolArguments>& tools) {
  const CompileClock clock;
  for (const ToolArguments& tool : tools) {
    if (auto error = check_client(context)) return error;
    if (auto error = clock.check("tools")) return error;
    const grammar::CompileCheck check = check_of(context, clock);
    const auto compiled = context.codec.compile(tool.source, context.model.eos_token_ids, &check);
    if (auto error = clock.check("tools")) return error;
    if (!compiled.ok()) return tool_error(tool.name, tool.param, compiled.status().message());
  }
  return std::nullopt;
}

std::function<std::optional<bool>(std::string_view)> call_reader(
    std::shared_ptr<const parsers::ToolCallParser> parser) {
  return [parser = std::move(parser)](std::string_view text) -> std::optional<bool> {
    const parsers::Match match = parser->read_marked_header(text).match;
    if (match == parsers::Match::kMore) return std::nullopt;
    return match == parsers::Match::kYes;
  };
}

}  // namespace

std::optional<AnswerForm> read_answer_form(FieldReader& fields) {
  std::optional<AnswerForm> form;
  read_response_format(fields, form);
  for (const FormField& field : kFormFields) read_form_field(field, fields, form);
  read_choice(Body::kForm["guided_choice"], fields, form);
  read_structured_outputs(fields, form);
  return form;
}

std::optional<AnswerForm> add_call_form(std::optional<AnswerForm> form, const ToolFields& tools,
                                        const CallContext& context, FieldReader& fields) {
  const std::shared_ptr<const Json> usable = tools.usable();
  const bool is_forced = tools.choice.forces_call();
  if (usable == nullptr || fields.error()) return form;
  if (!is_forced && !form && !any_strict(*usable)) return form;
  if (is_forced && form) {
    fields.fail(invalid_value(
        "tool_choice", fmt::format("`tool_choice` forces a call, and `{}` another form of answer; "
                                   "give one.",
                                   form->param)));
    return form;
  }
  const parsers::ToolCallFormat format = tools.format(context.formats.tool_calls);
  std::vector<ToolArguments> arguments;
  const std::vector<parsers::CallableTool> callable =
      callable_tools(tools, format, fields, arguments);
  if (fields.error() || callable.empty()) return form;
  if (callable.size() > kMaxCallableTools) {
    fields.fail(compile_timeout("tools"));
    return form;
  }
  std::optional<Json> calls = call_form(
      callable, {.format = format,
                 .beside_text = !is_forced && !form,
                 .one_call = tools.choice.kind == ToolChoice::Kind::kNamed ||
                             !tools.parallel_calls || format == parsers::ToolCallFormat::kJson});
  if (!calls) return form;
  if (!form) {
    AnswerForm call = tag_form(std::move(*calls), is_forced ? "tool_choice" : "tools");
    call.has_reasoning = parsers::has_reasoning(format);
    call.tools = std::move(arguments);
    return call;
  }
  // The answer is either a call or matches the other constraint.
  if (auto alternative = format_of(form->source)) {
    Json either = {{"type", "or"},
                   {"elements", Json::array({std::move(*alternative), std::move(*calls)})}};
    const bool is_schema_given = form->is_schema_given;
    form = tag_form(std::move(either), form->param);
    form->is_schema_given = is_schema_given;
    form->tools = std::move(arguments);
  }
  return form;
}

CompileClock::CompileClock() : began_(seconds_of_thread()) {}

std::optional<ApiError> CompileClock::check(std::string_view param) const {
  if (seconds_of_thread() - began_ <= kMaxSeconds) return std::nullopt;
  return compile_timeout(param);
}

std::optional<ApiError> compile_form(const CallContext& context,
                                     const std::optional<AnswerForm>& form,
                                     ReasoningFirst reasoning,
                                     std::shared_ptr<const Constraint>& constraint) {
  if (!form) return std::nullopt;
  if (auto error = check_client(context)) return error;
  const parsers::ReasoningFormat format = context.formats.reasoning;
  grammar::GrammarSource source = form->source;
  source.allows_whitespace = context.answers.json_whitespace;
  if (form->has_reasoning) reasoning = ReasoningFirst::kNo;
  if (format == parsers::ReasoningFormat::kHarmony && reasoning != ReasoningFirst::kNo) {
    return unsupported_parameter(
        form->param, fmt::format("the model reasons in the format \"{}\", which cannot be held to "
                                 "a form",
                                 parsers::to_string(format)));
  }
  if (reasoning != ReasoningFirst::kNo) {
    const parsers::ReasoningTags tags = parsers::tags_of(format);
    source.free_text_end = tags.close;
    if (reasoning == ReasoningFirst::kPerhaps) source.free_text_begin = tags.open;
  }
  if (context.lacks_form != nullptr && !context.codec.is_compiled(&source)) {
    *context.lacks_form = true;
    return ApiError{};
  }
  const CompileClock clock;
  const grammar::CompileCheck check = check_of(context, clock);
  Result<std::shared_ptr<const Constraint>> compiled =
      context.codec.compile(source, context.model.eos_token_ids, &check);
  if (compiled.ok()) {
    constraint = std::move(compiled).value();
    return std::nullopt;
  }
  const bool is_of_tools = form->param == "tool_choice";
  if (auto error = clock.check(is_of_tools ? "tools" : form->param)) return error;
  if (compiled.status().code() == StatusCode::kInvalidArgument) {
    if (auto error = find_tool_error(context, form->tools)) return error;
  }
  if (compiled.status().code() == StatusCode::kUnimplemented) {
    return unsupported_parameter(form->param, compiled.status().message());
  }
  if (compiled.status().code() != StatusCode::kInvalidArgument) {
    return error_from_status(compiled.status(), context.id);
  }
  ApiError error = invalid_value(
      form->param, fmt::format("`{}`: {}.", form->param, compiled.status().message()));
  if (form->is_schema_given) error.code = "invalid_json_schema";
  return error;
}

ReasoningFirst reasoning_after(const CallContext& context, std::span<const TokenId> prompt) {
  // Enough tokens to contain a tag at the end of a prompt.
  constexpr size_t kPromptEndTokens = 32;
  const auto end = prompt.last(std::min(prompt.size(), kPromptEndTokens));
  const std::string text = context.codec.decode(end, /*skip_special_tokens=*/false);
  if (parsers::starts_in_reasoning(context.formats.reasoning, text)) return ReasoningFirst::kYes;
  return parsers::reasoning_is_closed(context.formats.reasoning, text) ? ReasoningFirst::kNo
                                                                       : ReasoningFirst::kPerhaps;
}

std::optional<int64_t> read_thinking_budget(FieldReader& fields) {
  std::optional<int64_t> budget = fields.integer(Body::kThinking["max_thinking_tokens"]);
  const auto take = [&](const Field& object_name, const Field& budget_field) {
    const Json* const object = fields.object(object_name);
    if (object == nullptr) return;
    FieldReader inner(*object, fields.name_of(object_name) + ".");
    const auto value = inner.integer(budget_field);
    if (inner.error()) fields.fail(*inner.error());
    if (value) budget = std::min(budget.value_or(*value), *value);
  };
  take(Body::kThinking["reasoning"], Body::kReasoning["max_tokens"]);
  take(Body::kThinking["chat_template_kwargs"], Body::kBudget["thinking_budget"]);
  take(Body::kThinking["custom_params"], Body::kBudget["thinking_budget"]);
  if (const Json* const params = fields.object(Body::kThinking["custom_params"])) {
    for (const auto& [name, value] : params->items()) {
      if (name != "thinking_budget") {
        fields.fail(unsupported_parameter(fields.name_of("custom_params") + "." + name,
                                          "of custom_params there is thinking_budget alone"));
      }
    }
  }
  return budget;
}

Result<std::string> read_budget_message(std::string_view message) {
  constexpr auto kNumFormats = static_cast<int>(parsers::ReasoningFormat::kHarmony) + 1;
  std::string_view text = message;
  for (int format = 0; format < kNumFormats; ++format) {
    const std::string_view tag =
        parsers::tags_of(static_cast<parsers::ReasoningFormat>(format)).close;
    if (tag.empty()) continue;
    const size_t begin = text.find(tag);
    if (begin == std::string_view::npos) continue;
    if (text.find_first_not_of(" \t\n\r", begin + tag.size()) != std::string_view::npos) {
      return invalid_argument(
          fmt::format("the message goes on behind `{}`, which ends the reasoning; what follows it "
                      "is the answer, so leave that out",
                      tag));
    }
    text = text.substr(0, begin);
  }
  return std::string(text);
}

std::optional<ApiError> limit_reasoning(const CallContext& context, std::optional<int64_t> budget,
                                        ReasoningFirst reasoning,
                                        const std::shared_ptr<const Json>& tools,
                                        std::shared_ptr<const Constraint>& constraint) {
  const std::optional<int64_t> cap = context.answers.max_thinking_tokens;
  const parsers::ReasoningFormat format = context.formats.reasoning;
  if (budget && format == parsers::ReasoningFormat::kHarmony) {
    return unsupported_parameter("max_thinking_tokens",
                                 fmt::format("the model reasons in the format \"{}\", which no "
                                             "budget ends; use `reasoning_effort`",
                                             parsers::to_string(format)));
  }
  if (cap) budget = std::min(budget.value_or(*cap), *cap);
  const parsers::ReasoningTags tags = parsers::tags_of(format);
  if (!budget || reasoning == ReasoningFirst::kNo || tags.close.empty()) return std::nullopt;
  if (context.lacks_form != nullptr && !context.codec.is_compiled(nullptr)) {
    *context.lacks_form = true;
    return ApiError{};
  }
  const auto mark_of = [&context](std::string_view text) {
    grammar::ReasoningMark mark{.text = std::string(text), .token = std::nullopt};
    const auto ids = context.codec.encode(text, /*add_special_tokens=*/false);
    if (ids.ok() && ids->size() == 1) mark.token = ids->front();
    return mark;
  };
  grammar::ThinkingBudgetOptions options;
  options.budget_tokens = *budget;
  if (reasoning == ReasoningFirst::kPerhaps) options.open = mark_of(tags.open);
  options.close = mark_of(tags.close);
  const parsers::ToolCallFormat calls = context.formats.tool_calls;
  if (const std::shared_ptr<const parsers::ToolCallParser> parser =
          parsers::make_tool_call_parser({.tool_calls = calls, .tools = tools, .id_seed = {}})) {
    for (const std::string_view mark : parser->markers()) options.calls.push_back(mark_of(mark));
    // If the format of calls has special tokens, these mark the beginning of a call.
    if (!parsers::needs_special_tokens(calls)) options.begins_call = call_reader(parser);
  }
  Result<std::vector<TokenId>> ending = context.codec.encode(
      context.answers.thinking_budget_message + options.close.text, /*add_special_tokens=*/false);
  if (!ending.ok()) return error_from_status(ending.status(), context.id);
  options.ending = std::move(ending).value();
  auto limited = context.codec.limit_reasoning(std::move(options), std::move(constraint),
                                               context.model.eos_token_ids);
  if (!limited.ok())
    return unsupported_parameter("max_thinking_tokens", limited.status().message());
  constraint = std::move(limited).value();
  return std::nullopt;
}

}  // namespace heddle::server
