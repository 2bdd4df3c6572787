// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "chat/access.h"
#include "chat/interpreter.h"
#include "chat/methods.h"
#include "chat/python_text.h"
#include "chat/strftime.h"

namespace heddle::chat {

namespace {

constexpr int64_t kMaxRange = 100'000;  // Jinja's sandbox has the same bound
constexpr size_t kVariableBytes = 160;  // about what a name and its value take in a map
constexpr size_t kMacroBytes = sizeof(Macro) + kVariableBytes;

}  // namespace

Result<Arguments> Interpreter::evaluate_arguments(const CallArguments& arguments) {
  Arguments result;
  result.positional.reserve(arguments.positional.size());
  for (const ExpressionPtr& expression : arguments.positional) {
    HEDDLE_ASSIGN_OR_RETURN(Value value, evaluate(*expression));
    result.positional.push_back(std::move(value));
  }
  if (arguments.more_positional != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(const Value more, evaluate(*arguments.more_positional));
    HEDDLE_ASSIGN_OR_RETURN(const SequencePtr items, iterate(&budget_, more));
    HEDDLE_RETURN_IF_ERROR(budget_.fits(items->items.size() * sizeof(Value)));
    HEDDLE_RETURN_IF_ERROR(budget_.touch(items->items.size() * sizeof(Value)));
    result.positional.insert(result.positional.end(), items->items.begin(), items->items.end());
  }
  for (const auto& [name, expression] : arguments.named) {
    HEDDLE_ASSIGN_OR_RETURN(Value value, evaluate(*expression));
    result.named.emplace_back(name, std::move(value));
  }
  if (arguments.more_named == nullptr) return result;
  HEDDLE_ASSIGN_OR_RETURN(const Value more, evaluate(*arguments.more_named));
  if (!more.is(Kind::kDict)) {
    return invalid_argument(
        fmt::format("the argument behind ** must be a dict, not '{}'", more.type_name()));
  }
  HEDDLE_RETURN_IF_ERROR(budget_.fits(more.as_dict().size() * sizeof(Dict::Entry)));
  HEDDLE_RETURN_IF_ERROR(
      budget_.step(static_cast<int64_t>(more.as_dict().size() * (arguments.named.size() / 8 + 1))));
  for (const auto& [key, value] : more.as_dict().entries()) {
    if (!key.is_string()) return invalid_argument("the keys of the dict behind ** must be strings");
    for (const auto& [name, expression] : arguments.named) {
      if (name == key.as_string()) {
        return invalid_argument(fmt::format("got multiple values for argument '{}'", name));
      }
    }
    result.named.emplace_back(key.as_string(), value);
  }
  return result;
}

Result<Value> Interpreter::call(const Value& callee, const Arguments& arguments) {
  switch (callee.kind()) {
    case Kind::kUndefined:
      return invalid_argument(callee.undefined_reason());
    case Kind::kMacro:
      return call_macro(*callee.as_macro(), arguments);
    case Kind::kMethod:
      return call_method(&budget_, callee.as_method(), arguments);
    case Kind::kBuiltin:
      return call_builtin(callee.as_builtin(), arguments);
    default:
      return invalid_argument(fmt::format("'{}' object is not callable", callee.type_name()));
  }
}

Result<const Macro*> Interpreter::make_macro(const MacroDefinition& definition) {
  // The scopes around it stay until the render ends, with their variables.
  size_t bytes = kMacroBytes;
  for (const Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
    bytes += sizeof(Scope) + scope->variables.size() * kVariableBytes;
  }
  HEDDLE_RETURN_IF_ERROR(budget_.fits(bytes));
  budget_.allocate(bytes);
  return static_cast<const Macro*>(arena_.make_macro(&definition, scope_));
}

Result<Value> Interpreter::call_macro(const Macro& macro, const Arguments& arguments) {
  Scope* const caller_scope = scope_;
  const int caller_loop_depth = std::exchange(loop_depth_, 0);
  Scope* const scope = arena_.enter(macro.scope);
  scope_ = scope;
  Status bound = bind_parameters(*macro.definition, arguments);
  Result<Value> text =
      bound.ok() ? capture(macro.definition->body) : Result<Value>(std::move(bound));
  scope_ = caller_scope;
  loop_depth_ = caller_loop_depth;
  arena_.leave(scope);
  return text;
}

Status Interpreter::bind_parameters(const MacroDefinition& definition, const Arguments& arguments) {
  Variables& variables = scope_->variables;
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
  // Every name is compared with every parameter.
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
  for (const Parameter& parameter : parameters) {
    if (variables.contains(parameter.name)) continue;
    Value value = Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name));
    if (parameter.default_value != nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(value, evaluate(*parameter.default_value));
    }
    variables.insert_or_assign(parameter.name, std::move(value));
  }
  return {};
}

