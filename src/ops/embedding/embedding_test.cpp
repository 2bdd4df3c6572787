// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include "support/tensors.h"

namespace heddle::ops {
namespace {

using testing::poison;
using testing::random_tensor;

TEST(Embedding, CopiesTheRowsOfTheTableInEveryDtype) {
  device::ThreadPool pool(2);
  CpuContext context(pool);
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    const Tensor table = random_tensor({11, 37}, dtype, 1);
    Tensor ids({4}, DType::kI32);
    const std::vector<int32_t> wanted = {10, 0, 3, 3};
    std::copy(wanted.begin(), wanted.end(), ids.span<int32_t>().begin());
    Tensor y({4, 37}, DType::kF32);
    poison(y);
    ASSERT_TRUE(embedding(context, {.ids = ids.view(), .table = table.view(), .y = y.view()}).ok());
    const std::vector<double> rows = testing::to_doubles(table.view());
    const std::vector<double> got = testing::to_doubles(y.view());
    for (size_t t = 0; t < 4; ++t) {
      for (size_t h = 0; h < 37; ++h) {
        EXPECT_EQ(got[t * 37 + h], rows[static_cast<size_t>(wanted[t]) * 37 + h]);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::ops
