// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding/embedding.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/registry.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

using testing::random_tensor;

class EmbeddingTest : public DeviceTest {};

HEDDLE_ON_EVERY_DEVICE(EmbeddingTest);

TEST_P(EmbeddingTest, CopiesTheRowsOfTheTableInEveryDtype) {
  const std::vector<int32_t> wanted = {10, 0, 3, 3};
  Tensor ids({4}, DType::kI32);
  std::ranges::copy(wanted, ids.span<int32_t>().begin());
  const DeviceTensor ids_here = upload(ids);
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const DType output : activation_dtypes()) {
      for (const int64_t H : {37, 64}) {
        SCOPED_TRACE(fmt::format("{} to {}, H = {}", to_string(dtype), to_string(output), H));
        const Tensor table = random_tensor({11, H}, dtype, 1);
        DeviceTensor y = poisoned({4, H}, output);
        ASSERT_TRUE(
            embedding(context(),
                      {.ids = ids_here.view(), .table = upload(table).view(), .y = y.view()})
                .ok());
        const std::vector<double> rows = testing::to_doubles(table.view());
        const std::vector<double> got = testing::to_doubles(download(y).view());
        for (size_t t = 0; t < 4; ++t) {
          for (size_t h = 0; h < static_cast<size_t>(H); ++h) {
            const size_t row = static_cast<size_t>(wanted[t]) * static_cast<size_t>(H);
            const double want = rows[row + h];
            const bool exact = output == dtype || output == DType::kF32;
            EXPECT_NEAR(got[t * static_cast<size_t>(H) + h], want,
                        exact ? 0 : rounding_of(output));  // numbers below 1
          }
        }
      }
    }
  }
}

TEST(EmbeddingOp, GivesTheDtypeThatTheNodeAsksFor) {
  const OpDef& op = embedding_ops()[0];
  const SymbolicDim T = SymbolicDim::of(Symbol::kTokens);
  const std::vector<TensorMeta> inputs{
      {DType::kI32, {T}}, {DType::kBf16, {SymbolicDim::fixed(9), SymbolicDim::fixed(4)}}};
  std::vector<TensorMeta> outputs;
  ASSERT_TRUE(op.infer(inputs, {}, outputs).ok());
  const Attrs asks{{"output_dtype", static_cast<double>(DType::kF16)}};
  ASSERT_TRUE(op.infer(inputs, asks, outputs).ok());
  EXPECT_EQ(outputs[0].to_string(), "float32[T, 4]");
  EXPECT_EQ(outputs[1].to_string(), "float16[T, 4]");
}

}  // namespace
}  // namespace heddle::ops
