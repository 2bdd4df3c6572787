// SPDX-License-Identifier: Apache-2.0
// guarded_step(): turns exceptions of libraries into errors. An exception, above all for lack of
// memory, must fail the step and not the process.
#pragma once

#include <exception>
#include <new>

#include <fmt/format.h>

#include <heddle/status.h>

namespace heddle::runner {

// The status of a step that ran out of memory. It is to be created in advance, while memory is
// left.
inline Status step_out_of_memory() { return resource_exhausted("a step ran out of host memory"); }

// Returns the result of `step`; an exception becomes a Status.
template <typename Step>
Status guarded_step(const Status& out_of_memory, const Step& step) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    return out_of_memory;
  } catch (const std::exception& error) {
    try {
      return internal_error(fmt::format("a step threw: {}", error.what()));
    } catch (const std::exception&) {
      return out_of_memory;
    }
  }
}

}  // namespace heddle::runner
