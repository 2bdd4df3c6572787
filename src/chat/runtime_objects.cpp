// SPDX-License-Identifier: Apache-2.0
#include "chat/runtime_objects.h"

#include "chat/ast.h"

namespace heddle::chat {

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

}  // namespace heddle::chat
