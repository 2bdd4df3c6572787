// SPDX-License-Identifier: Apache-2.0
// KnowingDrafter: a drafter that knows the cold answers of a workload. It drafts them as far as its
// dice say, often with one wrong token, and anything behind their end; so that drafts of the real
// model hold, fail in the middle and fail at once.
//
// Threading: as Drafter.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "integration/cache_exactness_workload.h"
#include "speculative/drafter.h"

namespace heddle::testing {

class KnowingDrafter final : public speculative::Drafter {
 public:
  // The workload outlives it.
  explicit KnowingDrafter(const ExactWorkload& workload) : workload_(workload) {}

  void observe(const request::Sequence& sequence) override;
  void propose(const request::Sequence& sequence, int64_t most,
               std::vector<TokenId>& drafts) override;
  void forget(const request::Sequence& sequence) override;

 private:
  const ExactWorkload& workload_;
  std::mt19937_64 random_{12};
};

// An engine whose drafts are those of a KnowingDrafter, num_draft_tokens of the options.
Result<std::unique_ptr<Engine>> create_drafting_engine(const EngineOptions& options,
                                                       const ExactWorkload& workload);

}  // namespace heddle::testing
