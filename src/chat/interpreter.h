// SPDX-License-Identifier: Apache-2.0
// Walks a template's syntax tree once and writes its text.
//
// Scoping is Jinja's: `if` shares the scope around it; loops, macros, with, call, filter and set
// blocks have their own, so that a `set` inside a loop ends with the iteration. A name is looked up
// in the scopes, then in the context, then among the built-in functions; otherwise it is undefined.
//
// Threading: one interpreter per render, used by one thread.
#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <string_view>

#include <heddle/status.h>

#include "chat/arguments.h"
#include "chat/ast.h"
#include "chat/limits.h"
#include "chat/runtime_objects.h"
#include "chat/text_writer.h"
#include "chat/value.h"

namespace heddle::chat {

class Interpreter {
 public:
  // `context` must be a dict. All must outlive the interpreter.
  Interpreter(std::string_view template_name, const Value& context,
              const std::function<std::tm()>& local_now, Budget& budget)
      : template_name_(template_name), context_(context), local_now_(local_now), budget_(budget) {}

  // Call it once. Error: kInvalidArgument "name:line:column: message", or raise_exception's own
  // text.
  Result<std::string> run(const Block& block);

  // Whether run() failed because the template called raise_exception.
  [[nodiscard]] bool raised_exception() const { return raised_exception_; }

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

  // ---- statements.cpp ----
  Status execute(const Block& block);
  Status execute(const Statement& statement);
  Status run_node(const TemplateText& text, Position at);
  Status run_node(const Output& output, Position at);
  Status run_node(const If& statement, Position at);
  Status run_node(const For& statement, Position at);
  Status run_node(const Set& statement, Position at);
  Status run_node(const SetBlock& statement, Position at);
  Status run_node(const MacroDefinition& macro, Position at);
  Status run_node(const CallBlock& statement, Position at);
  Status run_node(const FilterBlock& statement, Position at);
  Status run_node(const With& statement, Position at);
  Status run_node(const Passage& passage, Position at);
  Status run_node(const Break& statement, Position at);
  Status run_node(const Continue& statement, Position at);
  // `completed`: an iteration reached its end. As in Jinja a loop whose iterations were all left by
  // break or continue still takes its else branch.
  Status run_iterations(const For& statement, const SequencePtr& items, bool& completed);
  Result<SequencePtr> loop_items(const For& statement);
  Status assign(const Target& target, const Value& value);
  Status write(std::string_view text);
  Status check_output_size() const;
  // The text that `block` writes, in a scope of its own.
  Result<Value> capture(const Block& block);
  Result<Value> apply_filters(const std::vector<FilterCall>& filters, Value value, Position at);

  // ---- expressions.cpp ----
  Result<Value> evaluate(const Expression& expression);
  Result<Value> evaluate_node(const Literal& literal);
  Result<Value> evaluate_node(const Name& name);
  Result<Value> evaluate_node(const Attribute& attribute);
  Result<Value> evaluate_node(const Item& item);
  Result<Value> evaluate_node(const Slice& slice);
  Result<Value> evaluate_node(const Call& call);
  Result<Value> evaluate_node(const FilterCall& filter);
  Result<Value> evaluate_node(const TestCall& test);
  Result<Value> evaluate_node(const Unary& unary);
  Result<Value> evaluate_node(const Binary& binary);
  Result<Value> evaluate_node(const Logical& logical);
  Result<Value> evaluate_node(const ComparisonChain& chain);
  Result<Value> evaluate_node(const Concatenation& concatenation);
  Result<Value> evaluate_node(const Conditional& conditional);
  Result<Value> evaluate_node(const SequenceDisplay& display);
  Result<Value> evaluate_node(const DictDisplay& display);
  Result<Value> look_up(std::string_view name) const;

  // ---- calls.cpp ----
  Result<Arguments> evaluate_arguments(const CallArguments& arguments);
  Result<Value> call(const Value& callee, const Arguments& arguments);
  Result<Value> call_macro(const Macro& macro, const Arguments& arguments);
  Status bind_parameters(const MacroDefinition& definition, const Arguments& arguments);
  Result<Value> call_builtin(Builtin function, const Arguments& arguments);
  Result<Value> make_range(const Arguments& arguments);
  Result<Value> make_dict_from(const Arguments& arguments);
  Result<Value> make_namespace(const Arguments& arguments);
  Status raise_exception(const Arguments& arguments);
  Result<Value> strftime_now(const Arguments& arguments);
  Result<const Macro*> make_macro(const MacroDefinition& definition);

  // Puts the position before an error's message, once: at the innermost node that failed.
  Status locate(Position at, const Status& status);
  // Opens one level of evaluation. Error: too many are open.
  Status enter_level(Position at);

  std::string_view template_name_;
  const Value& context_;
  const std::function<std::tm()>& local_now_;
  Budget& budget_;
  Arena arena_;
  Scope* scope_ = nullptr;
  TextWriter* sink_ = nullptr;
  Flow flow_ = Flow::kNormal;
  int level_ = 0;
  int loop_depth_ = 0;
  bool error_is_located_ = false;
  bool raised_exception_ = false;
};

}  // namespace heddle::chat
