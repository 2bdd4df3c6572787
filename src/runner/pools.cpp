// SPDX-License-Identifier: Apache-2.0
#include "runner/pools.h"

namespace heddle::runner {

cache::KvLayout kv_layout(const models::CacheNeeds& needs, int32_t page_size, DType dtype) {
  return {.num_layers = needs.num_kv_layers,
          .page_size = page_size,
          .num_kv_heads = needs.num_kv_heads,
          .head_dim = needs.head_dim,
          .dtype = dtype};
}

cache::StateLayout state_layout(const models::CacheNeeds& needs) {
  return {.num_layers = needs.num_state_layers,
          .conv_channels = needs.conv_channels,
          .conv_width = needs.conv_width,
          .num_value_heads = needs.num_value_heads,
          .value_dim = needs.value_dim,
          .key_dim = needs.key_dim};
}

Result<Pools> Pools::create(device::Device& device, const models::CacheNeeds& needs,
                            int64_t num_pages, int32_t page_size, DType kv_dtype,
                            int64_t num_state_slots) {
  Pools pools;
  if (needs.num_kv_layers > 0) {
    HEDDLE_ASSIGN_OR_RETURN(
        pools.kv_, cache::KvPool::create(device, kv_layout(needs, page_size, kv_dtype), num_pages));
    for (int64_t layer = 0; layer < needs.num_kv_layers; ++layer) {
      pools.kv_layers_.push_back({.k = pools.kv_.k(layer), .v = pools.kv_.v(layer)});
    }
  }
  if (needs.num_state_layers > 0) {
    HEDDLE_ASSIGN_OR_RETURN(pools.states_,
                            cache::StatePool::create(device, state_layout(needs), num_state_slots));
    for (int64_t layer = 0; layer < needs.num_state_layers; ++layer) {
      pools.state_layers_.push_back(
          {.conv = pools.states_.conv(layer), .recurrent = pools.states_.recurrent(layer)});
    }
  }
  return pools;
}

}  // namespace heddle::runner
