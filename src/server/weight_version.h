// SPDX-License-Identifier: Apache-2.0
// WeightVersion: the name that an operator gives to the weights that are served, shown with every
// answer of the OpenAI and native routes.
//
// Threading: thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "core/mutex.h"
#include "server/api_error.h"

namespace heddle::server {

inline constexpr size_t kMaxWeightVersionBytes = 256;

class WeightVersion {
 public:
  explicit WeightVersion(std::string name) : name_(std::move(name)) {}

  [[nodiscard]] std::string get() const {
    const MutexLock lock(mutex_);
    return name_;
  }

  void set(std::string name) {
    const MutexLock lock(mutex_);
    name_ = std::move(name);
  }

 private:
  mutable Mutex mutex_;
  std::string name_ HEDDLE_GUARDED_BY(mutex_);
};

// The body of POST /update_weight_version.
struct WeightVersionOrder {
  std::string name;
  bool abort_all = true;  // what runs ends, so that no answer is of two versions
};

std::variant<WeightVersionOrder, ApiError> read_weight_version(std::string_view body);

}  // namespace heddle::server
