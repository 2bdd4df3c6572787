// SPDX-License-Identifier: Apache-2.0
// The promises of linear on every device where the weight is quantised; packed_product_test.cpp
// looks at the CPU's kernels one by one.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gemm/linear.h"
#include "ops/gemm/linear_reference.h"
#include "ops/gemm/packed_fixture.h"
#include "ops/gemm/skinny_product.h"
#include "ops/norm/rms_norm.h"
#include "support/tensors.h"

namespace heddle::ops {

namespace {

using heddle::testing::random_tensor;
using heddle::testing::same_bits;
using testing::packed_forms;
using testing::PackedForm;
using testing::PackedTensor;
using testing::random_matrix;

PackedTensor random_weight(const PackedForm& form, int64_t N, int64_t K, uint64_t seed) {
  return {{N, K}, random_matrix(form, N, K, seed), /*may_round_x=*/false};
}

class PackedLinearTest : public DeviceTest {
 protected:
  [[nodiscard]] std::vector<PackedForm> forms() const { return packed_forms(!on_cuda()); }

  Tensor run(const TensorView& x, const TensorView& weight, DType y_dtype, bool exact,
             const TensorView& bias = {}) {
    const int64_t T = x.shape[0], N = weight.shape[0];
    DeviceTensor y = poisoned({T, N}, y_dtype);
    const int64_t bytes = linear_workspace_bytes(context(exact), T, x.shape[1], N, weight.dtype);
    DeviceTensor scratch = poisoned({bytes}, DType::kU8);
    const Status status =
        linear(context(exact),
               {.x = x,
                .weight = weight,
                .bias = bias,
                .y = y.view(),
                .workspace = {scratch.view().as<std::byte>(), static_cast<size_t>(bytes)}});
    EXPECT_TRUE(status.ok()) << status.to_string();
    return download(y);
  }
};

HEDDLE_ON_EVERY_DEVICE(PackedLinearTest);

// Widths that end within a chunk of codes, a group, an octet; rows that fill no tile.
TEST_P(PackedLinearTest, ExactModeGivesTheBitsOfTheDequantisedMatrix) {
  struct Case {
    int64_t T, K, N;
  };

  uint64_t seed = 0;
  for (const PackedForm& form : forms()) {
    for (const auto& [T, K, N] : {Case{1, 32, 5}, Case{3, 576, 70}, Case{1, 2880, 33},
                                  Case{5, 201, 19}, Case{6, 2880, 900}, Case{17, 96, 300}}) {
      const PackedTensor weight = random_weight(form, N, K, ++seed);
      const DevicePacked packed = upload(weight.weight());
      const DeviceTensor dense = upload(weight.dequantised());
      const DeviceTensor bias = upload(random_tensor({N}, DType::kF32, ++seed));
      for (const DType dtype : activation_dtypes()) {
        SCOPED_TRACE(
            fmt::format("{}, T = {}, K = {}, N = {}, {}", form.name, T, K, N, to_string(dtype)));
        const DeviceTensor x = upload(random_tensor({T, K}, dtype, ++seed));
        const Tensor got = run(x.view(), packed.view({N, K}), DType::kF32, true, bias.view());
        const Tensor want = run(x.view(), dense.view(), DType::kF32, true, bias.view());
        ASSERT_TRUE(same_bits(got.view(), want.view()));
      }
    }
  }
}

TEST_P(PackedLinearTest, TheDefaultModeMatchesTheDequantisedMatrix) {
  struct Case {
    int64_t T, K, N;
  };

  uint64_t seed = 100;
  for (const PackedForm& form : forms()) {
    for (const auto& [T, K, N] :
         {Case{1, 576, 70}, Case{16, 2880, 33}, Case{17, 2880, 40}, Case{40, 201, 37},
          Case{70, 512, 300}, Case{1, 2944, 601}, Case{1, 128, 3}, Case{2, 512, 1100},
          Case{5, 1152, 90}, Case{13, 256, 1090}, Case{16, 1024, 70}}) {
      const PackedTensor weight = random_weight(form, N, K, ++seed);
      const DevicePacked packed = upload(weight.weight());
      const Tensor bias = random_tensor({N}, DType::kF32, ++seed);
      const DeviceTensor bias_here = upload(bias);
      for (const DType dtype : activation_dtypes()) {
        SCOPED_TRACE(fmt::format("{}, T = {}, K = {}, {}", form.name, T, K, to_string(dtype)));
        const Tensor x = random_tensor({T, K}, dtype, ++seed);
        const Tensor y = run(upload(x).view(), packed.view({N, K}), dtype, false, bias_here.view());
        const LinearReference truth =
            linear_reference(x.view(), weight.dequantised().view(), bias.view());
        const std::vector<double> got = heddle::testing::to_doubles(y.view());
        // With few rows the stored numbers are multiplied, with more rows those rounded to x's
        // dtype.
        const double of_weight = on_cuda() && T > 16 ? rounding_of(dtype) : 0.0;
        for (size_t i = 0; i < got.size(); ++i) {
          const double bound =
              truth.magnitude[i] * (static_cast<double>(K + 8) * 0x1p-22 + of_weight) +
              2 * rounding_of(dtype) * (std::fabs(truth.y[i]) + 1.0);
          ASSERT_TRUE(std::fabs(got[i] - truth.y[i]) <= bound)
              << fmt::format("y[{}] = {}, expected {} within {}", i, got[i], truth.y[i], bound);
        }
      }
    }
  }
}

// The first width has codes that no tensor core takes.
TEST_P(PackedLinearTest, UpToSixteenRowsHaveBitsOfTheirOwn) {
  if (!on_cuda()) GTEST_SKIP() << "on the CPU tiles of rows may differ";
  for (const PackedForm& form : forms()) {
    for (const int64_t K : {2880, 640}) {
      const PackedTensor weight = random_weight(form, 61, K, 7);
      const DevicePacked packed = upload(weight.weight());
      const Tensor x = random_tensor({16, K}, DType::kBf16, 8);
      const DeviceTensor x_here = upload(x);
      const Tensor together = run(x_here.view(), packed.view({61, K}), DType::kF32, false);
      for (const int64_t T : {1, 2, 3, 7, 8, 15}) {
        const TensorView rows(x_here.view().as<Bf16>() + (16 - T) * K, DType::kBf16, Shape{T, K});
        const Tensor some = run(rows, packed.view({61, K}), DType::kF32, false);
        EXPECT_TRUE(same_bits(
            some.view(), TensorView(together.view().row<float>(16 - T), DType::kF32, Shape{T, 61})))
            << form.name << ", T = " << T << ", K = " << K;
      }
    }
  }
}

// Numbers of E4M3 below its smallest normal one, small and large activations.
TEST_P(PackedLinearTest, SmallNumbersAreNotLost) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU's rows of x are fp32";
  constexpr int64_t kK = 128, kN = 9;
  quant::UnpackedMatrix matrix = random_matrix(packed_forms()[9], kN, kK, 4);
  for (uint8_t& code : matrix.codes) code &= 0x87;
  const PackedTensor weight({kN, kK}, matrix, false);
  const DevicePacked packed = upload(weight.weight());
  for (const float size : {1e-20f, 1e-3f, 1e12f}) {
    Tensor x = random_tensor({3, kK}, DType::kBf16, 5);
    for (Bf16& value : x.span<Bf16>()) value = to_bf16(to_float(value) * size);
    const std::vector<double> got = heddle::testing::to_doubles(
        run(upload(x).view(), packed.view({kN, kK}), DType::kF32, false).view());
    const LinearReference truth = linear_reference(x.view(), weight.dequantised().view(), {});
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], truth.y[i], truth.magnitude[i] * 0x1p-7) << "times " << size;
    }
  }
}

