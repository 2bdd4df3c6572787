// SPDX-License-Identifier: Apache-2.0
#include "chat/statement_renderer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "chat/access.h"
#include "chat/python_text.h"
#include "chat/value.h"

namespace heddle::chat {

namespace {

// Increments a counter as long as this object exists.
class Counted {
 public:
  explicit Counted(int& counter) : counter_(counter) { ++counter_; }

  ~Counted() { --counter_; }

  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  int& counter_;
};

// bytes per loop, which are kept until the render ends
constexpr size_t kLoopBytes = sizeof(LoopState) + sizeof(Scope);

}  // namespace

Result<std::string> StatementRenderer::run(const Block& block) {
  TextWriter output(&budget_);
  sink_ = &output;
  HEDDLE_RETURN_IF_ERROR(execute(block));
  return output.take();
}

Status StatementRenderer::execute(const Block& block) {
  for (const Statement& statement : block) {
    HEDDLE_RETURN_IF_ERROR(execute(statement));
    if (flow_ != Flow::kNormal) break;
  }
  return {};
}

Status StatementRenderer::execute(const Statement& statement) {
  const RenderTrace::Level level(trace_);
  HEDDLE_RETURN_IF_ERROR(trace_.count_step(statement.at));
  const Position at = statement.at;
  return trace_.locate(
      at, std::visit([this, at](const auto& node) { return run_node(node, at); }, statement.node));
}

Status StatementRenderer::write(const Value& value) {
  HEDDLE_RETURN_IF_ERROR(write_str(*sink_, value));
  return check_output_size();
}

Status StatementRenderer::check_output_size() const {
  if (sink_->text().size() <= static_cast<size_t>(budget_.limits().max_output_bytes)) return {};
  return budget_.out_of_output();
}

Status StatementRenderer::run_node(const TemplateText& text, Position /*at*/) {
  HEDDLE_RETURN_IF_ERROR(sink_->append(text.text));
  return check_output_size();
}

Status StatementRenderer::run_node(const Output& output, Position /*at*/) {
  HEDDLE_ASSIGN_OR_RETURN(const Value value, expressions_.evaluate(*output.value));
  return write(value);
}

Status StatementRenderer::run_node(const If& statement, Position /*at*/) {
  for (const auto& [condition, body] : statement.branches) {
    HEDDLE_ASSIGN_OR_RETURN(const Value value, expressions_.evaluate(*condition));
    if (value.truthy()) return execute(body);
  }
  return execute(statement.otherwise);
}

Result<SequencePtr> StatementRenderer::loop_items(const For& statement) {
  HEDDLE_ASSIGN_OR_RETURN(const Value iterable, expressions_.evaluate(*statement.iterable));
  HEDDLE_ASSIGN_OR_RETURN(SequencePtr items, iterate(&budget_, iterable));
  if (statement.condition == nullptr) return items;
  std::vector<Value> kept;
  for (const Value& item : items->items) {
    const Scopes::Inner guard(scopes_);
    HEDDLE_RETURN_IF_ERROR(assign(statement.target, item));
    HEDDLE_ASSIGN_OR_RETURN(const Value condition, expressions_.evaluate(*statement.condition));
    if (condition.truthy()) kept.push_back(item);
  }
  HEDDLE_ASSIGN_OR_RETURN(const Value list, make_list(&budget_, std::move(kept)));
  return list.as_sequence();
}

Status StatementRenderer::run_node(const For& statement, Position /*at*/) {
  HEDDLE_ASSIGN_OR_RETURN(const SequencePtr items, loop_items(statement));
  HEDDLE_RETURN_IF_ERROR(budget_.fits(kLoopBytes));
  budget_.allocate(kLoopBytes);
  bool completed = false;
  {
    const Counted depth(loop_depth_);
    HEDDLE_RETURN_IF_ERROR(run_iterations(statement, items, completed));
  }
  if (completed) return {};
  const Scopes::Inner guard(scopes_);
  return execute(statement.otherwise);
}

Status StatementRenderer::run_iterations(const For& statement, const SequencePtr& items,
                                         bool& completed) {
  if (items->items.empty()) return {};
  LoopState* loop = scopes_.make_loop();
  loop->items = items;
  loop->depth = loop_depth_;
  const Scopes::Inner loop_guard(scopes_);
  scopes_.set("loop", Value::from(loop));
  Status status;
  for (size_t i = 0; i < items->items.size() && status.ok(); ++i) {
    loop->index = i;
    const Scopes::Inner iteration_guard(scopes_);
    status = budget_.step();
    if (status.ok()) status = assign(statement.target, items->items[i]);
    if (status.ok()) status = execute(statement.body);
    const Flow left_by = std::exchange(flow_, Flow::kNormal);
    completed = completed || left_by == Flow::kNormal;
    if (left_by == Flow::kBreak) break;
  }
  // A namespace may keep the loop object; its items are released.
  HEDDLE_ASSIGN_OR_RETURN(const Value nothing, make_list(nullptr, {}));
  loop->items = nothing.as_sequence();
  loop->last_changed.clear();
  return status;
}

Status StatementRenderer::assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::kName:
      scopes_.set(target.name, value);
      return {};
    case Target::Kind::kNamespaceAttribute: {
      const Value object = scopes_.look_up(target.name);
      if (!object.is(Kind::kNamespace)) {
        return trace_.locate(
            target.at, invalid_argument(
                           fmt::format("'{}' is not a namespace: its attribute '{}' cannot be set",
                                       target.name, target.attribute)));
      }
      object.as_namespace()->variables.insert_or_assign(target.attribute, value);
      return {};
    }
    case Target::Kind::kTuple:
      break;
  }
  Result<SequencePtr> unpacked = iterate(&budget_, value);
  if (!unpacked.ok()) return trace_.locate(target.at, unpacked.status());
  const std::vector<Value>& items = unpacked.value()->items;
  if (items.size() != target.parts.size()) {
    return trace_.locate(target.at,
                         invalid_argument(fmt::format("cannot unpack {} values into {} names",
                                                      items.size(), target.parts.size())));
  }
  for (size_t i = 0; i < items.size(); ++i)
    HEDDLE_RETURN_IF_ERROR(assign(target.parts[i], items[i]));
  return {};
}

