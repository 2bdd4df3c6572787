// SPDX-License-Identifier: Apache-2.0
// The promises of linear on every device; linear_test.cpp looks at the CPU's kernels one by one.
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/gemm/dense_products.h"
#include "ops/gemm/linear.h"
#include "ops/gemm/linear_reference.h"
#include "ops/gemm/product_tasks.h"
#include "quant/packed_rows.h"
#include "support/tensors.h"

namespace heddle::ops {

namespace {

using heddle::testing::random_tensor;
using heddle::testing::same_bits;

constexpr DType kAllWeights[] = {DType::kF32, DType::kBf16, DType::kF16};

class LinearDeviceTest : public DeviceTest {
 protected:
  Status run(const TensorView& x, const TensorView& weight, const TensorView& bias,
             const MutableTensorView& y, bool exact) {
    const int64_t bytes = linear_workspace_bytes(context(exact), x.shape[0], x.shape[1],
                                                 weight.shape[0], weight.dtype);
    scratch_ = workspace(bytes);
    return linear(context(exact),
                  {.x = x, .weight = weight, .bias = bias, .y = y, .workspace = scratch_.bytes()});
  }

  // Of a sum of K products, beside the rounding of y: (K + 2) roundings of fp32, coarser ones where
  // tensor cores may make it, and x rounded to bf16 where the CPU has instructions for that.
  double error_of_sum(int64_t T, int64_t K, DType weight, bool exact) {
    const bool tensor_cores = on_cuda() && !exact && (T >= 5 || weight == DType::kBf16);
    const bool rounded = !on_cuda() && rounds_x(weight, product_options(context(exact)));
    return static_cast<double>(K + 8) * (tensor_cores ? 0x1p-22 : 0x1p-24) +
           (rounded ? 0x1p-8 : 0.0);
  }

