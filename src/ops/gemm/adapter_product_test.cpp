// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/adapter_product.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/thread_pool.h"
#include "ops/gemm/adapter_product_reference.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

using heddle::testing::random_tensor;
using ::testing::HasSubstr;

struct AdapterSizes {
  int64_t K, N, R;
  int64_t num_parts = 1;
  int64_t num_slots = 3;
};

Tensor int_tensor(const Shape& shape, const std::vector<int32_t>& values) {
  Tensor tensor(shape, DType::kI32);
  std::ranges::copy(values, tensor.span<int32_t>().begin());
  return tensor;
}

// The adapters of all slots of one layer.
struct SlotWeights {
  SlotWeights(const AdapterSizes& sizes, DType dtype)
      : a(random_tensor({sizes.num_slots, sizes.num_parts * sizes.R, sizes.K}, dtype, 1)),
        b(random_tensor({sizes.num_slots, sizes.N, sizes.R}, dtype, 2)),
        parts({sizes.num_slots, sizes.N}, DType::kI32),
        scales(random_tensor({sizes.num_slots}, DType::kF32, 3)) {
    // The part changes after every five columns, in another order for each slot.
    for (int64_t i = 0; i < sizes.num_slots * sizes.N; ++i) {
      parts.span<int32_t>()[static_cast<size_t>(i)] =
          static_cast<int32_t>((i % sizes.N / 5 + i / sizes.N) % sizes.num_parts);
    }
  }

  Tensor a, b, parts, scales;
};

// Runs both products. The rows of h are strided.
class AdapterProductTest : public ::testing::Test {
 protected:
  Status run(const SlotWeights& slots, const std::vector<int32_t>& slot_of_row, const Tensor& x,
             Tensor& y, int num_threads = 2) {
    return run(slots, slot_of_row, x, y.view(), num_threads, 0);
  }

  Status run(const SlotWeights& slots, const std::vector<int32_t>& slot_of_row, const Tensor& x,
             const MutableTensorView& y, int num_threads, int64_t first) {
    device::ThreadPool pool(num_threads);
    CpuContext context(pool);
    const auto T = std::ssize(slot_of_row);
    const Tensor rows = int_tensor({T}, slot_of_row);
    Tensor h({T, slots.a.shape()[1] + 3}, DType::kF32);
    heddle::testing::poison(h);
    MutableTensorView h_view(h.view().data, DType::kF32, {T, slots.a.shape()[1]});
    h_view.row_stride = h.shape()[1];
    const Status shrunk = adapter_shrink(context, {.x = x.view(),
                                                   .a = slots.a.view(),
                                                   .slots = rows.view(),
                                                   .scales = slots.scales.view(),
                                                   .h = h_view});
    if (!shrunk.ok()) return shrunk;
    return adapter_expand(context, {.h = h_view,
                                    .b = slots.b.view(),
                                    .parts = slots.parts.view(),
                                    .slots = rows.view(),
                                    .y = y,
                                    .first = first});
  }
};

TEST_F(AdapterProductTest, MatchesTheReferenceInEveryDtype) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const AdapterSizes& sizes :
         {AdapterSizes{1, 1, 1}, AdapterSizes{7, 5, 3}, AdapterSizes{130, 70, 8, 3},
          AdapterSizes{64, 33, 13, 2}, AdapterSizes{512, 48, 64, 4, 8}}) {
      const SlotWeights slots(sizes, dtype);
      for (const std::vector<int32_t>& rows : std::vector<std::vector<int32_t>>{
               {}, {0}, {-1}, {2, 2, 2, 0, -1, 1, 1, 2}, std::vector<int32_t>(40, 1)}) {
        SCOPED_TRACE(fmt::format("{}, K = {}, N = {}, R = {}, P = {}, {} rows", to_string(dtype),
                                 sizes.K, sizes.N, sizes.R, sizes.num_parts, rows.size()));
        const auto T = std::ssize(rows);
        const Tensor x = random_tensor({T, sizes.K}, DType::kF32, 4);
        Tensor y = random_tensor({T, sizes.N}, DType::kF32, 5);
        std::vector<double> magnitude;
        const std::vector<double> want = adapter_reference(
            x.view(), slots.a.view(), slots.b.view(), slots.parts.view(),
            int_tensor({T}, rows).view(), slots.scales.view(), y.view(), &magnitude);
        const Status status = run(slots, rows, x, y);
        ASSERT_TRUE(status.ok()) << status.to_string();
        // An element is a chain of two sums, of K and of R products.
        const double error = static_cast<double>(sizes.K + sizes.R + 8) * 0x1p-24;
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_NEAR(y.span<float>()[i], want[i], error * magnitude[i]) << i;
        }
      }
    }
  }
}

