// SPDX-License-Identifier: Apache-2.0
// EffectiveOption: what the server runs with by one name, after every default and every limit of
// the machine. Never a secret: everybody with a key may ask for them.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace heddle::server {

struct EffectiveOption {
  std::string name;  // as the flag, with '_'
  std::variant<bool, int64_t, double, std::string> value;
};

using EffectiveOptions = std::vector<EffectiveOption>;

}  // namespace heddle::server
