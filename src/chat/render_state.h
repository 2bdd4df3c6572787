// SPDX-License-Identifier: Apache-2.0
// The state of one render: the names in scope, the objects that exist only while a template is
// rendered (namespaces, loops, macros), and the nesting of the evaluation.
//
// Scopes, namespaces, loops and macros can refer to each other in cycles, so none of them owns
// another: one Arena owns all of them until the render ends.
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

#include <heddle/status.h>

#include "chat/ast.h"
#include "chat/limits.h"
#include "chat/value.h"

namespace heddle::chat {

// A map, not a list, because a namespace can be made from a request's dict of any size.
using Variables = std::map<std::string, Value, std::less<>>;

inline constexpr size_t kVariableBytes = 160;  // approximate bytes of a name and its value in the
                                               // map

struct Scope {
  Scope* parent = nullptr;
  Variables variables;
  bool captured = false;  // a macro refers to the scope, so it is kept until the render ends
};

struct Namespace {
  Variables variables;
};

struct LoopState {
  SequencePtr items;
  size_t index = 0;
  int depth = 1;  // 1 for an outermost loop, as Jinja's loop.depth
  std::vector<Value> last_changed;
};

struct Macro {
  const MacroDefinition* definition;
  Scope* scope;  // the scope in which the macro was defined
};

[[nodiscard]] std::string_view macro_name(const Macro& macro);

class Arena {
 public:
  // Makes a new scope below `parent`; call leave() with it when its block ends.
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

// Scopes resolves names. A name is looked up in the scopes from the innermost outwards, then in the
// context, then among the built-in functions; otherwise it is undefined.
//
// Scoping is Jinja's. `if` uses the scope around it. Loops, macros, with, call, filter and set
// blocks have their own scopes, so the effect of a `set` inside a loop ends with the iteration.
class Scopes {
 public:
  // `context` must be a dict. `context` and `budget` must outlive the scopes.
  Scopes(const Value& context, Budget& budget)
      : context_(context), budget_(budget), current_(arena_.enter(nullptr)) {}

  Scopes(const Scopes&) = delete;
  Scopes& operator=(const Scopes&) = delete;

  // Makes a new scope the current one as long as this object exists: below the current scope, or
  // below the scope in which a macro was defined.
  class Inner {
   public:
    explicit Inner(Scopes& scopes) : Inner(scopes, scopes.current_) {}

    Inner(Scopes& scopes, Scope* parent) : scopes_(scopes), before_(scopes.current_) {
      scopes_.current_ = mine_ = scopes_.arena_.enter(parent);
    }

    ~Inner() {
      scopes_.current_ = before_;
      scopes_.arena_.leave(mine_);
    }

    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;

   private:
    Scopes& scopes_;
    Scope* before_;
    Scope* mine_;
  };

  [[nodiscard]] Value look_up(std::string_view name) const;

  void set(const std::string& name, Value value) {
    current_->variables.insert_or_assign(name, std::move(value));
  }

  // Variables of the current scope only.
  [[nodiscard]] Variables& variables() { return current_->variables; }

  // Makes a macro. The scopes around it are kept, with their variables, until the render ends.
  // Error: kInvalidArgument if the budget has no memory for that.
  Result<const Macro*> make_macro(const MacroDefinition& definition);

  // Makes a loop's state; the caller must have counted its memory in the budget, as for the next
  // function.
  LoopState* make_loop() { return arena_.make_loop(); }

  Namespace* make_namespace() { return arena_.make_namespace(); }

 private:
  const Value& context_;
  Budget& budget_;
  Arena arena_;
  Scope* current_;
};

// RenderTrace limits the nesting of an evaluation and adds a position to an error, once: that of
// the innermost node that failed.
class RenderTrace {
 public:
  // The arguments must outlive the trace.
  RenderTrace(std::string_view template_name, Budget& budget)
      : template_name_(template_name), budget_(budget) {}

  RenderTrace(const RenderTrace&) = delete;
  RenderTrace& operator=(const RenderTrace&) = delete;

  // One level of evaluation, which ends when this object is destroyed.
  class Level {
   public:
    explicit Level(RenderTrace& trace) : trace_(trace) { ++trace_.level_; }

    ~Level() { --trace_.level_; }

    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    RenderTrace& trace_;
  };

  // Counts a step of the level just opened. Error: kInvalidArgument if too many levels are open or
  // the budget is exceeded.
  Status count_step(Position at);

  // Returns `status` as "name:line:column: message", unless it already has a position.
  Status locate(Position at, const Status& status);

  // The next error keeps its message and gets no position.
  void keep_message() { is_located_ = true; }

 private:
  std::string_view template_name_;
  Budget& budget_;
  int level_ = 0;
  bool is_located_ = false;
};

}  // namespace heddle::chat
