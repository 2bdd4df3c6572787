// SPDX-License-Identifier: Apache-2.0
// DraftCost: how many drafts pay. A step of more rows takes longer and may yield more tokens; the
// best number of drafts is the one that yields most tokens a second, by the times that steps have
// taken so far. It is none where drafting loses.
//
//   tokens(depth)  = sum over streams of 1 + share + share^2 + ... + share^min(depth, its drafts)
//   seconds(depth) = what steps of so many streams and rows took
//
// Times are remembered by number of streams and of rows, in classes half an octave wide from 8 on,
// and forgotten when that many streams have made kRemembered steps since. Rows of which nothing is
// known count as those of the next fewer that are: what could pay is tried, and then known; the
// fewest first, so that a try costs little. Only after kTries steps a time is known: the first of a
// new shape may load and capture what it runs, and the least of them counts. Without steps of so
// many streams without drafts nothing is drafted, so that there are some.
//
// Threading: thread-confined. Cost: add() O(1); best_depth() O(depths x streams).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle::speculative {

class DraftCost {
 public:
  static constexpr int64_t kRemembered = 256;
  static constexpr int64_t kTries = 3;

  // A stream of the next step.
  struct Stream {
    int64_t num_drafts = 0;  // that it has
    double share = 0;        // of drafts that hold, where all before them did
  };

  // A step of so many streams and rows, none of them a prompt's, took so long. Times far above
  // those before count in part: something else had the machine.
  void add(int64_t num_streams, int64_t num_rows, double seconds);

  // The most drafts that a stream should have in a step of all of them.
  [[nodiscard]] int64_t best_depth(std::span<const Stream> streams) const;

  // What a step of so many streams and rows takes; 0: nothing is known.
  [[nodiscard]] double seconds(int64_t num_streams, int64_t num_rows) const;

 private:
  static constexpr size_t kClasses = 32;

  struct Measured {
    double seconds = 0;
    int64_t count = 0;  // of steps that were measured
    int64_t at = 0;     // steps of so many streams until then
  };

  [[nodiscard]] static size_t class_of(int64_t count);
  [[nodiscard]] bool is_known(size_t streams, size_t rows) const;

  std::array<std::array<Measured, kClasses>, kClasses> measured_;  // by streams, then by rows
  std::array<int64_t, kClasses> num_steps_{};                      // by streams
};

}  // namespace heddle::speculative
