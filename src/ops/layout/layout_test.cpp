// SPDX-License-Identifier: Apache-2.0
#include "ops/layout/layout.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/registry.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

using testing::random_tensor;

class LayoutTest : public DeviceTest {
 protected:
  Status launch(std::string_view op, const std::vector<TensorView>& inputs, DeviceTensor& output,
                const ForwardContext& forward = {}, const Attrs& attrs = {}) {
    const std::array<MutableTensorView, 1> outputs = {output.view()};
    return builtin_ops().find(op)->launch(context(), {.inputs = inputs,
                                                      .outputs = outputs,
                                                      .attrs = attrs,
                                                      .forward = forward,
                                                      .workspace = {}});
  }
};

HEDDLE_ON_EVERY_DEVICE(LayoutTest);

TEST_P(LayoutTest, CopyRowsGathersRowsOfAStridedTensor) {
  Tensor list({3}, DType::kI32);
  const std::vector<int32_t> rows = {5, 0, 5};
  std::ranges::copy(rows, list.span<int32_t>().begin());
  const DeviceTensor list_here = upload(list);
  const std::span<const int32_t> rows_here(list_here.view().as<int32_t>(), 3);
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const auto& [first, width] : {std::pair<int64_t, int64_t>{5, 9}, {8, 8}, {4, 6}}) {
      SCOPED_TRACE(fmt::format("{}, columns {} + {}", to_string(dtype), first, width));
      const Tensor wide = random_tensor({6, 24}, dtype, 2);
      const DeviceTensor wide_here = upload(wide);
      const TensorView part(wide_here.view().as<std::byte>() + bytes_of(dtype, first), dtype,
                            Shape{6, width}, 24);
      DeviceTensor y = poisoned({3, width}, dtype);
      ASSERT_TRUE(copy_rows(context(), part, rows_here, y.view()).ok());
      const std::vector<double> all = testing::to_doubles(wide.view());
      const std::vector<double> got = testing::to_doubles(download(y).view());
      for (size_t i = 0; i < got.size(); ++i) {
        const size_t r = i / static_cast<size_t>(width), c = i % static_cast<size_t>(width);
        EXPECT_EQ(got[i], all[static_cast<size_t>(rows[r]) * 24 + static_cast<size_t>(first) + c]);
      }
    }
  }
}

TEST(CopyRows, NamesARowThatIsNotThere) {
  device::ThreadPool pool(1);
  CpuContext context(pool);
  const Tensor x = random_tensor({6, 9}, DType::kF32, 2);
  Tensor y({3, 9}, DType::kF32);
  const std::vector<int32_t> outside = {0, 6, 1};
  EXPECT_EQ(copy_rows(context, x.view(), outside, y.view()).message(), "copy_rows: row 6 of 6");
}

TEST_P(LayoutTest, ConcatPutsRowsSideBySideAndRefusesAResultOfAnotherWidth) {
  const Tensor a = random_tensor({2, 3}, DType::kF32, 1);
  const Tensor b = random_tensor({2, 4}, DType::kF32, 2);
  const DeviceTensor a_here = upload(a), b_here = upload(b);
  const DeviceTensor taller = upload(random_tensor({3, 4}, DType::kF32, 3));
  for (const int64_t width : {6, 8}) {
    DeviceTensor y = poisoned({2, width}, DType::kF32);
    EXPECT_EQ(launch("concat", {a_here.view(), b_here.view()}, y).message(),
              fmt::format("concat: a is [2, 3], b is [2, 4], y is [2, {}]", width));
  }
  DeviceTensor y = poisoned({2, 7}, DType::kF32);
  EXPECT_FALSE(launch("concat", {a_here.view(), taller.view()}, y).ok());
  ASSERT_TRUE(launch("concat", {a_here.view(), b_here.view()}, y).ok());
  const Tensor got = download(y);
  for (int64_t t = 0; t < 2; ++t) {
    for (int64_t n = 0; n < 7; ++n) {
      EXPECT_EQ(got.view().row<float>(t)[n],
                n < 3 ? a.view().row<float>(t)[n] : b.view().row<float>(t)[n - 3]);
    }
  }
}

