// SPDX-License-Identifier: Apache-2.0
// What exists only while a template is rendered: scopes, namespaces, loops and macros. They can
// refer to each other in circles, so none owns another: all live in one Arena until the render
// ends.
//
// Threading: confined to the render that made them.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "chat/value.h"

namespace heddle::chat {

struct MacroDefinition;

// A map and not a list: a namespace can be made from a request's dict of any size.
using Variables = std::map<std::string, Value, std::less<>>;

struct Scope {
  Scope* parent = nullptr;
  Variables variables;
  bool captured = false;  // a macro keeps it: it stays until the render ends
};

struct Namespace {
  Variables variables;
};

struct LoopState {
  SequencePtr items;
  size_t index = 0;
  int depth = 1;  // 1 for an outermost loop
  std::vector<Value> last_changed;
};

struct Macro {
  const MacroDefinition* definition;
  Scope* scope;  // where it was defined
};

[[nodiscard]] std::string_view macro_name(const Macro& macro);

class Arena {
 public:
  // A fresh scope below `parent`; give it back with leave() when its block ends.
  Scope* enter(Scope* parent);
  void leave(Scope* scope);

  Namespace* make_namespace() { return &namespaces_.emplace_back(); }

  LoopState* make_loop() { return &loops_.emplace_back(); }

  Macro* make_macro(const MacroDefinition* definition, Scope* scope);

 private:
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_scopes_;
  std::deque<Namespace> namespaces_;
  std::deque<LoopState> loops_;
  std::deque<Macro> macros_;
};

}  // namespace heddle::chat
