// SPDX-License-Identifier: Apache-2.0
#include "runner/pools.h"

namespace heddle::runner {

cache::KvLayout kv_layout(const models::CacheNeeds& needs, int32_t page_size, DType dtype) {
  return {.num_layers = needs.num_kv_layers,
          .page_size = page_size,
          .num_kv_heads = needs.num_kv_heads,
          .head_dim = needs.head_dim,
          .value_dim = needs.kv_value_dim,
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
                            const PoolsOptions& options) {
  Pools pools;
  if (needs.num_kv_layers > 0) {
    HEDDLE_ASSIGN_OR_RETURN(
        pools.kv_,
        cache::KvPool::create(device, kv_layout(needs, options.page_size, options.kv_dtype),
                              options.num_pages));
    for (int64_t layer = 0; layer < needs.num_kv_layers; ++layer) {
      pools.kv_layers_.push_back({.k = pools.kv_.k(layer), .v = pools.kv_.v(layer)});
    }
  }
  if (needs.num_state_layers > 0) {
    HEDDLE_ASSIGN_OR_RETURN(pools.states_, cache::StatePool::create(device, state_layout(needs),
                                                                    options.num_state_slots));
    for (int64_t layer = 0; layer < needs.num_state_layers; ++layer) {
      pools.state_layers_.push_back(
          {.conv = pools.states_.conv(layer), .recurrent = pools.states_.recurrent(layer)});
    }
    pools.hidden_width_ = options.hidden_width;
    HEDDLE_ASSIGN_OR_RETURN(
        pools.hidden_, device.allocate(bytes_of(
                           DType::kF32, (options.num_state_slots + 1) * options.hidden_width)));
  }
  return pools;
}

MutableTensorView Pools::hidden() const {
  return {hidden_.data(), DType::kF32, Shape{states_.num_slots() + 1, hidden_width_}};
}

Status Pools::begin_step(device::Stream& stream, const request::BatchPlan& plan) {
  const bool has_kv = kv_.num_pages() > 0;
  const bool has_states = states_.num_slots() > 0;
  if (has_kv) HEDDLE_RETURN_IF_ERROR(kv_.discard_pages(stream, plan.unused_pages));
  if (has_states) {
    for (const int32_t slot : plan.unused_state_slots) {
      HEDDLE_RETURN_IF_ERROR(states_.discard_slot(stream, slot));
    }
    for (const int32_t slot : plan.zero_state_slots) {
      HEDDLE_RETURN_IF_ERROR(states_.zero_slot(stream, slot));
    }
    for (const request::IdCopy& copy : plan.copy_state_slots) {
      HEDDLE_RETURN_IF_ERROR(states_.copy_slot(stream, copy.from, copy.to));
    }
  }
  if (has_kv) {
    for (const request::IdCopy& copy : plan.copy_pages) {
      HEDDLE_RETURN_IF_ERROR(kv_.copy_page(stream, copy.from, copy.to));
    }
  }
  return {};
}

}  // namespace heddle::runner