// As in a decode step: what lies before and behind a product is computed with it.
// The forms of integer codes that kernels of few rows take.
std::vector<PackedForm> integer_forms() {
  std::vector<PackedForm> forms;
  for (const PackedForm& form : packed_forms()) {
    if (form.name == std::string_view("INT8") ||
        form.name == std::string_view("AWQ in wide groups") ||
        form.name == std::string_view("compressed-tensors, 4 bits")) {
      forms.push_back(form);
    }
  }
  return forms;
}

// One number of 64 is 3,000 times as large as the others, in rows of every size: the others count
// down to 2^-15 of it.
TEST_P(PackedLinearTest, ALargeActivationHidesNoOthers) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU's rows of x are fp32";
  constexpr int64_t kK = 384, kN = 21;
  for (const PackedForm& form : integer_forms()) {
    const PackedTensor weight = random_weight(form, kN, kK, 4);
    const DevicePacked packed = upload(weight.weight());
    const Tensor dequantised = weight.dequantised();
    for (const float size : {1e-33f, 1e-20f, 1.0f, 1e12f, 1e30f}) {
      Tensor x = random_tensor({5, kK}, DType::kBf16, 5);
      for (int64_t i = 0; i < 5 * kK; ++i) {
        Bf16& value = x.span<Bf16>()[static_cast<size_t>(i)];
        value = to_bf16(to_float(value) * size * (i % 64 == 7 ? 3000.0f : 1.0f));
      }
      const std::vector<double> got = heddle::testing::to_doubles(
          run(upload(x).view(), packed.view({kN, kK}), DType::kF32, false).view());
      const LinearReference truth = linear_reference(x.view(), dequantised.view(), {});
      const std::vector<double> w = heddle::testing::to_doubles(dequantised.view());
      const std::vector<double> rows = heddle::testing::to_doubles(x.view());
      for (int64_t i = 0; i < 5 * kN; ++i) {
        double bound = truth.magnitude[static_cast<size_t>(i)] * 0x1p-20;
        for (int64_t unit = 0; unit < kK; unit += 64) {
          double largest = 0;
          double weights = 0;
          for (int64_t k = unit; k < unit + 64; ++k) {
            largest = std::max(largest, std::fabs(rows[static_cast<size_t>(i / kN * kK + k)]));
            weights += std::fabs(w[static_cast<size_t>(i % kN * kK + k)]);
          }
          bound += 0x1p-15 * largest * weights;
        }
        ASSERT_LE(std::fabs(got[static_cast<size_t>(i)] - truth.y[static_cast<size_t>(i)]), bound)
            << form.name << ", times " << size << ", y[" << i << "]";
      }
    }
  }
}

