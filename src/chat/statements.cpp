// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <fmt/format.h>

#include "chat/access.h"
#include "chat/interpreter.h"
#include "chat/python_text.h"

namespace heddle::chat {

namespace {

// Makes a fresh scope current while it lives.
class ScopeGuard {
 public:
  ScopeGuard(Arena& arena, Scope*& current) : arena_(arena), current_(current), before_(current) {
    mine_ = arena_.enter(before_);
    current_ = mine_;
  }

  ~ScopeGuard() {
    current_ = before_;
    arena_.leave(mine_);
  }

  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Arena& arena_;
  Scope*& current_;
  Scope* before_;
  Scope* mine_;
};

// Counts one up while it lives.
class Counted {
 public:
  explicit Counted(int& counter) : counter_(counter) { ++counter_; }

  ~Counted() { --counter_; }

  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  int& counter_;
};

constexpr size_t kLoopBytes = sizeof(LoopState) + sizeof(Scope);  // kept until the render ends

}  // namespace

Result<std::string> Interpreter::run(const Block& block) {
  TextWriter output(&budget_);
  sink_ = &output;
  scope_ = arena_.enter(nullptr);
  HEDDLE_RETURN_IF_ERROR(execute(block));
  return output.take();
}

Status Interpreter::locate(Position at, const Status& status) {
  if (error_is_located_ || status.ok()) return status;
  error_is_located_ = true;
  return status.with_context(fmt::format("{}:{}:{}", template_name_, at.line, at.column));
}

Status Interpreter::enter_level(Position at) {
  if (level_ > budget_.limits().max_recursion_depth) {
    return locate(
        at, invalid_argument(fmt::format("more than {} nested evaluations (max_recursion_depth)",
                                         budget_.limits().max_recursion_depth)));
  }
  return locate(at, budget_.step());
}

Status Interpreter::execute(const Block& block) {
  for (const Statement& statement : block) {
    HEDDLE_RETURN_IF_ERROR(execute(statement));
    if (flow_ != Flow::kNormal) break;
  }
  return {};
}

Status Interpreter::execute(const Statement& statement) {
  const Counted level(level_);
  HEDDLE_RETURN_IF_ERROR(enter_level(statement.at));
  const Position at = statement.at;
  return locate(
      at, std::visit([this, at](const auto& node) { return run_node(node, at); }, statement.node));
}

Status Interpreter::write(std::string_view text) {
  HEDDLE_RETURN_IF_ERROR(sink_->append(text));
  return check_output_size();
}

Status Interpreter::check_output_size() const {
  if (sink_->text().size() <= static_cast<size_t>(budget_.limits().max_output_bytes)) return {};
  return invalid_argument(fmt::format("the template writes more than {} bytes (max_output_bytes)",
                                      budget_.limits().max_output_bytes));
}

Status Interpreter::run_node(const TemplateText& text, Position /*at*/) { return write(text.text); }

Status Interpreter::run_node(const Output& output, Position /*at*/) {
  HEDDLE_ASSIGN_OR_RETURN(const Value value, evaluate(*output.value));
  HEDDLE_RETURN_IF_ERROR(write_str(*sink_, value));
  return check_output_size();
}

Status Interpreter::run_node(const If& statement, Position /*at*/) {
  for (const auto& [condition, body] : statement.branches) {
    HEDDLE_ASSIGN_OR_RETURN(const Value value, evaluate(*condition));
    if (value.truthy()) return execute(body);
  }
  return execute(statement.otherwise);
}

Result<SequencePtr> Interpreter::loop_items(const For& statement) {
  HEDDLE_ASSIGN_OR_RETURN(const Value iterable, evaluate(*statement.iterable));
  HEDDLE_ASSIGN_OR_RETURN(SequencePtr items, iterate(&budget_, iterable));
  if (statement.condition == nullptr) return items;
  std::vector<Value> kept;
  for (const Value& item : items->items) {
    const ScopeGuard guard(arena_, scope_);
    HEDDLE_RETURN_IF_ERROR(assign(statement.target, item));
    HEDDLE_ASSIGN_OR_RETURN(const Value condition, evaluate(*statement.condition));
    if (condition.truthy()) kept.push_back(item);
  }
  HEDDLE_ASSIGN_OR_RETURN(const Value list, make_list(&budget_, std::move(kept)));
  return list.as_sequence();
}

Status Interpreter::run_node(const For& statement, Position /*at*/) {
  HEDDLE_ASSIGN_OR_RETURN(const SequencePtr items, loop_items(statement));
  HEDDLE_RETURN_IF_ERROR(budget_.fits(kLoopBytes));
  budget_.allocate(kLoopBytes);
  bool completed = false;
  {
    const Counted depth(loop_depth_);
    HEDDLE_RETURN_IF_ERROR(run_iterations(statement, items, completed));
  }
  if (completed) return {};
  const ScopeGuard guard(arena_, scope_);
  return execute(statement.otherwise);
}

Status Interpreter::run_iterations(const For& statement, const SequencePtr& items,
                                   bool& completed) {
  if (items->items.empty()) return {};
  LoopState* loop = arena_.make_loop();
  loop->items = items;
  loop->depth = loop_depth_;
  const ScopeGuard loop_guard(arena_, scope_);
  scope_->variables.insert_or_assign("loop", Value::from(loop));
  Status status;
  for (size_t i = 0; i < items->items.size() && status.ok(); ++i) {
    loop->index = i;
    const ScopeGuard iteration_guard(arena_, scope_);
    status = budget_.step();
    if (status.ok()) status = assign(statement.target, items->items[i]);
    if (status.ok()) status = execute(statement.body);
    const Flow left_by = std::exchange(flow_, Flow::kNormal);
    completed = completed || left_by == Flow::kNormal;
    if (left_by == Flow::kBreak) break;
  }
  // The loop object may live on in a namespace; its items need not.
  HEDDLE_ASSIGN_OR_RETURN(const Value nothing, make_list(nullptr, {}));
  loop->items = nothing.as_sequence();
  loop->last_changed.clear();
  return status;
}

Status Interpreter::assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::kName:
      scope_->variables.insert_or_assign(target.name, value);
      return {};
    case Target::Kind::kNamespaceAttribute: {
      HEDDLE_ASSIGN_OR_RETURN(const Value object, look_up(target.name));
      if (!object.is(Kind::kNamespace)) {
        return locate(target.at, invalid_argument(fmt::format(
                                     "'{}' is not a namespace: its attribute '{}' cannot be set",
                                     target.name, target.attribute)));
      }
      object.as_namespace()->variables.insert_or_assign(target.attribute, value);
      return {};
    }
    case Target::Kind::kTuple:
      break;
  }
  Result<SequencePtr> unpacked = iterate(&budget_, value);
  if (!unpacked.ok()) return locate(target.at, unpacked.status());
  const std::vector<Value>& items = unpacked.value()->items;
  if (items.size() != target.parts.size()) {
    return locate(target.at, invalid_argument(fmt::format("cannot unpack {} values into {} names",
                                                          items.size(), target.parts.size())));
  }
  for (size_t i = 0; i < items.size(); ++i)
    HEDDLE_RETURN_IF_ERROR(assign(target.parts[i], items[i]));
  return {};
}

