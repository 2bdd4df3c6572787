// SPDX-License-Identifier: Apache-2.0
#include <heddle/status.h>

#include "core/check.h"

namespace heddle {

std::string_view to_string(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kDeviceLost:
      return "DEVICE_LOST";
    case StatusCode::kInternal:
      return "INTERNAL";
  }
  return "UNKNOWN";
}

Status::Status(StatusCode code, std::string message) {
  if (code == StatusCode::kOk) return;
  failure_ = std::make_shared<const Failure>(Failure{code, std::move(message)});
}

const std::string& Status::message() const {
  static const std::string kEmpty;
  return ok() ? kEmpty : failure_->message;
}

std::string Status::to_string() const {
  if (ok()) return "OK";
  return std::string(heddle::to_string(failure_->code)) + ": " + failure_->message;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return {};
  return {failure_->code, std::string(context) + ": " + failure_->message};
}

Status invalid_argument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

Status not_found(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }

Status data_loss(std::string message) { return {StatusCode::kDataLoss, std::move(message)}; }

Status resource_exhausted(std::string message) {
  return {StatusCode::kResourceExhausted, std::move(message)};
}

Status unimplemented(std::string message) {
  return {StatusCode::kUnimplemented, std::move(message)};
}

Status timed_out(std::string message) {
  return {StatusCode::kDeadlineExceeded, std::move(message)};
}

Status cancelled(std::string message) { return {StatusCode::kCancelled, std::move(message)}; }

Status unavailable(std::string message) { return {StatusCode::kUnavailable, std::move(message)}; }

Status device_lost(std::string message) { return {StatusCode::kDeviceLost, std::move(message)}; }

Status internal_error(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

namespace internal {

void abort_on_bad_result(const Status& status) {
  check_failed("Result::value()", "a result without a value was read", status.to_string());
}

}  // namespace internal

}  // namespace heddle
