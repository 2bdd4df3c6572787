// SPDX-License-Identifier: Apache-2.0
// The fields, in all APIs, that set a constraint on the answer (a schema, regex, grammar or tool
// call), and its budget of reasoning tokens:
//
//   response_format     text, json_object, json_schema or structural_tag
//   json_schema, regex, ebnf, structural_tag
//                       texts; a schema or tag may also be an object
//   guided_json, guided_regex, guided_grammar, guided_choice
//                       the same by vLLM's names; a choice is a list of texts
//   structured_outputs  the same in one object: json, regex, grammar, choice, structural_tag,
//                       json_object
//   max_thinking_tokens, reasoning.max_tokens, custom_params.thinking_budget
//                       most tokens of reasoning
//   tool_choice         required or named, and tools with `strict`: calls must match the schema of
//                       their parameters
//
// Threading: free functions without state.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/constraint.h>
#include <heddle/status.h>

#include "grammar/grammar.h"
#include "server/call/api_adapter.h"
#include "server/call/field_reader.h"
#include "server/call/tool_fields.h"

namespace heddle::server {

// Limits the time that a call may use on the thread that compiles constraints: kMaxSeconds and one
// further compilation. Constraints that are compiled already use none. Confined to the thread that
// creates it.
class CompileClock {
 public:
  static constexpr double kMaxSeconds = 2;

  CompileClock();

  // Called before each compilation. Error: grammar_timeout for `param`.
  [[nodiscard]] std::optional<ApiError> check(std::string_view param) const;

 private:
  double began_;
};

// The constraint on the arguments of one tool, compiled on its own to find the tool whose schema
// cannot be enforced.
struct ToolArguments {
  std::string name;
  std::string param;
  grammar::GrammarSource source;
};

struct AnswerForm {
  grammar::GrammarSource source;
  std::string param;             // the field that set the constraint
  bool is_schema_given = false;  // that field contains a JSON Schema
  bool has_reasoning = false;  // the constraint itself says where the answer may contain reasoning
  std::vector<ToolArguments> tools = {};  // tools whose parameters the constraint enforces
};

// The constraint that the fields set; none if they set none. Errors are left in `fields`, for
// example for two constraints at once.
std::optional<AnswerForm> read_answer_form(FieldReader& fields);

// Adds the calls of a chat with tools to the constraint that read_answer_form() found: a call that
// `tool_choice` forces; exact calls if a tool is `strict`; calls as an alternative to another
// constraint. For a tool that is not `strict`, those parts of its parameters that cannot be
// enforced are dropped. Errors are left in `fields`: some formats of calls cannot name every tool.
std::optional<AnswerForm> add_call_form(std::optional<AnswerForm> form, const ToolFields& tools,
                                        const CallContext& context, FieldReader& fields);

// Whether the answer's text begins with reasoning, in the served model's format.
enum class ReasoningFirst : uint8_t { kNo, kPerhaps, kYes };

// Compiles the constraint; null without one. It applies after the reasoning, unless it covers
// reasoning itself. Cost: grammar::compile(), the first time; if that fails, also for each tool, as
// long as a CompileClock allows. On a thread that must not compile, it sets
// CallContext::lacks_form, and its result is meaningless. Error: invalid_json_schema,
// invalid_value, invalid_tool for a `strict` one, unsupported_parameter.
std::optional<ApiError> compile_form(const CallContext& context,
                                     const std::optional<AnswerForm>& form,
                                     ReasoningFirst reasoning,
                                     std::shared_ptr<const Constraint>& constraint);

// Whether an answer to this prompt begins with reasoning, judged by the prompt's last tokens.
[[nodiscard]] ReasoningFirst reasoning_after(const CallContext& context,
                                             std::span<const TokenId> prompt);

// The limit of reasoning tokens: the smallest of `max_thinking_tokens`, `reasoning.max_tokens`, and
// `thinking_budget` in `chat_template_kwargs` and `custom_params`. Errors are left in `fields`, for
// example for other entries of `custom_params`.
[[nodiscard]] std::optional<int64_t> read_thinking_budget(FieldReader& fields);

// The text that the model is forced to write before its reasoning is closed: `message` without a
// closing tag at its end, which is written anyway, and without white space after that tag. Error:
// kInvalidArgument for a closing tag before the end.
[[nodiscard]] Result<std::string> read_budget_message(std::string_view message);

// Limits the reasoning to a budget, the request's or else the server's, in addition to the
// constraint in `constraint`, which may be null. Calls of `tools`, which may be null, also end the
// reasoning. For a model without reasoning every budget is satisfied, because clients send one to
// all models. Error: unsupported_parameter for a request's budget if the model reasons without
// tags.
std::optional<ApiError> limit_reasoning(const CallContext& context, std::optional<int64_t> budget,
                                        ReasoningFirst reasoning,
                                        const std::shared_ptr<const nlohmann::ordered_json>& tools,
                                        std::shared_ptr<const Constraint>& constraint);

}  // namespace heddle::server
