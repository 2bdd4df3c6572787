// SPDX-License-Identifier: Apache-2.0
// AdapterSlots: which of a runner's adapter slots are in use. A slot is in use as long as anybody
// holds its adapter: the caller that loaded it, and each request until no step computes it.
//
// Threading: thread-safe. An Adapter may outlive this object.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <heddle/adapter.h>
#include <heddle/status.h>

#include "core/mutex.h"

namespace heddle::engine {

class AdapterSlots {
 public:
  explicit AdapterSlots(int32_t num_slots);

  // Calls `read`, which fills the slot of this index, for one adapter at a time. Error: that of
  // `read`; kResourceExhausted, with the remedy, if all slots are in use; kInvalidArgument if there
  // are none.
  Result<std::shared_ptr<const Adapter>> load(
      const std::function<Result<Adapter>(int32_t slot)>& read) HEDDLE_EXCLUDES(loading_);

  // Error: kInvalidArgument for an adapter that is not in these slots.
  [[nodiscard]] Status check(const Adapter& adapter) const;

 private:
  struct Free {
    Mutex mutex;
    std::vector<int32_t> slots HEDDLE_GUARDED_BY(mutex);
  };

  const int32_t num_slots_;
  const std::shared_ptr<Free> free_ = std::make_shared<Free>();
  Mutex loading_;
};

}  // namespace heddle::engine
