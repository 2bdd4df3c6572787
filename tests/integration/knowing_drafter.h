// SPDX-License-Identifier: Apache-2.0
// KnowingDrafter: a drafter that knows the cold answers of a workload. It drafts them as far as its
// dice say, often with one wrong token, and anything behind their end; so that drafts of the real
// model hold, fail in the middle and fail at once. Or it drafts trees of any shape, with the answer
// in one of their branches, as far as the dice say.
//
// Threading: as Drafter.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>

#include "integration/cache_exactness_workload.h"
#include "speculative/drafter.h"

namespace heddle::testing {

class KnowingDrafter final : public speculative::Drafter {
 public:
  // The workload outlives it.
  KnowingDrafter(const ExactWorkload& workload, bool trees) : workload_(workload), trees_(trees) {}

  void observe(const request::Sequence& sequence) override;
  void propose(const request::Sequence& sequence, int64_t most,
               speculative::Drafts& drafts) override;
  void forget(const request::Sequence& sequence) override;

 private:
  [[nodiscard]] int64_t below(int64_t count) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(count));
  }

  void propose_tree(std::span<const TokenId> answer, int64_t count, speculative::Drafts& drafts);

  const ExactWorkload& workload_;
  bool trees_;
  std::mt19937_64 random_{12};
};

// An engine whose drafts are those of a KnowingDrafter, num_draft_tokens of the options.
Result<std::unique_ptr<Engine>> create_drafting_engine(const EngineOptions& options,
                                                       const ExactWorkload& workload, bool trees);

}  // namespace heddle::testing
