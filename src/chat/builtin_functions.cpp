// SPDX-License-Identifier: Apache-2.0
#include "chat/builtin_functions.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "chat/access.h"
#include "chat/python_text.h"
#include "chat/string_format.h"

namespace heddle::chat {

namespace {

constexpr int64_t kMaxRange = 100'000;  // most elements of a range; Jinja's sandbox has the same
                                        // bound

}  // namespace

Result<Value> BuiltinFunctions::call(Builtin function, const Arguments& arguments) {
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

Result<Value> BuiltinFunctions::make_range(const Arguments& arguments) {
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
  // Unsigned, because the distance of two int64 may not fit into an int64.
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

Result<Value> BuiltinFunctions::make_dict_from(const Arguments& arguments) {
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

Result<Value> BuiltinFunctions::make_namespace(const Arguments& arguments) {
  HEDDLE_ASSIGN_OR_RETURN(const Value initial, make_dict_from(arguments));
  const Dict& dict = initial.as_dict();
  const size_t bytes = sizeof(Namespace) + dict.size() * kVariableBytes;
  HEDDLE_RETURN_IF_ERROR(budget_.fits(bytes));
  HEDDLE_RETURN_IF_ERROR(budget_.step(static_cast<int64_t>(dict.size())));
  budget_.allocate(bytes);
  Namespace* made = scopes_.make_namespace();
  for (const auto& [key, value] : dict.entries()) {
    if (!key.is_string()) return invalid_argument("namespace(): the keys must be strings");
    made->variables.insert_or_assign(key.as_string(), value);
  }
  return Value::from(made);
}

Status BuiltinFunctions::raise_exception(const Arguments& arguments) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(arguments, "raise_exception", {"message"}, 1));
  HEDDLE_ASSIGN_OR_RETURN(const Value message, to_string_value(&budget_, *args.get(0)));
  raised_exception_ = true;
  trace_.keep_message();  // the text goes to the client as the template wrote it
  return invalid_argument(message.as_string());
}

Result<Value> BuiltinFunctions::strftime_now(const Arguments& arguments) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(arguments, "strftime_now", {"format"}, 1));
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view format, args.text(0, {}));
  // two bytes of the format become at most 24 characters
  HEDDLE_RETURN_IF_ERROR(budget_.fits(format.size() * 16));
  HEDDLE_RETURN_IF_ERROR(budget_.touch(format.size() * 16));
  HEDDLE_ASSIGN_OR_RETURN(std::string text, format_time(format, local_now_()));
  return make_text(&budget_, std::move(text));
}

}  // namespace heddle::chat
