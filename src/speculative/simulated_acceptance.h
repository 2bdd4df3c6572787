// SPDX-License-Identifier: Apache-2.0
// SimulatedAcceptance: which drafts of a chain a step keeps where a measurement says how many they
// are, and not the model, whose weights may be random. The first of them always hold; the last one,
// where their number is no whole one, as often as the rest of it says, by a coin of the text and
// the place.
//
// Threading: none. Cost: a few operations.
#pragma once

#include <cmath>
#include <cstdint>

namespace heddle::speculative {

class SimulatedAcceptance {
 public:
  // `mean`: tokens per step and sequence, including the one after the drafts: 1 or more.
  explicit SimulatedAcceptance(double mean)
      : sure_(std::floor(mean - 1)), odds_(mean - 1 - sure_) {}

  // Whether the draft `depth` positions after the next token is accepted, 0 the first one, given
  // that all before it were. `position`: of the next token.
  [[nodiscard]] bool holds(int64_t sequence_id, int64_t position, int64_t depth) const {
    const auto place = static_cast<double>(depth);
    return place < sure_ || (place == sure_ && coin(sequence_id, position) < odds_);
  }

 private:
  // A number in [0, 1) from a hash: the finaliser of MurmurHash3.
  static double coin(int64_t sequence_id, int64_t position) {
    uint64_t bits =
        static_cast<uint64_t>(sequence_id) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(position);
    bits = (bits ^ bits >> 33) * 0xff51afd7ed558ccdu;
    bits = (bits ^ bits >> 33) * 0xc4ceb9fe1a85ec53u;
    bits ^= bits >> 33;
    return static_cast<double>(bits >> 11) * 0x1p-53;
  }

  double sure_;
  double odds_;
};

}  // namespace heddle::speculative