TEST_P(PackedLinearTest, ANumberThatIsNotFiniteStaysInItsRow) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU's rows of x are fp32";
  constexpr int64_t kK = 256, kN = 19, kT = 9;
  for (const PackedForm& form : integer_forms()) {
    const PackedTensor weight = random_weight(form, kN, kK, 4);
    const DevicePacked packed = upload(weight.weight());
    Tensor x = random_tensor({kT, kK}, DType::kBf16, 5);
    const Tensor before = run(upload(x).view(), packed.view({kN, kK}), DType::kF32, false);
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      x.span<Bf16>()[3 * kK + 100] = to_bf16(bad);
      const Tensor after = run(upload(x).view(), packed.view({kN, kK}), DType::kF32, false);
      for (int64_t i = 0; i < kT * kN; ++i) {
        const float got = after.span<const float>()[static_cast<size_t>(i)];
        if (i / kN == 3) {
          EXPECT_FALSE(std::isfinite(got)) << form.name << ", " << bad;
        } else {
          EXPECT_EQ(got, before.span<const float>()[static_cast<size_t>(i)]) << form.name;
        }
      }
    }
  }
}

TEST_P(PackedLinearTest, NormsGatesAndSumsBesideAProductGiveTheBitsOfSingleOps) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU computes them one by one";

  struct Case {
    size_t form;
    int64_t K, N, second;  // columns of either product
  };

  auto& cuda = static_cast<CudaContext&>(context(false));
  // The last two are large enough for the kernel of many bytes.
  for (const auto& [form, kK, kN, kSecond] :
       {Case{1, 640, 70, 5}, Case{2, 640, 70, 5}, Case{7, 640, 70, 5}, Case{9, 640, 70, 5},
        Case{7, 4096, 12290, 12289}, Case{9, 2048, 24601, 24580}}) {
    SCOPED_TRACE(fmt::format("{}, N = {}", packed_forms()[form].name, kN));
    const PackedTensor weight = random_weight(packed_forms()[form], kN, kK, 3);
    const DevicePacked packed = upload(weight.weight());
    const PackedTensor second = random_weight(packed_forms()[form], kSecond, kK, 4);
    const DevicePacked second_here = upload(second.weight());
    const DeviceTensor norm_weight = upload(random_tensor({kK}, DType::kF32, 5));
    for (const int64_t T : {1, 2, 8, 13}) {
      SCOPED_TRACE(T);
      const DeviceTensor a = upload(random_tensor({T, kK}, DType::kBf16, 6));
      const DeviceTensor b = upload(random_tensor({T, kK}, DType::kBf16, 7));
      DeviceTensor x = poisoned({T, kK}, DType::kBf16);
      DeviceTensor y = poisoned({T, kN}, DType::kBf16);
      DeviceTensor other = poisoned({T, kSecond}, DType::kF32);
      const std::vector<LinearArgs> products = {
          {.x = x.view(), .weight = packed.view({kN, kK}), .y = y.view()},
          {.x = x.view(), .weight = second_here.view({kSecond, kK}), .y = other.view()}};
      // A norm, and two products of it.
      const RmsNormArgs norm{.x = a.view(), .weight = norm_weight.view(), .y = x.view()};
      ASSERT_TRUE(rms_norm(cuda, norm).ok());
      for (const LinearArgs& product : products) ASSERT_TRUE(linear(cuda, product).ok());
      const Tensor want_x = download(x), want_y = download(y), want_other = download(other);
      const SkinnyProducts normed{.products = products, .norm = norm};
      ASSERT_TRUE(skinny_products_fit(cuda, normed));
      ASSERT_TRUE(skinny_products(cuda, normed).ok());
      EXPECT_TRUE(same_bits(download(x).view(), want_x.view()));
      EXPECT_TRUE(same_bits(download(y).view(), want_y.view()));
      EXPECT_TRUE(same_bits(download(other).view(), want_other.view()));
      // A gate, and a sum with the residual.
      const ElementwiseArgs gate{
          .kind = ElementwiseKind::kSiluMul, .a = a.view(), .b = b.view(), .y = x.view()};
      ASSERT_TRUE(elementwise(cuda, gate).ok());
      ASSERT_TRUE(linear(cuda, products[0]).ok());
      DeviceTensor sum = upload(random_tensor({T, kN}, DType::kBf16, 8));
      DeviceTensor residual = upload(download(sum));
      ASSERT_TRUE(elementwise(cuda, {.a = sum.view(), .b = y.view(), .y = sum.view()}).ok());
      SkinnyProducts added{.products = {products.data(), 1}, .residual = residual.view()};
      if (T == 1) added.gate = gate;
      ASSERT_TRUE(skinny_products_fit(cuda, added));
      ASSERT_TRUE(skinny_products(cuda, added).ok());
      EXPECT_TRUE(same_bits(download(residual).view(), download(sum).view()));
    }
  }
}

