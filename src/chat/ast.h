// SPDX-License-Identifier: Apache-2.0
// The syntax tree of a template: expressions and statements as the parser leaves them, never
// changed afterwards and so shared by all renders. Nesting is bounded by
// RenderLimits::max_nesting_depth, which keeps every walk over the tree, its destruction included,
// within the stack.
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
  int column = 1;  // in code points
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

struct Attribute {  // object.name
  ExpressionPtr object;
  std::string name;
};

struct Item {  // object[key]
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
  ExpressionPtr more_positional;  // *expression
  ExpressionPtr more_named;       // **expression
};

struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};

struct FilterCall {     // input|name(arguments)
  ExpressionPtr input;  // null at the head of a filter block: the block's text
  std::string name;
  FilterFunction function;  // null for an unknown name, which fails only when it is reached
  CallArguments arguments;
};

struct TestCall {  // subject is [not] name(arguments)
  ExpressionPtr subject;
  std::string name;
  PredicateFunction function;  // null for an unknown name
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
  ExpressionPtr otherwise;  // null when absent: undefined
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
  int depth = 1;  // depth of the tree from this node down
  std::variant<Literal, Name, Attribute, Item, Slice, Call, FilterCall, TestCall, Unary, Binary,
               Logical, ComparisonChain, Concatenation, Conditional, SequenceDisplay, DictDisplay>
      node;
};

// ---- Statements ----

struct Statement;
using Block = std::vector<Statement>;

struct Target {  // target of an assignment by `set`, `for` or `with`
  enum class Kind : uint8_t { kName, kNamespaceAttribute, kTuple };
  Kind kind = Kind::kName;
  Position at;
  std::string name = {};
  std::string attribute = {};      // attribute of a namespace
  std::vector<Target> parts = {};  // parts of a tuple
};

struct TemplateText {
  std::string text;
};

struct Output {
  ExpressionPtr value;
};

struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;  // if, elif ...
  Block otherwise;
};

struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // may be null
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
  ExpressionPtr default_value;  // may be null
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
  ExpressionPtr call;  // a Call node
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
