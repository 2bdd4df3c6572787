// SPDX-License-Identifier: Apache-2.0
// StatementRenderer executes a template's statements once and writes the template's text: output,
// conditions, loops, assignments, macros and blocks that capture text.
//
// Threading: one renderer per render, used by one thread.
#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "chat/ast.h"
#include "chat/builtin_functions.h"
#include "chat/callables.h"
#include "chat/expression_evaluator.h"
#include "chat/limits.h"
#include "chat/render_state.h"
#include "chat/value.h"

namespace heddle::chat {

class StatementRenderer final : private MacroCaller {
 public:
  // `context` must be a dict. The arguments must outlive the renderer.
  StatementRenderer(std::string_view template_name, const Value& context,
                    const std::function<std::tm()>& local_now, Budget& budget)
      : budget_(budget),
        scopes_(context, budget),
        trace_(template_name, budget),
        functions_(scopes_, trace_, budget, local_now),
        expressions_(scopes_, trace_, budget, functions_, *this) {}

  // Renders the template; call it once. Error: kInvalidArgument "name:line:column: message", or
  // raise_exception's own text.
  Result<std::string> run(const Block& block);

  // Whether run() failed because the template called raise_exception.
  [[nodiscard]] bool raised_exception() const { return functions_.raised_exception(); }

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

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
  // Sets `completed` if an iteration reached its end. As in Jinja, a loop whose iterations all
  // ended by break or continue still executes its else branch.
  Status run_iterations(const For& statement, const SequencePtr& items, bool& completed);
  Result<SequencePtr> loop_items(const For& statement);
  Status assign(const Target& target, const Value& value);
  Status write(const Value& value);
  Status check_output_size() const;
  // Renders `block` in a new scope and returns its text.
  Result<Value> capture(const Block& block);
  Result<Value> apply_filters(const std::vector<FilterCall>& filters, Value value, Position at);

  Result<Value> call_macro(const Macro& macro, const Arguments& arguments) override;
  // Assigns the arguments of a macro call to its parameters, in the current scope.
  Status bind_parameters(const MacroDefinition& definition, const Arguments& arguments);
  Status bind_named(const MacroDefinition& definition, const Arguments& arguments);

  Budget& budget_;
  Scopes scopes_;
  RenderTrace trace_;
  BuiltinFunctions functions_;
  ExpressionEvaluator expressions_;
  TextWriter* sink_ = nullptr;  // where output is written: the template's text or a captured block
  Flow flow_ = Flow::kNormal;
  int loop_depth_ = 0;
};

}  // namespace heddle::chat
