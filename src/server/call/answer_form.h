// SPDX-License-Identifier: Apache-2.0
// The fields that hold an answer to a form, of all APIs:
//
//   response_format     text, json_object, json_schema or structural_tag
//   json_schema, regex, ebnf, structural_tag
//                       texts; a schema or tag may also be an object
//   guided_json, guided_regex, guided_grammar, guided_choice
//                       the same as vLLM names them; a choice is a list of texts
//   structured_outputs  the same once more: json, regex, grammar, choice, structural_tag,
//                       json_object
//   max_thinking_tokens, reasoning.max_tokens, custom_params.thinking_budget
//                       how long it may reason
//   tool_choice         required or named, and tools with `strict`: calls in the form of their
//                       parameters
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

// Bounds what a call may take of the thread that compiles forms: kMaxSeconds of its time, beside
// one compilation more. A form that was compiled before takes none. Of the thread that creates it.
class CompileClock {
 public:
  static constexpr double kMaxSeconds = 2;

  CompileClock();

  // Asked before each compilation. Error: grammar_timeout for `param`.
  [[nodiscard]] std::optional<ApiError> check(std::string_view param) const;

 private:
  double began_;
};

// The arguments of a tool's calls, as a form of its own: it tells which tool cannot be kept to.
struct ToolArguments {
  std::string name;
  std::string param;
  grammar::GrammarSource source;
};

struct AnswerForm {
  grammar::GrammarSource source;
  std::string param;                      // the field it came from
  bool is_schema_given = false;           // that field has a JSON Schema
  bool has_reasoning = false;             // it says where the answer reasons
  std::vector<ToolArguments> tools = {};  // those whose parameters it keeps to
};

// The one form that the fields ask for, if any. Errors stay in `fields`: two forms at once among
// them.
std::optional<AnswerForm> read_answer_form(FieldReader& fields);

// The form of an answer in a chat with tools, on top of what read_answer_form() found: a call that
// `tool_choice` forces; calls to the letter where a tool is `strict`; calls beside another form.
// Of the parameters of a tool that is not `strict`, what cannot be kept to is left out. Errors stay
// in `fields`: a tool cannot be named in every format of calls.
std::optional<AnswerForm> add_call_form(std::optional<AnswerForm> form, const ToolFields& tools,
                                        const CallContext& context, FieldReader& fields);

// Whether the answer's text begins with reasoning in the served model's format.
enum class ReasoningFirst : uint8_t { kNo, kPerhaps, kYes };

// Compiles the form; null without one. It holds after the reasoning, unless it has that. Cost: that
// of grammar::compile(), the first time; where it cannot be compiled, of each tool as long as a
// CompileClock lets it. On a thread that is not to compile anything it says so in
// CallContext::lacks_form, and what it returns means nothing. Error: invalid_json_schema,
// invalid_value, invalid_tool for a `strict` one, unsupported_parameter.
std::optional<ApiError> compile_form(const CallContext& context,
                                     const std::optional<AnswerForm>& form,
                                     ReasoningFirst reasoning,
                                     std::shared_ptr<const Constraint>& constraint);

// Whether an answer to this prompt begins with reasoning, by the prompt's last tokens.
[[nodiscard]] ReasoningFirst reasoning_after(const CallContext& context,
                                             std::span<const TokenId> prompt);

// The tokens that an answer may reason, at most: the least of `max_thinking_tokens`,
// `reasoning.max_tokens`, and `thinking_budget` in `chat_template_kwargs` and `custom_params`.
// Errors stay in `fields`: anything else in `custom_params` among them.
[[nodiscard]] std::optional<int64_t> read_thinking_budget(FieldReader& fields);

// The text that the model shall write before its reasoning is closed: `message` without a closing
// tag at its end, which is written anyway, and white space behind that. Error: kInvalidArgument for
// a tag before its end.
[[nodiscard]] Result<std::string> read_budget_message(std::string_view message);

// Holds an answer to a budget, the request's or the server's, on top of the form in `constraint`,
// which may be null. Calls of `tools`, which may be null, end the reasoning, too. A model
// without reasoning keeps to every budget: clients send one to all models. Error:
// unsupported_parameter for a request's budget where the model reasons without tags.
std::optional<ApiError> limit_reasoning(const CallContext& context, std::optional<int64_t> budget,
                                        ReasoningFirst reasoning,
                                        const std::shared_ptr<const nlohmann::ordered_json>& tools,
                                        std::shared_ptr<const Constraint>& constraint);

}  // namespace heddle::server
