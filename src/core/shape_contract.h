// SPDX-License-Identifier: Apache-2.0
// ShapeContract checks an op's tensors against its documented shapes with named dimensions:
//
//   Dim T{"T"}, H{"H"};
//   HEDDLE_RETURN_IF_ERROR(ShapeContract("rms_norm")
//                              .expect("x", args.x, {&T, &H}, kFloating)
//                              .expect("y", args.y, {&T, &H}, DType::kF32)
//                              .status());
//
// A Dim gets its value from the first tensor that has it, and all later ones must agree; Dim{"W",
// 4} is fixed from the start. The first error is kept: "rms_norm: weight has H = 32, x has H = 64".
// Cost: no allocation without an error.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/tensor.h"

namespace heddle {

class Dim {
 public:
  explicit Dim(const char* name) : name_(name) {}

  Dim(const char* name, int64_t value) : name_(name), value_(value), source_("the contract") {}

  [[nodiscard]] int64_t value() const { return value_; }

  // Implicit, so that code can use a dimension by its letter.
  operator int64_t() const { return value_; }  // NOLINT(google-explicit-constructor)

 private:
  friend class ShapeContract;

  const char* name_;
  int64_t value_ = -1;
  const char* source_ = nullptr;  // name of the tensor from which the value came
};

// The dtypes that a tensor may have.
struct DTypeSet {
  uint32_t bits = 0;

  constexpr DTypeSet() = default;

  constexpr DTypeSet(DType dtype)  // NOLINT(google-explicit-constructor): one dtype is a set of one
      : bits(1u << static_cast<unsigned>(dtype)) {}

  [[nodiscard]] constexpr bool contains(DType dtype) const {
    return ((bits >> static_cast<unsigned>(dtype)) & 1u) != 0;
  }

  friend constexpr DTypeSet operator|(DTypeSet a, DTypeSet b) {
    DTypeSet both;
    both.bits = a.bits | b.bits;
    return both;
  }
};

inline constexpr DTypeSet kFloating = DTypeSet(DType::kF32) | DType::kBf16 | DType::kF16;
// Dtypes that the weight of a matrix product may have.
inline constexpr DTypeSet kWeights = kFloating | DType::kPacked;

class ShapeContract {
 public:
  explicit ShapeContract(const char* op) : op_(op) {}

  ShapeContract& expect(const char* name, const TensorView& tensor,
                        std::initializer_list<Dim*> dims, DTypeSet dtypes);

  // Checks a condition on a value: require(args.epsilon > 0, "epsilon", args.epsilon, "be
  // positive").
  ShapeContract& require(bool holds, const char* name, double value, const char* must);

  [[nodiscard]] Status status() const { return status_; }

 private:
  const char* op_;
  Status status_;
};

}  // namespace heddle
