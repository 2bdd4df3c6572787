// SPDX-License-Identifier: Apache-2.0
#include "request/refusal.h"

#include <gtest/gtest.h>

namespace heddle::request {
namespace {

TEST(RefusalTest, NamesItsFieldWhateverTheReason) {
  for (const std::string_view field : {kPriorityField, kAnswersField}) {
    const Status status = refuse(field, "because: so");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(refusal_of(status).field, field);
    EXPECT_EQ(refusal_of(status).reason, "because: so");
  }
}

TEST(RefusalTest, OfOtherStatusesTheWholeMessageIsTheReason) {
  for (const Status& status :
       {invalid_argument("priority is off"), invalid_argument("weight: has H = 32"),
        invalid_argument("priorities: too many"), resource_exhausted("priority: full"), Status()}) {
    EXPECT_EQ(refusal_of(status).field, "");
    EXPECT_EQ(refusal_of(status).reason, status.message());
  }
}

}  // namespace
}  // namespace heddle::request