Result<Value> Interpreter::call_builtin(Builtin function, const Arguments& arguments) {
  switch (function) {
    case Builtin::kRange:
      return make_range(arguments);
    case Builtin::kDict:
      return make_dict_from(arguments);
    case Builtin::kNamespace:
      return make_namespace(arguments);
    case Builtin::kRaiseException:
      return raise_exception(arguments);
    case Builtin::kStrftimeNow:
      return strftime_now(arguments);
  }
  return internal_error("unknown built-in function");
}

Result<Value> Interpreter::make_range(const Arguments& arguments) {
  if (!arguments.named.empty()) return invalid_argument("range() takes no keyword arguments");
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(arguments, "range", {"start", "stop", "step"}, 1));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t first, args.integer(0, 0));
  const bool only_stop = args.get(1) == nullptr;
  HEDDLE_ASSIGN_OR_RETURN(const int64_t second, args.integer(1, 0));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t step, args.integer(2, 1));
  const int64_t start = only_stop ? 0 : first;
  const int64_t stop = only_stop ? first : second;
  if (step == 0) return invalid_argument("range(): the step must not be zero");
  const bool empty = step > 0 ? start >= stop : start <= stop;
  // Unsigned, because the distance of two int64 may not fit one.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t count = empty ? 0 : (distance - 1) / stride + 1;
  if (count > static_cast<uint64_t>(kMaxRange)) {
    return invalid_argument(
        fmt::format("range() of {} numbers: at most {} are allowed", count, kMaxRange));
  }
  HEDDLE_RETURN_IF_ERROR(budget_.fits(count * sizeof(Value)));
  std::vector<Value> numbers;
  numbers.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    numbers.push_back(Value::integer(start + static_cast<int64_t>(i) * step));
  }
  return make_sequence(&budget_, Flavor::kRange, std::move(numbers));
}

Result<Value> Interpreter::make_dict_from(const Arguments& arguments) {
  std::vector<Dict::Entry> entries;
  if (arguments.positional.size() > 1)
    return invalid_argument("dict() takes at most one positional argument");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::kDict)) {
      HEDDLE_RETURN_IF_ERROR(budget_.fits(source.as_dict().size() * sizeof(Dict::Entry)));
      entries = source.as_dict().entries();
    } else {
      HEDDLE_ASSIGN_OR_RETURN(const SequencePtr pairs, iterate(&budget_, source));
      for (const Value& pair : pairs->items) {
        HEDDLE_ASSIGN_OR_RETURN(const SequencePtr parts, iterate(&budget_, pair));
        if (parts->items.size() != 2)
          return invalid_argument("dict(): each item must be a pair of key and value");
        HEDDLE_RETURN_IF_ERROR(budget_.step());
        entries.emplace_back(parts->items[0], parts->items[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named)
    entries.emplace_back(Value::string(name), value);
  return make_dict(&budget_, std::move(entries));
}

Result<Value> Interpreter::make_namespace(const Arguments& arguments) {
  HEDDLE_ASSIGN_OR_RETURN(const Value initial, make_dict_from(arguments));
  const Dict& dict = initial.as_dict();
  const size_t bytes = sizeof(Namespace) + dict.size() * kVariableBytes;
  HEDDLE_RETURN_IF_ERROR(budget_.fits(bytes));
  HEDDLE_RETURN_IF_ERROR(budget_.step(static_cast<int64_t>(dict.size())));
  budget_.allocate(bytes);
  Namespace* made = arena_.make_namespace();
  for (const auto& [key, value] : dict.entries()) {
    if (!key.is_string()) return invalid_argument("namespace(): the keys must be strings");
    made->variables.insert_or_assign(key.as_string(), value);
  }
  return Value::from(made);
}

Status Interpreter::raise_exception(const Arguments& arguments) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(arguments, "raise_exception", {"message"}, 1));
  HEDDLE_ASSIGN_OR_RETURN(const Value message, to_string_value(&budget_, *args.get(0)));
  raised_exception_ = true;
  error_is_located_ = true;  // the text goes to the client as the template wrote it
  return invalid_argument(message.as_string());
}

Result<Value> Interpreter::strftime_now(const Arguments& arguments) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(arguments, "strftime_now", {"format"}, 1));
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view format, args.text(0, {}));
  HEDDLE_RETURN_IF_ERROR(budget_.fits(format.size() * 16));  // two bytes become at most 24
  HEDDLE_RETURN_IF_ERROR(budget_.touch(format.size() * 16));
  HEDDLE_ASSIGN_OR_RETURN(std::string text, format_time(format, local_now_()));
  return make_text(&budget_, std::move(text));
}

}  // namespace heddle::chat
