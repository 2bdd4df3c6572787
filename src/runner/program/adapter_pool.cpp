// SPDX-License-Identifier: Apache-2.0
#include "runner/program/adapter_pool.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/adapter_places.h"
#include "checkpoint/readable.h"
#include "core/check.h"
#include "models/layers/adapter_names.h"

namespace heddle::runner {

namespace {

// The most modules of an adapter whose rows are rows of one weight.
int64_t most_parts(const checkpoint::WeightSpec& spec) {
  size_t most = 0;
  for (const checkpoint::Assembly& assembly : spec.alternatives) {
    most = std::max(most, assembly.size());
  }
  return static_cast<int64_t>(most);
}

// The memory of one slot in an array whose first dimension is the slot.
template <typename T>
std::span<T> of_slot(Tensor& array, int32_t slot) {
  const std::span<T> all = array.span<T>();
  const size_t size = all.size() / static_cast<size_t>(array.shape()[0]);
  return all.subspan(static_cast<size_t>(slot) * size, size);
}

}  // namespace

AdapterPool::AdapterPool(const Sizes& sizes, std::vector<checkpoint::WeightSpec> specs)
    : sizes_(sizes),
      slots_({sizes.max_rows}, DType::kI32),
      logit_slots_({sizes.max_logit_rows}, DType::kI32),
      scales_({sizes.num_slots}, DType::kF32) {
  HEDDLE_CHECK(sizes.num_slots > 0 && sizes.max_rank > 0);
  std::ranges::fill(scales_.span<float>(), 1.0f);  // B has the adapters' scales
  views_.emplace(models::kAdapterSlots, slots_.view());
  views_.emplace(models::kAdapterLogitSlots, logit_slots_.view());
  views_.emplace(models::kAdapterScales, scales_.view());
  for (checkpoint::WeightSpec& spec : specs) {
    if (spec.shape.rank() != 2 || spec.name == checkpoint::kEmbeddingWeight) continue;
    std::string name = spec.name;
    specs_.emplace(std::move(name), std::move(spec));
  }
}

const TensorView* AdapterPool::find(std::string_view name) {
  if (const auto found = views_.find(name); found != views_.end()) return &found->second;
  for (const std::string_view ending :
       {models::kAdapterA, models::kAdapterB, models::kAdapterParts}) {
    if (!name.ends_with(ending)) continue;
    const auto spec = specs_.find(name.substr(0, name.size() - ending.size()));
    return spec == specs_.end() ? nullptr : make_arrays(spec->second, ending);
  }
  return nullptr;
}

const TensorView* AdapterPool::make_arrays(const checkpoint::WeightSpec& spec,
                                           std::string_view ending) {
  const int64_t N = spec.shape[0], K = spec.shape[1];
  const int64_t S = sizes_.num_slots, R = sizes_.max_rank, P = most_parts(spec);
  // Below 2^62: slots times rank is at most 2^22 (EngineOptions), and a weight has fewer than 2^36
  // elements.
  const int64_t bytes = 4 * S * (P * R * K + N * R + N);
  if (num_bytes_ + bytes > sizes_.max_bytes) {
    if (status_.ok()) {
      status_ = resource_exhausted(fmt::format(
          "{} adapters of rank {} take more than the {} MiB of free memory; ask for fewer "
          "(--max-loras-per-batch) or a lower rank (--max-lora-rank)",
          S, R, sizes_.max_bytes >> 20));
    }
    return nullptr;
  }
  num_bytes_ += bytes;
  Arrays arrays{.num_parts = P,
                .a = Tensor({S, P * R, K}, DType::kF32),
                .b = Tensor({S, N, R}, DType::kF32),
                .parts = Tensor({S, N}, DType::kI32)};
  const auto add = [&](std::string_view own_ending, const Tensor& tensor) {
    views_.emplace(spec.name + std::string(own_ending), tensor.view());
  };
  add(models::kAdapterA, arrays.a);
  add(models::kAdapterB, arrays.b);
  add(models::kAdapterParts, arrays.parts);
  arrays_.emplace(spec.name, std::move(arrays));
  return &views_.find(spec.name + std::string(ending))->second;
}

Status AdapterPool::load(int32_t slot, std::span<const checkpoint::AdapterLinear> linears) {
  HEDDLE_CHECK(slot >= 0 && slot < sizes_.num_slots);
  clear(slot);
  for (const checkpoint::AdapterLinear& linear : linears) {
    if (Status status = fill(slot, linear); !status.ok()) {
      clear(slot);
      return status;
    }
  }
  return ok_status();
}

void AdapterPool::clear(int32_t slot) {
  for (auto& [name, arrays] : arrays_) {
    std::ranges::fill(of_slot<float>(arrays.a, slot), 0.0f);
    std::ranges::fill(of_slot<float>(arrays.b, slot), 0.0f);
    std::ranges::fill(of_slot<int32_t>(arrays.parts, slot), 0);
  }
}

Status AdapterPool::fill(int32_t slot, const checkpoint::AdapterLinear& linear) {
  const auto found = arrays_.find(linear.weight);
  if (found == arrays_.end()) {
    return checkpoint::can_only_be_merged(linear.module,
                                          "has a weight that the model does not multiply by as it "
                                          "is stored");
  }
  Arrays& arrays = found->second;
  const int64_t R = sizes_.max_rank, K = linear.a.shape()[2];
  const int64_t N = linear.b.shape()[1], rank = linear.b.shape()[2];
  const int64_t num_parts = linear.a.shape()[1] / rank;
  if (rank > R) {
    return invalid_argument(
        fmt::format("module {} has rank {}, but there is room for {}; give --max-lora-rank {}",
                    checkpoint::readable(linear.module), rank, R, rank));
  }
  if (num_parts > arrays.num_parts) {
    return checkpoint::can_only_be_merged(linear.module, "shares a weight with too many others");
  }
  const std::span<float> a = of_slot<float>(arrays.a, slot), b = of_slot<float>(arrays.b, slot);
  const std::span<const float> own_a = linear.a.span<float>(), own_b = linear.b.span<float>();
  for (int64_t part = 0; part < num_parts; ++part) {
    std::copy_n(own_a.begin() + part * rank * K, rank * K, a.begin() + part * R * K);
  }
  for (int64_t row = 0; row < N; ++row) {
    std::copy_n(own_b.begin() + row * rank, rank, b.begin() + row * R);
  }
  std::ranges::copy(linear.parts.span<int32_t>(), of_slot<int32_t>(arrays.parts, slot).begin());
  return ok_status();
}

Status AdapterPool::lay_out(const ops::ForwardContext& batch, std::span<const int32_t> slots) {
  if (std::ssize(slots) != batch.num_sequences()) {
    return invalid_argument(
        fmt::format("{} adapter slots for {} sequences", slots.size(), batch.num_sequences()));
  }
  const std::span<int32_t> rows = slots_.span<int32_t>(), logits = logit_slots_.span<int32_t>();
  for (int64_t b = 0; b < batch.num_sequences(); ++b) {
    std::fill_n(rows.begin() + batch.query_start[static_cast<size_t>(b)], batch.num_rows(b),
                slots[static_cast<size_t>(b)]);
  }
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    logits[i] = rows[static_cast<size_t>(batch.logit_rows[i])];
  }
  return ok_status();
}

void AdapterPool::lay_out_head(std::span<const int32_t> slots) {
  std::ranges::copy(slots, logit_slots_.span<int32_t>().begin());
}

}  // namespace heddle::runner
