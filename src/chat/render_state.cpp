// SPDX-License-Identifier: Apache-2.0
#include "chat/render_state.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "chat/python_text.h"

namespace heddle::chat {

namespace {

constexpr size_t kMacroBytes = sizeof(Macro) + kVariableBytes;

constexpr std::array<std::pair<std::string_view, Builtin>, 5> kBuiltins = {{
    {"range", Builtin::kRange},
    {"dict", Builtin::kDict},
    {"namespace", Builtin::kNamespace},
    {"raise_exception", Builtin::kRaiseException},
    {"strftime_now", Builtin::kStrftimeNow},
}};

}  // namespace

std::string_view macro_name(const Macro& macro) { return macro.definition->name; }

Scope* Arena::enter(Scope* parent) {
  if (free_scopes_.empty()) free_scopes_.push_back(&scopes_.emplace_back());
  Scope* scope = free_scopes_.back();
  free_scopes_.pop_back();
  scope->parent = parent;
  return scope;
}

void Arena::leave(Scope* scope) {
  if (scope->captured) return;
  scope->variables.clear();
  free_scopes_.push_back(scope);
}

Macro* Arena::make_macro(const MacroDefinition* definition, Scope* scope) {
  for (Scope* outer = scope; outer != nullptr && !outer->captured; outer = outer->parent) {
    outer->captured = true;
  }
  return &macros_.emplace_back(Macro{.definition = definition, .scope = scope});
}

Value Scopes::look_up(std::string_view name) const {
  for (const Scope* scope = current_; scope != nullptr; scope = scope->parent) {
    const auto found = scope->variables.find(name);
    if (found != scope->variables.end()) return found->second;
  }
  if (const Value* found = context_.as_dict().find(name)) return *found;
  for (const auto& [known, function] : kBuiltins) {
    if (known == name) return Value::from(function);
  }
  return Value::undefined(fmt::format("{} is undefined", repr_of(name)));
}

Result<const Macro*> Scopes::make_macro(const MacroDefinition& definition) {
  size_t bytes = kMacroBytes;
  for (const Scope* scope = current_; scope != nullptr && !scope->captured; scope = scope->parent) {
    bytes += sizeof(Scope) + scope->variables.size() * kVariableBytes;
  }
  HEDDLE_RETURN_IF_ERROR(budget_.fits(bytes));
  budget_.allocate(bytes);
  return static_cast<const Macro*>(arena_.make_macro(&definition, current_));
}

Status RenderTrace::count_step(Position at) {
  if (level_ > budget_.limits().max_recursion_depth) {
    return locate(
        at, invalid_argument(fmt::format("more than {} nested evaluations (max_recursion_depth)",
                                         budget_.limits().max_recursion_depth)));
  }
  return locate(at, budget_.step());
}

Status RenderTrace::locate(Position at, const Status& status) {
  if (is_located_ || status.ok()) return status;
  is_located_ = true;
  return status.with_context(fmt::format("{}:{}:{}", template_name_, at.line, at.column));
}

}  // namespace heddle::chat
