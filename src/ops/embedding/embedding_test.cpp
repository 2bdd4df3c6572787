// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding/embedding.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/gemm/packed_fixture.h"
#include "ops/registry.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

using heddle::testing::random_tensor;
using heddle::testing::to_doubles;

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
        const std::vector<double> rows = to_doubles(table.view());
        const std::vector<double> got = to_doubles(download(y).view());
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

// Rows in several formats, one of them not quantised.
TEST(Embedding, DequantisesTheRowsOfAQuantisedTable) {
  constexpr int64_t H = 512;
  std::vector<std::unique_ptr<testing::PackedTensor>> packed;
  quant::PackedWeight table;
  std::vector<float> expected;  // [V, H]
  const auto append = [&](quant::PackedWeight::Part part) {
    part.first_row = static_cast<int64_t>(expected.size()) / H;
    table.parts.push_back(std::move(part));
  };
  for (const testing::PackedForm& form : testing::packed_forms(/*on_host=*/true)) {
    packed.push_back(std::make_unique<testing::PackedTensor>(
        Shape{2, H}, testing::random_matrix(form, 2, H, 7), true));
    append({.num_rows = 2, .packed = packed.back()->rows()});
    const Tensor rows = packed.back()->dequantised();
    expected.insert(expected.end(), rows.span<float>().begin(), rows.span<float>().end());
  }
  const Tensor plain = random_tensor({1, H}, DType::kBf16, 3);
  append({.num_rows = 1, .plain = plain.view()});
  for (const double value : to_doubles(plain.view())) {
    expected.push_back(static_cast<float>(value));
  }
  const int64_t V = std::ssize(expected) / H;
  TensorView view(nullptr, DType::kPacked, {V, H});
  view.packed = &table;
  Tensor ids({V + 1}, DType::kI32);
  for (int32_t t = 0; t <= V; ++t) {
    ids.span<int32_t>()[static_cast<size_t>(t)] = (t * 5 + 3) % static_cast<int32_t>(V);
  }
  testing::GuardedTensor y({V + 1, H}, DType::kF32, 5);
  device::ThreadPool pool(2);
  CpuContext context(pool, true);
  const Status status = embedding(context, {.ids = ids.view(), .table = view, .y = y.view()});
  ASSERT_TRUE(status.ok()) << status.message();
  for (int64_t t = 0; t <= V; ++t) {
    const int64_t id = ids.span<int32_t>()[static_cast<size_t>(t)];
    for (int64_t h = 0; h < H; ++h) {
      ASSERT_EQ(y.view().row<float>(t)[h], expected[static_cast<size_t>(id * H + h)])
          << "id " << id << ", column " << h;
    }
  }
  EXPECT_TRUE(y.padding_untouched());
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
