// SPDX-License-Identifier: Apache-2.0
// The functions that every template can call: range, dict, namespace, raise_exception,
// strftime_now.
//
// Threading: confined to one render.
#pragma once

#include <ctime>
#include <functional>

#include <heddle/status.h>

#include "chat/callables.h"
#include "chat/limits.h"
#include "chat/render_state.h"
#include "chat/value.h"

namespace heddle::chat {

class BuiltinFunctions {
 public:
  // The arguments must outlive this object. `local_now` returns the time that strftime_now prints.
  BuiltinFunctions(Scopes& scopes, RenderTrace& trace, Budget& budget,
                   const std::function<std::tm()>& local_now)
      : scopes_(scopes), trace_(trace), budget_(budget), local_now_(local_now) {}

  // Calls a function. Error: kInvalidArgument for arguments that the function does not accept, or
  // if the budget is exceeded; raise_exception always fails, with exactly the template's text.
  Result<Value> call(Builtin function, const Arguments& arguments);

  // Whether the template called raise_exception.
  [[nodiscard]] bool raised_exception() const { return raised_exception_; }

 private:
  Result<Value> make_range(const Arguments& arguments);
  Result<Value> make_dict_from(const Arguments& arguments);
  Result<Value> make_namespace(const Arguments& arguments);
  Status raise_exception(const Arguments& arguments);
  Result<Value> strftime_now(const Arguments& arguments);

  Scopes& scopes_;
  RenderTrace& trace_;
  Budget& budget_;
  const std::function<std::tm()>& local_now_;
  bool raised_exception_ = false;
};

}  // namespace heddle::chat