Status StatementRenderer::run_node(const Set& statement, Position /*at*/) {
  HEDDLE_ASSIGN_OR_RETURN(const Value value, expressions_.evaluate(*statement.value));
  return assign(statement.target, value);
}

Result<Value> StatementRenderer::capture(const Block& block) {
  TextWriter text(&budget_);
  const Scopes::Inner guard(scopes_);
  TextWriter* const before = std::exchange(sink_, &text);
  const Status status = execute(block);
  sink_ = before;
  HEDDLE_RETURN_IF_ERROR(status);
  return text.finish();
}

Result<Value> StatementRenderer::apply_filters(const std::vector<FilterCall>& filters, Value value,
                                               Position at) {
  for (const FilterCall& filter : filters) {
    HEDDLE_ASSIGN_OR_RETURN(const Arguments arguments,
                            expressions_.evaluate_arguments(filter.arguments));
    if (filter.function == nullptr) {
      return trace_.locate(
          at, invalid_argument(fmt::format("there is no filter named '{}'", filter.name)));
    }
    HEDDLE_ASSIGN_OR_RETURN(value, filter.function(&budget_, value, arguments));
  }
  return value;
}

Status StatementRenderer::run_node(const SetBlock& statement, Position at) {
  HEDDLE_ASSIGN_OR_RETURN(Value text, capture(statement.body));
  HEDDLE_ASSIGN_OR_RETURN(const Value value, apply_filters(statement.filters, std::move(text), at));
  return assign(statement.target, value);
}

Status StatementRenderer::run_node(const MacroDefinition& macro, Position /*at*/) {
  HEDDLE_ASSIGN_OR_RETURN(const Macro* made, scopes_.make_macro(macro));
  scopes_.set(macro.name, Value::from(made));
  return {};
}

Status StatementRenderer::run_node(const CallBlock& statement, Position /*at*/) {
  const Expression& expression = *statement.call;
  const Call& call_node = std::get<Call>(expression.node);
  HEDDLE_ASSIGN_OR_RETURN(const Value callee, expressions_.evaluate(*call_node.callee));
  HEDDLE_ASSIGN_OR_RETURN(Arguments arguments,
                          expressions_.evaluate_arguments(call_node.arguments));
  HEDDLE_ASSIGN_OR_RETURN(const Macro* caller, scopes_.make_macro(statement.caller));
  arguments.named.emplace_back("caller", Value::from(caller));
  const Result<Value> result = expressions_.call(callee, arguments);
  if (!result.ok()) return trace_.locate(expression.at, result.status());
  return write(result.value());
}

Status StatementRenderer::run_node(const FilterBlock& statement, Position at) {
  HEDDLE_ASSIGN_OR_RETURN(Value text, capture(statement.body));
  HEDDLE_ASSIGN_OR_RETURN(const Value value, apply_filters(statement.filters, std::move(text), at));
  return write(value);
}