Status Interpreter::run_node(const Set& statement, Position /*at*/) {
  HEDDLE_ASSIGN_OR_RETURN(const Value value, evaluate(*statement.value));
  return assign(statement.target, value);
}

Result<Value> Interpreter::capture(const Block& block) {
  TextWriter text(&budget_);
  const ScopeGuard guard(arena_, scope_);
  TextWriter* const before = std::exchange(sink_, &text);
  const Status status = execute(block);
  sink_ = before;
  HEDDLE_RETURN_IF_ERROR(status);
  return text.finish();
}

Result<Value> Interpreter::apply_filters(const std::vector<FilterCall>& filters, Value value,
                                         Position at) {
  for (const FilterCall& filter : filters) {
    HEDDLE_ASSIGN_OR_RETURN(const Arguments arguments, evaluate_arguments(filter.arguments));
    if (filter.function == nullptr) {
      return locate(at,
                    invalid_argument(fmt::format("there is no filter named '{}'", filter.name)));
    }
    HEDDLE_ASSIGN_OR_RETURN(value, filter.function(&budget_, value, arguments));
  }
  return value;
}

Status Interpreter::run_node(const SetBlock& statement, Position at) {
  HEDDLE_ASSIGN_OR_RETURN(Value text, capture(statement.body));
  HEDDLE_ASSIGN_OR_RETURN(const Value value, apply_filters(statement.filters, std::move(text), at));
  return assign(statement.target, value);
}

Status Interpreter::run_node(const MacroDefinition& macro, Position /*at*/) {
  HEDDLE_ASSIGN_OR_RETURN(const Macro* made, make_macro(macro));
  scope_->variables.insert_or_assign(macro.name, Value::from(made));
  return {};
}

Status Interpreter::run_node(const CallBlock& statement, Position /*at*/) {
  const Expression& expression = *statement.call;
  const Call& call_node = std::get<Call>(expression.node);
  HEDDLE_ASSIGN_OR_RETURN(const Value callee, evaluate(*call_node.callee));
  HEDDLE_ASSIGN_OR_RETURN(Arguments arguments, evaluate_arguments(call_node.arguments));
  HEDDLE_ASSIGN_OR_RETURN(const Macro* caller, make_macro(statement.caller));
  arguments.named.emplace_back("caller", Value::from(caller));
  const Result<Value> result = call(callee, arguments);
  if (!result.ok()) return locate(expression.at, result.status());
  HEDDLE_RETURN_IF_ERROR(write_str(*sink_, result.value()));
  return check_output_size();
}

Status Interpreter::run_node(const FilterBlock& statement, Position at) {
  HEDDLE_ASSIGN_OR_RETURN(Value text, capture(statement.body));
  HEDDLE_ASSIGN_OR_RETURN(const Value value, apply_filters(statement.filters, std::move(text), at));
  HEDDLE_RETURN_IF_ERROR(write_str(*sink_, value));
  return check_output_size();
}

Status Interpreter::run_node(const With& statement, Position /*at*/) {
  std::vector<Value> values;  // all are evaluated outside of the new scope
  for (const auto& [target, expression] : statement.bindings) {
    HEDDLE_ASSIGN_OR_RETURN(Value value, evaluate(*expression));
    values.push_back(std::move(value));
  }
  const ScopeGuard guard(arena_, scope_);
  for (size_t i = 0; i < values.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(assign(statement.bindings[i].first, values[i]));
  }
  return execute(statement.body);
}

Status Interpreter::run_node(const Passage& passage, Position /*at*/) {
  const ScopeGuard guard(arena_, scope_);
  return execute(passage.body);
}

Status Interpreter::run_node(const Break& /*statement*/, Position /*at*/) {
  flow_ = Flow::kBreak;
  return {};
}

Status Interpreter::run_node(const Continue& /*statement*/, Position /*at*/) {
  flow_ = Flow::kContinue;
  return {};
}

}  // namespace heddle::chat
