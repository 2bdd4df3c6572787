// SPDX-License-Identifier: Apache-2.0
// Pools: the KV pages and recurrent states of a model, and the views of them that its ops take.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/kv_pool.h"
#include "cache/state_pool.h"
#include "models/model.h"
#include "ops/forward_context.h"

namespace heddle::runner {

// KV pages are stored as the weights are: fp32 runs keep fp32 pages.
cache::KvLayout kv_layout(const models::CacheNeeds& needs, int32_t page_size, DType dtype);
cache::StateLayout state_layout(const models::CacheNeeds& needs);

class Pools {
 public:
  Pools() = default;

  static Result<Pools> create(device::Device& device, const models::CacheNeeds& needs,
                              int64_t num_pages, int32_t page_size, DType kv_dtype,
                              int64_t num_state_slots);

  [[nodiscard]] cache::KvPool& kv() { return kv_; }

  [[nodiscard]] cache::StatePool& states() { return states_; }

  [[nodiscard]] std::span<const ops::KvLayer> kv_layers() const { return kv_layers_; }

  [[nodiscard]] std::span<const ops::StateLayer> state_layers() const { return state_layers_; }

 private:
  cache::KvPool kv_;
  cache::StatePool states_;
  std::vector<ops::KvLayer> kv_layers_;
  std::vector<ops::StateLayer> state_layers_;
};

}  // namespace heddle::runner