// 32 MiB of the weight are dequantised together.
TEST_P(PackedLinearTest, WideWeightsAreMultipliedInSlices) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU dequantises a few rows at a time";
  constexpr int64_t kT = 17, kK = 4096, kN = 4110, kFirst = 4080;
  const PackedTensor weight = random_weight(packed_forms()[9], kN, kK, 3);
  const DevicePacked packed = upload(weight.weight());
  const Tensor x = random_tensor({kT, kK}, DType::kBf16, 4);
  const Tensor y = run(upload(x).view(), packed.view({kN, kK}), DType::kF32, false);
  const Tensor dense = weight.dequantised();
  const LinearReference truth = linear_reference(
      x.view(), TensorView(dense.view().row<float>(kFirst), DType::kF32, Shape{kN - kFirst, kK}),
      {});
  for (int64_t t = 0; t < kT; ++t) {
    for (int64_t n = kFirst; n < kN; ++n) {
      const auto i = static_cast<size_t>(t * (kN - kFirst) + n - kFirst);
      ASSERT_NEAR(static_cast<double>(y.view().row<float>(t)[n]), truth.y[i],
                  truth.magnitude[i] * 0x1p-8);
    }
  }
}

// Large weights with 8-bit codes have a separate kernel; wide rows are processed a few at a time.
TEST_P(PackedLinearTest, LargeAndWideWeightsMatchTheirNumbersAndARowsBitsDependOnNoOthers) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU has no kernel of its own for them";

  struct Case {
    size_t form;
    int64_t K, N;
  };

  constexpr int64_t kT = 16, kAround = 40;
  for (const auto& [form, K, N] :
       {Case{9, 2880, 17480}, Case{8, 640, 80013}, Case{7, 2048, 24601}, Case{7, 576, 90001},
        Case{10, 5120, 9834}, Case{9, 14336, 3700}, Case{8, 16384, 90}, Case{1, 16384, 70}}) {
    SCOPED_TRACE(fmt::format("{}, K = {}, N = {}", packed_forms()[form].name, K, N));
    const PackedTensor weight = random_weight(packed_forms()[form], N, K, 3);
    const DevicePacked packed = upload(weight.weight());
    const DeviceTensor bias = upload(random_tensor({N}, DType::kF32, 5));
    const Tensor x = random_tensor({kT, K}, DType::kBf16, 4);
    Tensor all;
    for (const int64_t T : {16, 1, 2, 7, 8, 9}) {
      SCOPED_TRACE(T);
      Tensor rows({T, K}, DType::kBf16);
      std::memcpy(rows.view().data, x.view().data, static_cast<size_t>(2 * T * K));
      Tensor y = run(upload(rows).view(), packed.view({N, K}), DType::kF32, false, bias.view());
      if (T == kT) {
        all = std::move(y);
        continue;
      }
      EXPECT_EQ(std::memcmp(y.view().data, all.view().data, static_cast<size_t>(4 * T * N)), 0);
    }
    Tensor spoilt({kT, K}, DType::kBf16);
    std::memcpy(spoilt.view().data, x.view().data, static_cast<size_t>(2 * kT * K));
    spoilt.span<Bf16>()[static_cast<size_t>(3 * K + 100)] =
        to_bf16(std::numeric_limits<float>::quiet_NaN());
    const Tensor beside =
        run(upload(spoilt).view(), packed.view({N, K}), DType::kF32, false, bias.view());
    for (int64_t t = 0; t < kT; ++t) {
      const float* const row = beside.view().row<float>(t);
      if (t == 3) {
        EXPECT_TRUE(std::all_of(row, row + N, [](float y) { return std::isnan(y); }));
      } else {
        EXPECT_EQ(std::memcmp(row, all.view().row<float>(t), static_cast<size_t>(4 * N)), 0) << t;
      }
    }
    const Tensor dense = weight.dequantised(), own_bias = download(bias);
    for (const int64_t first : {int64_t{0}, (N - kAround) / 2, N - kAround}) {
      const LinearReference truth = linear_reference(
          x.view(), TensorView(dense.view().row<float>(first), DType::kF32, Shape{kAround, K}),
          TensorView(own_bias.view().as<float>() + first, DType::kF32, Shape{kAround}));
      for (int64_t i = 0; i < kT * kAround; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_NEAR(static_cast<double>(all.view().row<float>(i / kAround)[first + i % kAround]),
                    truth.y[at], truth.magnitude[at] * 0x1p-11);
      }
    }
  }
}

