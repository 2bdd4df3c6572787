// SPDX-License-Identifier: Apache-2.0
// A case fed in every way: whole, in chunks, together with other sequences, and from the prefix
// cache.
#pragma once

#include <vector>

#include <gtest/gtest.h>

#include "verify/cached_feeding.h"
#include "verify/plain_feeding.h"

namespace heddle::testing {

// Calls expect_right(result) for each. A cache hit must be as long as it can be. `first_logits` are
// what bits are compared with; the first feeding fills them if they are empty.
template <typename ExpectRight>
void check_every_feeding(runner::ForwardPass& pass, const verify::GoldenCase& golden,
                         std::vector<float>& first_logits, ExpectRight&& expect_right) {
  for (const verify::Feeding& feeding : verify::all_feedings()) {
    SCOPED_TRACE(feeding.name);
    const auto result = verify::check_case(pass, golden, feeding, first_logits);
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(result->num_rows, golden.num_compared_tokens());
    expect_right(*result);
  }
  for (const verify::CachedFeeding& feeding : verify::cached_feedings(pass, golden)) {
    SCOPED_TRACE(feeding.name);
    const auto result = verify::check_cached_case(pass, golden, feeding, first_logits);
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(result->cached_tokens, feeding.reusable_tokens);
    const int64_t to_draw = result->exact_repeat ? 1 : 0;  // from a kept vector
    EXPECT_LE(result->rows.num_rows,
              golden.num_compared_tokens() - result->cached_tokens + to_draw);
    EXPECT_GE(result->rows.num_rows, golden.num_tokens() - result->cached_tokens + to_draw);
    expect_right(result->rows);
  }
}

}  // namespace heddle::testing