TEST_F(AdapterProductTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  const AdapterSizes sizes{257, 100, 16, 3, 4};
  const SlotWeights slots(sizes, DType::kBf16);
  const std::vector<int32_t> rows = {3, 3, -1, 0, 1, 1, 1, 1, 1, -1, 2, 0};
  const auto T = std::ssize(rows);
  const Tensor x = random_tensor({T, sizes.K}, DType::kF32, 6);
  const Tensor before = random_tensor({T, sizes.N}, DType::kF32, 7);
  for (const int num_threads : {1, 3}) {
    Tensor together = random_tensor({T, sizes.N}, DType::kF32, 7);
    ASSERT_TRUE(run(slots, rows, x, together, num_threads).ok());
    for (int64_t t = 0; t < T; ++t) {
      Tensor row({1, sizes.K}, DType::kF32), y({1, sizes.N}, DType::kF32);
      std::copy_n(x.view().row<float>(t), sizes.K, row.span<float>().begin());
      std::copy_n(before.view().row<float>(t), sizes.N, y.span<float>().begin());
      ASSERT_TRUE(run(slots, {rows[static_cast<size_t>(t)]}, row, y).ok());
      const auto bytes = static_cast<size_t>(sizes.N) * sizeof(float);
      EXPECT_EQ(std::memcmp(y.view().data, together.view().row<float>(t), bytes), 0) << t;
      const bool changed = std::memcmp(y.view().data, before.view().row<float>(t), bytes) != 0;
      EXPECT_EQ(changed, rows[static_cast<size_t>(t)] >= 0) << t;
    }
  }
}

TEST_F(AdapterProductTest, ARowWithoutAnAdapterHasZerosBetweenTheProducts) {
  const SlotWeights slots({9, 4, 3, 2}, DType::kF32);
  device::ThreadPool pool(1);
  CpuContext context(pool);
  const Tensor x = random_tensor({3, 9}, DType::kF32, 1), rows = int_tensor({3}, {1, -1, 0});
  Tensor h({3, 6}, DType::kF32);
  heddle::testing::poison(h);
  ASSERT_TRUE(adapter_shrink(context, {.x = x.view(),
                                       .a = slots.a.view(),
                                       .slots = rows.view(),
                                       .scales = slots.scales.view(),
                                       .h = h.view()})
                  .ok());
  for (int64_t j = 0; j < 6; ++j) {
    EXPECT_NE(h.view().row<float>(0)[j], 0);
    EXPECT_EQ(h.view().row<float>(1)[j], 0);
    EXPECT_NE(h.view().row<float>(2)[j], 0);
  }
}

// Computing the columns of a layer in several calls gives the same bits as in one call.
TEST_F(AdapterProductTest, ColumnsOfALayerMayBeApart) {
  const AdapterSizes sizes{40, 31, 8, 2, 2};
  const SlotWeights slots(sizes, DType::kF32);
  const Tensor x = random_tensor({3, sizes.K}, DType::kF32, 8);
  Tensor whole = random_tensor({3, sizes.N}, DType::kF32, 9);
  ASSERT_TRUE(run(slots, {1, -1, 0}, x, whole).ok());
  Tensor apart = random_tensor({3, sizes.N}, DType::kF32, 9);
  for (const auto& [first, width] : {std::pair<int64_t, int64_t>(0, 7), {7, 1}, {8, 23}}) {
    MutableTensorView columns(apart.span<float>().data() + first, DType::kF32, {3, width});
    columns.row_stride = sizes.N;
    ASSERT_TRUE(run(slots, {1, -1, 0}, x, columns, 2, first).ok());
  }
  EXPECT_TRUE(heddle::testing::same_bits(apart.view(), whole.view()));
}

TEST_F(AdapterProductTest, NamesWhatDoesNotFit) {
  const AdapterSizes sizes{8, 6, 2, 2, 2};
  const auto message = [&](auto&& change, const std::vector<int32_t>& rows = {0, 1}) {
    SlotWeights slots(sizes, DType::kF32);
    Tensor x = random_tensor({2, sizes.K}, DType::kF32, 1);
    Tensor y = random_tensor({2, sizes.N}, DType::kF32, 2);
    change(slots, x, y);
    return run(slots, rows, x, y).message();
  };
  const auto as_is = [](SlotWeights&, Tensor&, Tensor&) {};
  EXPECT_THAT(message(as_is, {0, 2}),
              HasSubstr("adapter_shrink: slots has 2 at index 1, it must be from -1 to 1"));
  EXPECT_THAT(message(as_is, {-2, 0}), HasSubstr("slots has -2 at index 0"));
  EXPECT_THAT(
      message([](SlotWeights& s, Tensor&, Tensor&) { s.parts.span<int32_t>()[7] = 2; }),
      HasSubstr("adapter_expand: parts has 2 for column 1 of slot 1, it must be from 0 to 1"));
  EXPECT_EQ(
      message([](SlotWeights& s, Tensor&, Tensor&) { s.parts.span<int32_t>()[7] = 2; }, {0, -1}),
      "")
      << "no row has slot 1";
  EXPECT_THAT(message([](SlotWeights& s, Tensor&, Tensor&) {
                s.b = random_tensor({2, 6, 3}, DType::kF32, 1);
              }),
              HasSubstr("adapter_expand: R is 3"));
  EXPECT_THAT(
      message([](SlotWeights&, Tensor& x, Tensor&) { x = random_tensor({2, 9}, DType::kF32, 1); }),
      HasSubstr("adapter_shrink: a has K = 8, x has K = 9"));
  EXPECT_THAT(
      message([](SlotWeights&, Tensor&, Tensor& y) { y = random_tensor({2, 7}, DType::kF32, 1); }),
      HasSubstr("adapter_expand: first is 0"));
}

}  // namespace
}  // namespace heddle::ops