// Projections with different formats, one not quantised, write columns of y.
TEST_P(PackedLinearTest, AWeightOfSeveralPartsIsOneProduct) {
  constexpr int64_t kK = 192;
  const auto forms = packed_forms();
  const PackedTensor first = random_weight(forms[0], 16, kK, 1);
  const PackedTensor last = random_weight(forms[9], 9, kK, 2);
  const Tensor plain = random_tensor({3, kK}, DType::kBf16, 3);
  quant::PackedWeight all;
  all.parts.push_back({.first_row = 0, .num_rows = 16, .packed = first.rows()});
  all.parts.push_back({.first_row = 16, .num_rows = 3, .plain = plain.view()});
  all.parts.push_back({.first_row = 19, .num_rows = 9, .packed = last.rows()});
  const DevicePacked packed = upload(all);
  Tensor dense({28, kK}, DType::kF32);
  std::ranges::copy(first.dequantised().span<float>(), dense.span<float>().begin());
  for (int64_t i = 0; i < 3 * kK; ++i) {
    dense.view().row<float>(16)[i] = to_float(plain.view().as<Bf16>()[i]);
  }
  std::ranges::copy(last.dequantised().span<float>(), dense.span<float>().begin() + 19 * kK);
  const DeviceTensor dense_here = upload(dense);
  for (const int64_t T : {1, 16, 40}) {
    const DeviceTensor x = upload(random_tensor({T, kK}, DType::kF32, 4));
    const Tensor got = run(x.view(), packed.view({28, kK}), DType::kF32, true);
    EXPECT_TRUE(same_bits(got.view(), run(x.view(), dense_here.view(), DType::kF32, true).view()));
    const std::vector<double> quick = heddle::testing::to_doubles(
        run(x.view(), packed.view({28, kK}), DType::kF32, false).view());
    const std::vector<double> want = heddle::testing::to_doubles(got.view());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(quick[i], want[i], 0.05);
  }
}

