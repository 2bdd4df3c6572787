// SPDX-License-Identifier: Apache-2.0
// ExpressionEvaluator computes the value of an expression: names, operators, subscripts, filters,
// tests and calls. A macro's body consists of statements, which a MacroCaller renders.
//
// Threading: confined to one render.
#pragma once

#include <heddle/status.h>

#include "chat/ast.h"
#include "chat/builtin_functions.h"
#include "chat/callables.h"
#include "chat/limits.h"
#include "chat/render_state.h"
#include "chat/value.h"

namespace heddle::chat {

// Renders macros for the evaluator.
class MacroCaller {
 public:
  virtual ~MacroCaller() = default;

  // Returns the text that the macro writes. Error: kInvalidArgument for arguments that it does not
  // accept, or the error of its body.
  virtual Result<Value> call_macro(const Macro& macro, const Arguments& arguments) = 0;
};

class ExpressionEvaluator {
 public:
  // The arguments must outlive the evaluator.
  ExpressionEvaluator(Scopes& scopes, RenderTrace& trace, Budget& budget,
                      BuiltinFunctions& functions, MacroCaller& macros)
      : scopes_(scopes), trace_(trace), budget_(budget), functions_(functions), macros_(macros) {}

  // Evaluates an expression. Error: kInvalidArgument with the message "name:line:column: text",
  // where the position is that of the innermost expression that failed. If the template called
  // raise_exception(text), the message is that text alone.
  Result<Value> evaluate(const Expression& expression);

  // Evaluates arguments in the order in which they are written. Error: as evaluate(); without a
  // position if the value after * or ** has the wrong type.
  Result<Arguments> evaluate_arguments(const CallArguments& arguments);

  // Calls a macro, a method or a built-in function. Error: `callee` is none of these, or the call
  // fails.
  Result<Value> call(const Value& callee, const Arguments& arguments);

 private:
  Result<Value> evaluate_node(const Literal& literal);
  Result<Value> evaluate_node(const Name& name);
  Result<Value> evaluate_node(const Attribute& attribute);
  Result<Value> evaluate_node(const Item& item);
  Result<Value> evaluate_node(const Slice& slice);
  Result<Value> evaluate_node(const Call& node);
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
  Status append_named(const CallArguments& arguments, Arguments& result);

  Scopes& scopes_;
  RenderTrace& trace_;
  Budget& budget_;
  BuiltinFunctions& functions_;
  MacroCaller& macros_;
};

}  // namespace heddle::chat
