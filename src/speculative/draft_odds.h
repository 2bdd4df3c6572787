// SPDX-License-Identifier: Apache-2.0
// DraftOdds: how often drafts hold, by their place behind the text, and the luck of single streams.
// A place counts where all drafts before it held. What was seen at a place weighs against what was
// seen at the place before it, the first against an expectation; both fade, so that the odds follow
// the texts, and come back to the expectation while nothing is drafted.
//
// Threading: thread-confined. Cost: a dozen multiplications a call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace heddle::speculative {

class DraftOdds {
 public:
  static constexpr double kExpected = 0.7;  // of drafts hold, where nothing is known

  // Accepted drafts of a stream, compared with those of all streams at the same positions.
  struct Luck {
    double held = 0;      // faded, as the next
    double expected = 0;  // to hold

    // 1: as much as those of others.
    [[nodiscard]] double value() const;

    // A step without drafts: luck comes back to 1.
    void fade();
  };

  DraftOdds();

  // Of a stream's drafts, at least one, so many held.
  void verified(Luck& luck, int64_t num_drafts, int64_t num_held);

  // A step without drafts.
  void fade();

  // That the draft at this place holds, where all before it did; the first is at 0.
  [[nodiscard]] double chance(int64_t place, double luck) const;

  // That a stream of this luck gets from a step with so many drafts.
  [[nodiscard]] double expected_tokens(int64_t num_drafts, double luck) const;

 private:
  static constexpr size_t kPlaces = 8;  // those beyond are as the last

  struct Place {
    double held = 0;
    double seen = 0;
    double chance = kExpected;
  };

  void update();

  std::array<Place, kPlaces> places_;
};

}  // namespace heddle::speculative
