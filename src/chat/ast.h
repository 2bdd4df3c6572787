// SPDX-License-Identifier: Apache-2.0
// The syntax tree of a template: the parser's expressions and statements. They never change, so all
// renders share them. Nesting is bounded by RenderLimits::max_nesting_depth, so that every
// recursive walk over the tree, destruction included, fits on the stack.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "chat/callables.h"
#include "chat/numbers.h"
#include "chat/operators.h"
#include "chat/value.h"

namespace heddle::chat {

struct Position {
  int line = 1;
  int column = 1;  // column of the line, counted in code points
};

// ---- Expressions ----

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Literal {
  Value value;
};

struct Name {
  std::string name;
};

struct Attribute {  // Attribute access in a template: object.name
  ExpressionPtr object;
  std::string name;
};

struct Item {  // Item access in a template: object[key]
  ExpressionPtr object;
  ExpressionPtr key;
};

struct Slice {  // object[begin:end:step]; absent parts are null
  ExpressionPtr object;
  ExpressionPtr begin;
  ExpressionPtr end;
  ExpressionPtr step;
};

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // the expression after *; null if absent
  ExpressionPtr more_named;       // the expression after **; null if absent
};

struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};

struct FilterCall {     // A filter applied to a value: input|name(arguments)
  ExpressionPtr input;  // null for the first filter of a filter block, whose input is the block's
                        // text
  std::string name;
  FilterFunction function;  // null for an unknown name, an error only when the filter is evaluated
  CallArguments arguments;
};

struct TestCall {  // A test of a value: subject is [not] name(arguments)
  ExpressionPtr subject;
  std::string name;
  PredicateFunction function;  // null for an unknown name, an error only when the test is evaluated
  CallArguments arguments;
  bool negated = false;
};

enum class UnaryOperator : uint8_t { kNot, kNegate, kPlus };

struct Unary {
  UnaryOperator operation;
  ExpressionPtr operand;
};

struct Binary {
  Arithmetic operation;
  ExpressionPtr left;
  ExpressionPtr right;
};

struct Logical {
  bool is_and;
  ExpressionPtr left;
  ExpressionPtr right;
};

struct ComparisonChain {  // first < second <= third
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};

struct Concatenation {  // a ~ b ~ c
  std::vector<ExpressionPtr> parts;
};

struct Conditional {  // then if condition else otherwise
  ExpressionPtr condition;
  ExpressionPtr then;
  ExpressionPtr otherwise;  // null if absent; the value is then undefined
};

struct SequenceDisplay {  // [a, b] or (a, b)
  Flavor flavor;
  std::vector<ExpressionPtr> items;
};

struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};

struct Expression {
  Position at;
  int depth = 1;  // depth of the tree below and including this node
  std::variant<Literal, Name, Attribute, Item, Slice, Call, FilterCall, TestCall, Unary, Binary,
               Logical, ComparisonChain, Concatenation, Conditional, SequenceDisplay, DictDisplay>
      node;
};

// ---- Statements ----

struct Statement;
using Block = std::vector<Statement>;

struct Target {  // what `set`, `for` or `with` assigns to
  enum class Kind : uint8_t { kName, kNamespaceAttribute, kTuple };
  Kind kind = Kind::kName;
  Position at;
  std::string name = {};
  std::string attribute = {};      // the attribute to set if the target is a namespace; otherwise
                                   // empty
  std::vector<Target> parts = {};  // the targets of a tuple; otherwise empty
};

struct TemplateText {
  std::string text;
};

struct Output {
  ExpressionPtr value;
};

struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;  // condition and body of if, elif ...
  Block otherwise;
};

struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // the filter after `if`; null if absent
  Block body;
  Block otherwise;
};

struct Set {
  Target target;
  ExpressionPtr value;
};

struct SetBlock {
  Target target;
  std::vector<FilterCall> filters;
  Block body;
};

struct Parameter {
  std::string name;
  ExpressionPtr default_value;  // null if the parameter has no default
};

struct MacroDefinition {
  std::string name;
  std::vector<Parameter> parameters;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
  Block body;
};

struct CallBlock {  // {% call(parameters) callee(arguments) %}body{% endcall %}
  MacroDefinition caller;
  ExpressionPtr call;  // the called macro with its arguments, a Call node
};

struct FilterBlock {
  std::vector<FilterCall> filters;
  Block body;
};

struct With {
  std::vector<std::pair<Target, ExpressionPtr>> bindings;
  Block body;
};

struct Passage {  // {% generation %}: marks text for training, renders as its body
  Block body;
};

struct Break {};

struct Continue {};

struct Statement {
  Position at;
  std::variant<TemplateText, Output, If, For, Set, SetBlock, MacroDefinition, CallBlock,
               FilterBlock, With, Passage, Break, Continue>
      node;
};

}  // namespace heddle::chat
