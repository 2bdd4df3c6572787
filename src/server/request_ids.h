// SPDX-License-Identifier: Apache-2.0
// RequestIds makes ids nobody can guess: a prefix and 32 hexadecimal digits.
//
// Threading: thread-confined.
#pragma once

#include <random>
#include <string>
#include <string_view>

namespace heddle::server {

class RequestIds {
 public:
  RequestIds();

  [[nodiscard]] std::string next(std::string_view prefix);

 private:
  std::mt19937_64 generator_;
};

}  // namespace heddle::server
