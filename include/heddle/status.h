// SPDX-License-Identifier: Apache-2.0
// Status and Result: how Heddle reports what the world did wrong. Heddle does not throw.
//
// A Status is OK or a code with a message that names the thing, the value and, where there is one,
// the remedy: "rms_norm: weight has H = 32, x has H = 64". Broken invariants of our own are not a
// Status: they abort through HEDDLE_CHECK (core/check.h).
//
// Threading: values; thread-compatible. Cost: an OK Status is one null pointer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace heddle {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // the caller's input is wrong; the same call fails again
  kNotFound,           // a file, tensor, model or request that does not exist
  kDataLoss,           // a file that is truncated or contradicts itself
  kResourceExhausted,  // a full pool, queue or memory; trying later may work
  kUnimplemented,      // understood, but not served by this build or device
  kDeadlineExceeded,   // the time limit passed before the call finished
  kCancelled,          // the client went away or asked to stop
  kUnavailable,        // the server or engine is loading or shutting down
  kDeviceLost,         // the device failed after a launch; the engine cannot go on
  kInternal,           // a bug; the message says where
};

[[nodiscard]] std::string_view to_string(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // an OK status
  Status(StatusCode code, std::string message);

  [[nodiscard]] bool ok() const { return failure_ == nullptr; }

  [[nodiscard]] StatusCode code() const { return ok() ? StatusCode::kOk : failure_->code; }

  [[nodiscard]] const std::string& message() const;  // the error message; empty when OK

  // "INVALID_ARGUMENT: message", or "OK".
  [[nodiscard]] std::string to_string() const;

  // Prefixes the message with "context: "; OK stays OK.
  [[nodiscard]] Status with_context(std::string_view context) const;

 private:
  struct Failure {
    StatusCode code;
    std::string message;
  };

  std::shared_ptr<const Failure> failure_;  // shared: copies of a Status are cheap and immutable
};

inline Status ok_status() { return {}; }

Status invalid_argument(std::string message);
Status not_found(std::string message);
Status data_loss(std::string message);
Status resource_exhausted(std::string message);
Status unimplemented(std::string message);
Status timed_out(std::string message);
Status cancelled(std::string message);
Status unavailable(std::string message);
Status device_lost(std::string message);
Status internal_error(std::string message);

namespace internal {
[[noreturn]] void abort_on_bad_result(const Status& status);
}  // namespace internal

// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (status_.ok()) internal::abort_on_bad_result(status_);
  }

  [[nodiscard]] bool ok() const { return value_.has_value(); }

  [[nodiscard]] const Status& status() const { return status_; }

  // Aborts with the message when there is no value.
  [[nodiscard]] T& value() & {
    if (!ok()) internal::abort_on_bad_result(status_);
    return *value_;
  }

  [[nodiscard]] const T& value() const& {
    if (!ok()) internal::abort_on_bad_result(status_);
    return *value_;
  }

  [[nodiscard]] T&& value() && {
    if (!ok()) internal::abort_on_bad_result(status_);
    return std::move(*value_);
  }

  T& operator*() & { return value(); }

  const T& operator*() const& { return value(); }

  T* operator->() { return &value(); }

  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace heddle

#define HEDDLE_RETURN_IF_ERROR(expression)                                                 \
  do {                                                                                     \
    if (::heddle::Status heddle_status_ = (expression); !heddle_status_.ok()) [[unlikely]] \
      return heddle_status_;                                                               \
  } while (false)

#define HEDDLE_CONCAT_INNER(a, b) a##b
#define HEDDLE_CONCAT(a, b) HEDDLE_CONCAT_INNER(a, b)

// HEDDLE_ASSIGN_OR_RETURN(auto file, open_file(path));
#define HEDDLE_ASSIGN_OR_RETURN(declaration, expression) \
  HEDDLE_ASSIGN_OR_RETURN_INNER(HEDDLE_CONCAT(heddle_result_, __LINE__), declaration, expression)
#define HEDDLE_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                          \
  if (!result.ok()) [[unlikely]]                                       \
    return result.status();                                            \
  declaration = std::move(result).value()