Status StatementRenderer::run_node(const With& statement, Position /*at*/) {
  std::vector<Value> values;  // all values are evaluated outside of the new scope
  for (const auto& [target, expression] : statement.bindings) {
    HEDDLE_ASSIGN_OR_RETURN(Value value, expressions_.evaluate(*expression));
    values.push_back(std::move(value));
  }
  const Scopes::Inner guard(scopes_);
  for (size_t i = 0; i < values.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(assign(statement.bindings[i].first, values[i]));
  }
  return execute(statement.body);
}

Status StatementRenderer::run_node(const Passage& passage, Position /*at*/) {
  const Scopes::Inner guard(scopes_);
  return execute(passage.body);
}

Status StatementRenderer::run_node(const Break& /*statement*/, Position /*at*/) {
  flow_ = Flow::kBreak;
  return {};
}

Status StatementRenderer::run_node(const Continue& /*statement*/, Position /*at*/) {
  flow_ = Flow::kContinue;
  return {};
}

Result<Value> StatementRenderer::call_macro(const Macro& macro, const Arguments& arguments) {
  const int caller_loop_depth = std::exchange(loop_depth_, 0);
  const Scopes::Inner scope(scopes_, macro.scope);
  Status bound = bind_parameters(*macro.definition, arguments);
  Result<Value> text =
      bound.ok() ? capture(macro.definition->body) : Result<Value>(std::move(bound));
  loop_depth_ = caller_loop_depth;
  return text;
}

Status StatementRenderer::bind_parameters(const MacroDefinition& definition,
                                          const Arguments& arguments) {
  Variables& variables = scopes_.variables();
  const std::vector<Parameter>& parameters = definition.parameters;
  const size_t num_positional = std::min(arguments.positional.size(), parameters.size());
  for (size_t i = 0; i < num_positional; ++i) {
    variables.insert_or_assign(parameters[i].name, arguments.positional[i]);
  }
  if (arguments.positional.size() > parameters.size() && !definition.uses_varargs) {
    return invalid_argument(fmt::format("macro '{}' takes not more than {} argument(s), {} given",
                                        definition.name, parameters.size(),
                                        arguments.positional.size()));
  }
  if (definition.uses_varargs) {
    const auto first = arguments.positional.begin() + static_cast<int64_t>(num_positional);
    HEDDLE_ASSIGN_OR_RETURN(Value rest,
                            make_sequence(&budget_, Flavor::kTuple,
                                          std::vector<Value>(first, arguments.positional.end())));
    variables.insert_or_assign("varargs", std::move(rest));
  }
  if (definition.uses_caller) {
    variables.insert_or_assign("caller", Value::undefined("No caller defined"));
  }
  HEDDLE_RETURN_IF_ERROR(bind_named(definition, arguments));
  for (const Parameter& parameter : parameters) {
    if (variables.contains(parameter.name)) continue;
    Value value = Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name));
    if (parameter.default_value != nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(value, expressions_.evaluate(*parameter.default_value));
    }
    variables.insert_or_assign(parameter.name, std::move(value));
  }
  return {};
}

Status StatementRenderer::bind_named(const MacroDefinition& definition,
                                     const Arguments& arguments) {
  Variables& variables = scopes_.variables();
  const std::vector<Parameter>& parameters = definition.parameters;
  // Counts the comparisons of every name with every parameter.
  HEDDLE_RETURN_IF_ERROR(
      budget_.step(static_cast<int64_t>(arguments.named.size() * (parameters.size() / 8 + 1))));
  std::vector<Dict::Entry> surplus;
  for (const auto& [name, value] : arguments.named) {
    const auto is_named = [&name](const Parameter& parameter) { return parameter.name == name; };
    const auto found = std::find_if(parameters.begin(), parameters.end(), is_named);
    if (found == parameters.end()) {
      if (name == "caller" && definition.uses_caller) {
        variables.insert_or_assign(name, value);
      } else if (definition.uses_kwargs) {
        surplus.emplace_back(Value::string(name), value);
      } else {
        return invalid_argument(
            fmt::format("macro '{}' takes no keyword argument '{}'", definition.name, name));
      }
    } else if (!variables.emplace(name, value).second) {
      return invalid_argument(
          fmt::format("macro '{}' got multiple values for argument '{}'", definition.name, name));
    }
  }
  if (definition.uses_kwargs) {
    HEDDLE_ASSIGN_OR_RETURN(Value rest, make_dict(&budget_, std::move(surplus)));
    variables.insert_or_assign("kwargs", std::move(rest));
  }
  return {};
}

}  // namespace heddle::chat