  device::Buffer scratch_;
};

HEDDLE_ON_EVERY_DEVICE(LinearDeviceTest);

TEST_P(LinearDeviceTest, MatchesTheReferenceInEveryDtype) {
  struct Case {
    int64_t T, K, N;
  };

  uint64_t seed = 0;
  for (const auto& [T, K, N] :
       {Case{1, 1, 1},      Case{1, 7, 5},       Case{1, 520, 67},   Case{2, 64, 100},
        Case{5, 257, 33},   Case{1, 512, 67},    Case{3, 2304, 70},  Case{2, 4096, 9},
        Case{4, 256, 2200}, Case{8, 96, 40},     Case{9, 64, 48},    Case{5, 768, 1537},
        Case{8, 4096, 30},  Case{13, 512, 2300}, Case{16, 2048, 65}, Case{1, 2880, 70},
        Case{16, 2880, 33}, Case{2, 32, 20},     Case{12, 576, 40},  Case{4, 1120, 9},
        Case{17, 512, 48},  Case{33, 7, 5},      Case{70, 512, 320}}) {
    for (const DType x_dtype : activation_dtypes()) {
      for (const DType weight_dtype : kAllWeights) {
        for (const DType y_dtype : {DType::kF32, x_dtype}) {
          for (const bool exact : {false, true}) {
            SCOPED_TRACE(fmt::format("T = {}, K = {}, N = {}, {} x {} = {}, exact = {}", T, K, N,
                                     to_string(x_dtype), to_string(weight_dtype),
                                     to_string(y_dtype), exact));
            const Tensor x = random_tensor({T, K}, x_dtype, ++seed);
            const Tensor weight = random_tensor({N, K}, weight_dtype, ++seed);
            const Tensor bias = random_tensor({N}, DType::kF32, ++seed);
            const bool biased = seed % 2 == 0;
            const DeviceTensor x_here = upload(x), weight_here = upload(weight);
            const DeviceTensor bias_here = upload(bias);
            DeviceTensor y = poisoned({T, N}, y_dtype);
            const Status status = run(x_here.view(), weight_here.view(),
                                      biased ? bias_here.view() : TensorView(), y.view(), exact);
            ASSERT_TRUE(status.ok()) << status.to_string();
            const LinearReference truth =
                linear_reference(x.view(), weight.view(), biased ? bias.view() : TensorView());
            const std::vector<double> got = testing::to_doubles(download(y).view());
            for (size_t i = 0; i < got.size(); ++i) {
              const double bound = truth.magnitude[i] * error_of_sum(T, K, weight_dtype, exact) +
                                   rounding_of(y_dtype) * (std::fabs(truth.y[i]) + 1.0);
              ASSERT_TRUE(std::fabs(got[i] - truth.y[i]) <= bound)
                  << fmt::format("y[{}] = {}, expected {}", i, got[i], truth.y[i]);
            }
          }
        }
      }
    }
  }
}

TEST_P(LinearDeviceTest, ExactRowsHaveTheSameBitsWhateverTheyAreComputedWith) {
  constexpr int64_t kRows = 70, kN = 61;
  for (const DType dtype : activation_dtypes()) {
    for (const int64_t K : {77, 512}) {
      const Tensor x = random_tensor({kRows, K}, dtype, 3);
      const DeviceTensor weight = upload(random_tensor({kN, K}, dtype, 4));
      const DeviceTensor x_here = upload(x);
      const auto rows_of = [&](const TensorView& view, int64_t first, int64_t T) {
        return TensorView(view.as<std::byte>() + bytes_of(view.dtype, first * view.shape[1]),
                          view.dtype, Shape{T, view.shape[1]});
      };
      DeviceTensor all = poisoned({kRows, kN}, dtype);
      ASSERT_TRUE(run(x_here.view(), weight.view(), {}, all.view(), true).ok());
      const Tensor together = download(all);
      for (const int64_t T : {1, 2, 3, 5, 8, 9, 17, 33, 69}) {
        const int64_t first = kRows - T;  // other neighbours and another place each time
        DeviceTensor y = poisoned({T, kN}, dtype);
        ASSERT_TRUE(run(rows_of(x_here.view(), first, T), weight.view(), {}, y.view(), true).ok());
        EXPECT_TRUE(same_bits(download(y).view(), rows_of(together.view(), first, T)))
            << fmt::format("{}, K = {}, T = {}", to_string(dtype), K, T);
      }
    }
  }
}

// Few rows read the weights at the speed of memory; a row's bits are its own then.
TEST_P(LinearDeviceTest, FewRowsHaveTheSameBitsInTheDefaultMode) {
  if (!on_cuda()) GTEST_SKIP() << "on the CPU tiles of rows may differ";
  constexpr int64_t kMost = 16, kN = 61;
  for (const int64_t K : {512, 2880, 96}) {  // in the last two some warps have less of K
    const Tensor x = random_tensor({kMost, K}, DType::kBf16, 3);
    const DeviceTensor weight = upload(random_tensor({kN, K}, DType::kBf16, 4));
    const DeviceTensor x_here = upload(x);
    DeviceTensor all = poisoned({kMost, kN}, DType::kF32);
    ASSERT_TRUE(run(x_here.view(), weight.view(), {}, all.view(), false).ok());
    const Tensor together = download(all);
    for (int64_t T = 1; T < kMost; ++T) {
      const int64_t first = kMost - T;
      const TensorView rows(x_here.view().as<std::byte>() + bytes_of(DType::kBf16, first * K),
                            DType::kBf16, Shape{T, K});
      DeviceTensor y = poisoned({T, kN}, DType::kF32);
      ASSERT_TRUE(run(rows, weight.view(), {}, y.view(), false).ok());
      EXPECT_TRUE(same_bits(download(y).view(), TensorView(together.view().row<float>(first),
                                                           DType::kF32, Shape{T, kN})))
          << "T = " << T << ", K = " << K;
    }
  }
}

// Columns of wider tensors, at addresses that vectors can load from and at others.
TEST_P(LinearDeviceTest, ExactBitsDependOnNeitherStridesNorAlignment) {
  constexpr int64_t kT = 19, kK = 80, kN = 21;
  for (const DType dtype : activation_dtypes()) {
    const Tensor x = random_tensor({kT, kK}, dtype, 1);
    const Tensor weight = random_tensor({kN, kK}, dtype, 2);
    const DeviceTensor x_here = upload(x), weight_here = upload(weight);
    DeviceTensor dense = poisoned({kT, kN}, dtype);
    ASSERT_TRUE(run(x_here.view(), weight_here.view(), {}, dense.view(), true).ok());
    const std::vector<double> want = testing::to_doubles(download(dense).view());
    for (const int64_t first : {16, 5}) {
      Tensor wide_x({kT, kK + 24}, dtype);
      testing::poison(wide_x);
      for (int64_t t = 0; t < kT; ++t) {
        std::memcpy(wide_x.span<std::byte>().data() + bytes_of(dtype, t * (kK + 24) + first),
                    x.span<std::byte>().data() + bytes_of(dtype, t * kK),
                    static_cast<size_t>(bytes_of(dtype, kK)));
      }
      const DeviceTensor wide_here = upload(wide_x);
      const TensorView part(wide_here.view().as<std::byte>() + bytes_of(dtype, first), dtype,
                            Shape{kT, kK}, kK + 24);
      DeviceTensor wide_y = poisoned({kT, kN + 9}, dtype);
      const MutableTensorView y(wide_y.view().as<std::byte>() + bytes_of(dtype, 4), dtype,
                                Shape{kT, kN}, kN + 9);
      for (const bool exact : {true, false}) {
        ASSERT_TRUE(run(part, weight_here.view(), {}, y, exact).ok());
        const std::vector<double> got = testing::to_doubles(download(wide_y).view());
        for (size_t i = 0; i < got.size(); ++i) {
          const size_t t = i / (kN + 9), n = i % (kN + 9);
          if (n < 4 || n >= 4 + kN) {
            EXPECT_TRUE(std::isnan(got[i])) << "beside the columns of y";
          } else if (exact) {
            EXPECT_EQ(got[i], want[t * kN + n - 4]);
          } else {
            EXPECT_NEAR(got[i], want[t * kN + n - 4], 2e-2 + 4 * rounding_of(dtype) * kK);
          }
        }
      }
    }
  }
}

TEST_P(LinearDeviceTest, ExactResultsDoNotDependOnTheDtypeThatHoldsTheWeights) {
  constexpr int64_t kT = 5, kK = 100, kN = 33;
  const DeviceTensor x = upload(random_tensor({kT, kK}, DType::kF32, 5));
  const Tensor narrow = random_tensor({kN, kK}, DType::kBf16, 6);
  Tensor wide({kN, kK}, DType::kF32);
  const std::vector<double> values = testing::to_doubles(narrow.view());
  for (size_t i = 0; i < values.size(); ++i) wide.span<float>()[i] = static_cast<float>(values[i]);
  DeviceTensor y = poisoned({kT, kN}, DType::kF32), same = poisoned({kT, kN}, DType::kF32);
  ASSERT_TRUE(run(x.view(), upload(narrow).view(), {}, y.view(), true).ok());
  ASSERT_TRUE(run(x.view(), upload(wide).view(), {}, same.view(), true).ok());
  EXPECT_TRUE(same_bits(download(y).view(), download(same).view()));
}

TEST_P(LinearDeviceTest, TakesPartInEmptyProducts) {
  const DeviceTensor weight = upload(random_tensor({3, 8}, DType::kF32, 1));
  const DeviceTensor bias = upload(random_tensor({3}, DType::kF32, 2));
  DeviceTensor y = poisoned({20, 3}, DType::kF32);
  EXPECT_TRUE(run(TensorView(weight.view().data, DType::kF32, Shape{0, 8}), weight.view(), {},
                  MutableTensorView(y.view().data, DType::kF32, Shape{0, 3}), false)
                  .ok());
  ASSERT_TRUE(run(TensorView(weight.view().data, DType::kF32, Shape{20, 0}),
                  TensorView(weight.view().data, DType::kF32, Shape{3, 0}), bias.view(), y.view(),
                  false)
                  .ok());
  EXPECT_TRUE(same_bits(TensorView(download(y).view().row<float>(19), DType::kF32, Shape{3}),
                        download(bias).view()))
      << "nothing to sum, only the bias";
}

TEST_P(LinearDeviceTest, CanBeCapturedAndReplayed) {
  if (!device().can_capture()) GTEST_SKIP() << "this device does not record";
  const DeviceTensor x = upload(random_tensor({64, 128}, DType::kBf16, 1));
  const DeviceTensor weight = upload(random_tensor({96, 128}, DType::kBf16, 2));
  const DeviceTensor bias = upload(random_tensor({96}, DType::kF32, 3));
  for (const bool exact : {false, true}) {
    DeviceTensor eager = poisoned({64, 96}, DType::kBf16);
    ASSERT_TRUE(run(x.view(), weight.view(), bias.view(), eager.view(), exact).ok());
    const Tensor want = download(eager);
    DeviceTensor y = poisoned({64, 96}, DType::kBf16);
    ASSERT_TRUE(stream().begin_capture().ok());
    const LinearArgs args{
        .x = x.view(), .weight = weight.view(), .bias = bias.view(), .y = y.view()};
    const Status status = linear(context(exact), args);
    auto work = stream().end_capture();
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_TRUE(work.ok()) << work.status().to_string();
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(stream().launch(**work).ok());
    EXPECT_TRUE(same_bits(download(y).view(), want.view()));
  }
}

// linear has a fallback that would hide a library that never finds an algorithm.
TEST_P(LinearDeviceTest, TheLibraryMultipliesPlainShapesAndAddsToWhatIsThere) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU has no such library";
  DenseProducts& products = *static_cast<CudaContext&>(context()).products;
  for (const DType dtype : activation_dtypes()) {
    for (const DType y_dtype : {dtype, DType::kF32}) {
      const Tensor x = random_tensor({40, 128}, dtype, 1);
      const Tensor weight = random_tensor({64, 128}, dtype, 2);
      const Tensor before = random_tensor({40, 64}, y_dtype, 3);
      const DeviceTensor x_here = upload(x), weight_here = upload(weight);
      DeviceTensor y = upload(before);
      const Status status = products.multiply(
          device::as_cuda(stream()),
          {.x = x_here.view(), .weight = weight_here.view(), .y = y.view(), .accumulate = true});
      ASSERT_TRUE(status.ok()) << status.to_string();
      const LinearReference truth = linear_reference(x.view(), weight.view(), {});
      const std::vector<double> was = testing::to_doubles(before.view());
      const std::vector<double> got = testing::to_doubles(download(y).view());
      for (size_t i = 0; i < got.size(); ++i) {
        const double want = truth.y[i] + was[i];
        ASSERT_NEAR(got[i], want,
                    truth.magnitude[i] * error_of_sum(40, 128, dtype, false) +
                        rounding_of(y_dtype) * (std::fabs(want) + std::fabs(truth.y[i])))
            << to_string(dtype) << " to " << to_string(y_dtype);
      }
    }
  }
}

TEST_P(LinearDeviceTest, RefusesQuantisedWeightsOfAnotherDevicesMemory) {
  const DeviceTensor x = poisoned({1, 8}, DType::kF32);
  DeviceTensor y = poisoned({1, 3}, DType::kF32);
  const quant::PackedWeight packed{.on_gpu = !on_cuda()};
  TensorView weight(nullptr, DType::kPacked, Shape{3, 8});
  weight.packed = &packed;
  EXPECT_EQ(run(x.view(), weight, {}, y.view(), false).message(),
            fmt::format("linear: weight is quantised in memory of the {}, which this device does "
                        "not read",
                        on_cuda() ? "host" : "GPU"));
}

}  // namespace

}  // namespace heddle::ops
