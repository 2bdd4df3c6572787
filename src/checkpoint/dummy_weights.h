// SPDX-License-Identifier: Apache-2.0
// Random weights without a checkpoint (`--load-format dummy`): every value is a pure function of
// seed, hub name and position, so any part can be drawn by any thread and two runs agree.
#pragma once

#include "checkpoint/weight_source.h"

namespace heddle::checkpoint {

class DummyWeights final : public WeightSource {
 public:
  // `dtype` (fp32, bf16 or fp16): the stored dtype that every tensor reports.
  explicit DummyWeights(uint64_t seed, DType dtype = DType::kBf16) : seed_(seed), dtype_(dtype) {}

  // Finds a tensor for every request, with the requested shape and distribution.
  [[nodiscard]] std::optional<StoredWeight> find(const WeightRequest& request) const override;

  [[nodiscard]] std::vector<std::string_view> names() const override { return {}; }

  // Cost: about a billion elements a second and core.
  void read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
            void* target) const override;

  [[nodiscard]] std::optional<DrawnWeight> drawn(const StoredWeight& weight) const override;

 private:
  uint64_t seed_;
  DType dtype_;
};

}  // namespace heddle::checkpoint
