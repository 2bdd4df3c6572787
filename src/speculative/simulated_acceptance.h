// SPDX-License-Identifier: Apache-2.0
// SimulatedAcceptance: for measurements, decides which drafts of a chain a step accepts from a
// given mean number instead of from the model, whose weights may be random. The whole part of that
// number is always accepted. One more is accepted with the probability of its fraction, by a
// pseudo-random number that depends on the sequence and the position.
//
// Threading: immutable. Cost: a few operations.
#pragma once

#include <cmath>
#include <cstdint>

namespace heddle::speculative {

class SimulatedAcceptance {
 public:
  // `mean`: mean number of tokens per step and sequence, including the token after the drafts; at
  // least 1.
  explicit SimulatedAcceptance(double mean)
      : sure_(std::floor(mean - 1)), odds_(mean - 1 - sure_) {}

  // Whether the draft `depth` positions after the next token, counted from 0, is accepted if all
  // before it were. `position` is that of the next token.
  [[nodiscard]] bool holds(int64_t sequence_id, int64_t position, int64_t depth) const {
    const auto place = static_cast<double>(depth);
    return place < sure_ || (place == sure_ && coin(sequence_id, position) < odds_);
  }

 private:
  // Hashes to a number in [0, 1), with the finaliser of MurmurHash3.
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