TEST_P(LayoutTest, JoinRowsMakesEveryFewRowsOne) {
  for (const DType dtype : activation_dtypes()) {
    const Tensor x = random_tensor({12, 10}, dtype, 1);
    const DeviceTensor x_here = upload(x);
    const TensorView part(x_here.view().as<std::byte>() + bytes_of(dtype, 2), dtype, Shape{12, 5},
                          10);
    const std::vector<double> all = testing::to_doubles(x.view());
    for (const int64_t count : {1, 2, 4, 12}) {
      const Attrs attrs{{"count", static_cast<double>(count)}};
      DeviceTensor y = poisoned({12 / count, 5 * count}, dtype);
      ASSERT_TRUE(launch("join_rows", {part}, y, {}, attrs).ok());
      const std::vector<double> got = testing::to_doubles(download(y).view());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], all[i / 5 * 10 + 2 + i % 5]);
      std::vector<TensorMeta> outputs;
      const TensorMeta rows(dtype,
                            {{.scale = 12, .symbol = Symbol::kTokens}, SymbolicDim::fixed(5)});
      ASSERT_TRUE(builtin_ops().find("join_rows")->infer({{rows}}, attrs, outputs).ok());
      EXPECT_EQ(outputs[0].shape_at({.tokens = 3}), Shape({36 / count, 5 * count}));
    }
  }
  const DeviceTensor x = poisoned({12, 5}, DType::kF32);
  DeviceTensor y = poisoned({2, 25}, DType::kF32);
  EXPECT_EQ(launch("join_rows", {x.view()}, y, {}, {{"count", 5.0}}).message(),
            "join_rows: x is [12, 5], y is [2, 25], 5 rows become one");
  std::vector<TensorMeta> outputs;
  const TensorMeta rows(DType::kF32, {SymbolicDim::of(Symbol::kTokens), SymbolicDim::fixed(5)});
  EXPECT_EQ(builtin_ops().find("join_rows")->infer({{rows}}, {{"count", 4.0}}, outputs).message(),
            "join_rows of float32[T, 5]: every 4 rows cannot become one");
}

TEST_P(LayoutTest, ColumnsCopiesThem) {
  const Tensor x = random_tensor({3, 20}, DType::kF32, 1);
  DeviceTensor y = poisoned({3, 8}, DType::kF32);
  ASSERT_TRUE(launch("columns", {upload(x).view()}, y, {}, {{"start", 5}, {"width", 8}}).ok());
  const Tensor got = download(y);
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t n = 0; n < 8; ++n) {
      EXPECT_EQ(got.view().row<float>(t)[n], x.view().row<float>(t)[n + 5]);
    }
  }
}

TEST_P(LayoutTest, LogitRowsTakesThoseOfTheBatch) {
  const Tensor x = random_tensor({5, 12}, DType::kF32, 1);
  const std::vector<int32_t> query_start = {0, 3, 5}, lens = {0, 7}, rows = {2, 4};
  ForwardContext forward{.query_start = query_start, .context_lens = lens, .logit_rows = rows};
  upload_batch(forward);
  DeviceTensor y = poisoned({2, 12}, DType::kF32);
  ASSERT_TRUE(launch("logit_rows", {upload(x).view()}, y, forward).ok());
  const Tensor got = download(y);
  for (int64_t n = 0; n < 12; ++n) {
    EXPECT_EQ(got.view().row<float>(0)[n], x.view().row<float>(2)[n]);
    EXPECT_EQ(got.view().row<float>(1)[n], x.view().row<float>(4)[n]);
  }
}

TEST_P(LayoutTest, NoLogitRowsWantedMeansNoneNotAll) {
  const DeviceTensor x = upload(random_tensor({1, 4}, DType::kF32, 1));
  DeviceTensor one = poisoned({1, 4}, DType::kF32);
  DeviceTensor none(device::Buffer(), DType::kF32, Shape{0, 4});
  EXPECT_TRUE(launch("logit_rows", {x.view()}, none).ok());
  EXPECT_EQ(launch("logit_rows", {x.view()}, one).message(),
            "logit_rows: x is [1, 4], y is [1, 4], 0 rows wanted");
}

}  // namespace
}  // namespace heddle::ops
