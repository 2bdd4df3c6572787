// SPDX-License-Identifier: Apache-2.0
// FamilyValues: the values of a config.json that one family alone has, as a struct of its own,
// which only that family's folder knows. ModelConfig carries them from the family's reader to the
// code that makes the model.
//
// Threading: values.
#pragma once

#include <any>
#include <concepts>
#include <utility>

#include "core/check.h"

namespace heddle::checkpoint {

class FamilyValues {
 public:
  template <std::equality_comparable Values>
  void set(Values values) {
    values_ = std::move(values);
    equal_ = [](const std::any& a, const std::any& b) {
      const auto *left = std::any_cast<Values>(&a), *right = std::any_cast<Values>(&b);
      return left != nullptr && right != nullptr && *left == *right;
    };
  }

  // Returns the family's values. Aborts unless the family's reader has set a struct of this type.
  template <typename Values>
  [[nodiscard]] const Values& get() const {
    const auto* values = std::any_cast<Values>(&values_);
    HEDDLE_CHECK(values != nullptr);
    return *values;
  }

  // Whether both contain equal structs of one type, or both are empty.
  friend bool operator==(const FamilyValues& a, const FamilyValues& b) {
    return a.equal_ == nullptr ? b.equal_ == nullptr : a.equal_(a.values_, b.values_);
  }

 private:
  std::any values_;
  bool (*equal_)(const std::any& a, const std::any& b) = nullptr;
};

}  // namespace heddle::checkpoint