// The same in bf16, where parts have kernels of their own, alone and between others.
TEST_P(PackedLinearTest, PartsOfAWeightHaveTheBitsOfWeightsOfTheirOwn) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU's kernels of few rows differ";
  constexpr int64_t kK = 512;
  const auto forms = packed_forms();
  for (const size_t middle : {8U, 0U, 1U}) {  // all E4M3; a format without tensor cores; another
                                              // code
    const PackedTensor first = random_weight(forms[9], 16, kK, 1);
    const PackedTensor second = random_weight(forms[middle], 13, kK, 2);
    const Tensor plain = random_tensor({3, kK}, DType::kBf16, 3);
    for (const bool with_plain : {false, true}) {
      const int64_t N = with_plain ? 32 : 29;
      quant::PackedWeight all;
      all.parts.push_back({.first_row = 0, .num_rows = 16, .packed = first.rows()});
      all.parts.push_back({.first_row = 16, .num_rows = 13, .packed = second.rows()});
      if (with_plain) all.parts.push_back({.first_row = 29, .num_rows = 3, .plain = plain.view()});
      const DevicePacked together = upload(all);
      const DevicePacked own[] = {upload(first.weight()), upload(second.weight())};
      const DeviceTensor plain_here = upload(plain);
      for (const int64_t T : {1, 11, 16}) {
        const DeviceTensor x = upload(random_tensor({T, kK}, DType::kBf16, 4));
        const Tensor got = run(x.view(), together.view({N, kK}), DType::kF32, false);
        const Tensor want[] = {run(x.view(), own[0].view({16, kK}), DType::kF32, false),
                               run(x.view(), own[1].view({13, kK}), DType::kF32, false),
                               run(x.view(), plain_here.view(), DType::kF32, false)};
        for (int64_t n = 0; n < N; ++n) {
          const int part = n < 16 ? 0 : n < 29 ? 1 : 2;
          const int64_t column = n - std::array<int64_t, 3>{0, 16, 29}[static_cast<size_t>(part)];
          ASSERT_EQ(got.view().row<float>(T - 1)[n], want[part].view().row<float>(T - 1)[column])
              << "form " << middle << ", T = " << T << ", column " << n;
        }
      }
    }
  }
}

// Zeros of either sign, also in what lies behind the last column.
TEST_P(PackedLinearTest, ZerosHaveTheSignThatTheyHaveOfDenseWeights) {
  constexpr int64_t kK = 203, kN = 24;
  for (const PackedForm& form : forms()) {
    const PackedTensor weight = random_weight(form, kN, kK, 5);
    const DevicePacked packed = upload(weight.weight());
    const DeviceTensor dense = upload(weight.dequantised());
    for (const float zero : {0.0f, -0.0f}) {
      Tensor x({3, kK}, DType::kF32);
      std::ranges::fill(x.span<float>(), zero);
      const DeviceTensor x_here = upload(x);
      EXPECT_TRUE(same_bits(run(x_here.view(), packed.view({kN, kK}), DType::kF32, true).view(),
                            run(x_here.view(), dense.view(), DType::kF32, true).view()))
          << form.name;
    }
  }
}

// Rows of a weight, cut within a block whose rows share a scale.
TEST_P(PackedLinearTest, SomeRowsOfAWeightAreAWeight) {
  constexpr int64_t kK = 200, kN = 300;
  const DeviceTensor x = upload(random_tensor({3, kK}, DType::kF32, 1));
  for (const PackedForm& form : forms()) {
    const PackedTensor weight = random_weight(form, kN, kK, 5);
    const DevicePacked whole = upload(weight.weight());
    const Tensor all = run(x.view(), whole.view({kN, kK}), DType::kF32, true);
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 7}, {127, 2}, {130, 150}}) {
      const quant::PackedWeight cut = whole.view({kN, kK}).packed->cut(first, count);
      TensorView rows(nullptr, DType::kPacked, {count, kK});
      rows.packed = &cut;
      const Tensor some = run(x.view(), rows, DType::kF32, true);
      for (int64_t t = 0; t < 3; ++t) {
        for (int64_t n = 0; n < count; ++n) {
          ASSERT_EQ(some.view().row<float>(t)[n], all.view().row<float>(t)[first + n])
              << form.name << ", row " << first + n;
        }
      }
    }
  }
}

