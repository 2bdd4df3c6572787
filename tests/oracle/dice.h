// SPDX-License-Identifier: Apache-2.0
// Dice: the oracle's source of chance; the same throws for the same seed everywhere.
// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (SplitMix64).
#pragma once

#include <cstdint>
#include <initializer_list>

namespace heddle::oracle {

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0xd1342543de82ef95u + 1) {}

  uint64_t next() {
    uint64_t value = state_ += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
  }

  // Both ends are included.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }

  bool percent(int64_t chance) { return between(1, 100) <= chance; }

  template <typename Value>
  Value pick(std::initializer_list<Value> values) {
    return values.begin()[between(0, static_cast<int64_t>(values.size()) - 1)];
  }

 private:
  uint64_t state_;
};

}  // namespace heddle::oracle
