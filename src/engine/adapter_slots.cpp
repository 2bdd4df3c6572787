// SPDX-License-Identifier: Apache-2.0
#include "engine/adapter_slots.h"

#include <utility>

#include <fmt/format.h>

namespace heddle::engine {

AdapterSlots::AdapterSlots(int32_t num_slots) : num_slots_(num_slots) {
  const MutexLock lock(free_->mutex);
  for (int32_t slot = num_slots - 1; slot >= 0; --slot) free_->slots.push_back(slot);
}

Result<std::shared_ptr<const Adapter>> AdapterSlots::load(
    const std::function<Result<Adapter>(int32_t slot)>& read) {
  if (num_slots_ == 0) {
    return invalid_argument("this engine has no memory for adapters; start it with --enable-lora");
  }
  const MutexLock one_at_a_time(loading_);
  int32_t slot = 0;
  {
    const MutexLock lock(free_->mutex);
    if (free_->slots.empty()) {
      return resource_exhausted(fmt::format(
          "all {} adapters that fit are loaded or in use by requests; unload one, or start with a "
          "larger --max-loras-per-batch",
          num_slots_));
    }
    slot = free_->slots.back();
    free_->slots.pop_back();
  }
  const auto give_back = [free = free_, slot] {
    const MutexLock lock(free->mutex);
    free->slots.push_back(slot);
  };
  Result<Adapter> adapter = read(slot);
  if (!adapter.ok()) {
    give_back();
    return adapter.status();
  }
  return std::shared_ptr<const Adapter>(new Adapter(std::move(*adapter)),
                                        [give_back](const Adapter* unused) {
                                          delete unused;
                                          give_back();
                                        });
}

Status AdapterSlots::check(const Adapter& adapter) const {
  if (adapter.slot >= 0 && adapter.slot < num_slots_) return ok_status();
  return invalid_argument(
      fmt::format("the adapter is in slot {}, but this engine has {}", adapter.slot, num_slots_));
}

}  // namespace heddle::engine