TEST_P(PackedLinearTest, ScalesOfNothingAndOfAlmostNothingAndNoNumberStayInTheirRows) {
  constexpr int64_t kK = 256;
  const DeviceTensor x = upload(random_tensor({2, kK}, DType::kF32, 1));
  // A row of blocks of zeros, one of 1e-23, one as usual.
  quant::UnpackedMatrix blocks = random_matrix(packed_forms()[9], 384, kK, 2);
  auto* const scales = reinterpret_cast<float*>(blocks.scales.data());
  for (int64_t i = 0; i < 256; ++i) scales[i] = 0;
  for (int64_t i = 256; i < 512; ++i) scales[i] = 1e-23f;
  const PackedTensor weight({384, kK}, blocks, false);
  const DeviceTensor dense = upload(weight.dequantised());
  const DevicePacked packed = upload(weight.weight());
  for (const bool exact : {true, false}) {
    const Tensor got = run(x.view(), packed.view({384, kK}), DType::kF32, exact);
    for (int64_t n = 0; n < 384; ++n) {
      const float y = got.view().row<float>(1)[n];
      ASSERT_TRUE(n < 128   ? y == 0
                  : n < 256 ? std::fabs(y) < 1e-18f && y != 0
                            : std::fabs(y) > 0)
          << n << ": " << y;
    }
  }
  EXPECT_TRUE(same_bits(run(x.view(), packed.view({384, kK}), DType::kF32, true).view(),
                        run(x.view(), dense.view(), DType::kF32, true).view()));
  // MXFP4 with a power that is no number in one row.
  quant::UnpackedMatrix powers = random_matrix(packed_forms()[11], 12, kK, 3);
  powers.scales[static_cast<size_t>(5 * kK / 32 + 2)] = std::byte{255};
  const PackedTensor mxfp4({12, kK}, powers, false);
  const DevicePacked mxfp4_here = upload(mxfp4.weight());
  const Tensor got = run(x.view(), mxfp4_here.view({12, kK}), DType::kF32, true);
  for (int64_t n = 0; n < 12; ++n) EXPECT_EQ(std::isnan(got.view().row<float>(0)[n]), n == 5);
}

TEST_P(PackedLinearTest, ARowThatIsNoNumberChangesNoOther) {
  constexpr int64_t kK = 300, kN = 40;
  for (const PackedForm& form : forms()) {
    const DevicePacked packed = upload(random_weight(form, kN, kK, 5).weight());
    for (const int64_t T : {4, 16, 33}) {
      Tensor x = random_tensor({T, kK}, DType::kF32, 6);
      const Tensor before = run(upload(x).view(), packed.view({kN, kK}), DType::kF32, true);
      std::ranges::fill(x.span<float>().first(kK), std::numeric_limits<float>::quiet_NaN());
      const Tensor after = run(upload(x).view(), packed.view({kN, kK}), DType::kF32, true);
      EXPECT_TRUE(std::isnan(after.view().row<float>(0)[kN - 1]));
      EXPECT_TRUE(same_bits(TensorView(after.view().row<float>(1), DType::kF32, Shape{T - 1, kN}),
                            TensorView(before.view().row<float>(1), DType::kF32, Shape{T - 1, kN})))
          << form.name << ", T = " << T;
    }
  }
}

TEST_P(PackedLinearTest, CanBeCapturedAndReplayed) {
  if (!device().can_capture()) GTEST_SKIP() << "this device does not record";
  constexpr int64_t kK = 192, kN = 96;
  const DevicePacked packed = upload(random_weight(packed_forms()[9], kN, kK, 1).weight());
  for (const int64_t T : {1, 64}) {
    const DeviceTensor x = upload(random_tensor({T, kK}, DType::kBf16, 2));
    for (const bool exact : {false, true}) {
      const Tensor want = run(x.view(), packed.view({kN, kK}), DType::kBf16, exact);
      DeviceTensor y = poisoned({T, kN}, DType::kBf16);
      device::Buffer scratch =
          workspace(linear_workspace_bytes(context(exact), T, kK, kN, DType::kPacked));
      ASSERT_TRUE(stream().begin_capture().ok());
      const Status status = linear(context(exact), {.x = x.view(),
                                                    .weight = packed.view({kN, kK}),
                                                    .y = y.view(),
                                                    .workspace = scratch.bytes()});
      auto work = stream().end_capture();
      ASSERT_TRUE(status.ok()) << status.to_string();
      ASSERT_TRUE(work.ok()) << work.status().to_string();
      for (int i = 0; i < 2; ++i) ASSERT_TRUE(stream().launch(**work).ok());
      EXPECT_TRUE(same_bits(download(y).view(), want.view())) << "T = " << T;
    }
  }
}

}  // namespace

}  // namespace heddle::ops
