// SPDX-License-Identifier: Apache-2.0
#include "speculative/draft_cost.h"

#include <algorithm>
#include <bit>

namespace heddle::speculative {

namespace {

constexpr double kNewShare = 0.25;   // of a time when a new one comes
constexpr double kMostTimes = 2;     // of what was known, beyond which a time does not count
constexpr double kLeastGain = 1.05;  // below it drafts are not worth their noise

// Depths that are compared: each further one is worth less.
constexpr std::array<int64_t, 12> kDepths = {1, 2, 3, 4, 5, 7, 11, 15, 23, 31, 47, 63};

}  // namespace

// 1 to 8 each have their own, then two to an octave.
size_t DraftCost::class_of(int64_t count) {
  const auto value = static_cast<uint64_t>(std::max<int64_t>(count, 1));
  if (value <= 8) return static_cast<size_t>(value - 1);
  const auto octave = static_cast<size_t>(std::bit_width(value - 1)) - 4;  // 9 to 16: 0
  const bool upper = ((value - 1) >> (octave + 2) & 1) != 0;
  return std::min<size_t>(8 + 2 * octave + (upper ? 1 : 0), kClasses - 1);
}

bool DraftCost::is_known(size_t streams, size_t rows) const {
  const Measured& measured = measured_[streams][rows];
  return measured.count >= kTries && num_steps_[streams] - measured.at <= kRemembered;
}

void DraftCost::add(int64_t num_streams, int64_t num_rows, double seconds) {
  if (seconds <= 0) return;
  const size_t streams = class_of(num_streams);
  const size_t rows = class_of(num_rows);
  const bool known = is_known(streams, rows);
  Measured& measured = measured_[streams][rows];
  measured.at = ++num_steps_[streams];
  if (known) {
    measured.seconds +=
        kNewShare * (std::min(seconds, kMostTimes * measured.seconds) - measured.seconds);
  } else if (measured.count > 0 && measured.count < kTries) {
    measured.seconds = std::min(measured.seconds, seconds);
  } else {
    measured.seconds = seconds;
  }
  ++measured.count;
}

double DraftCost::seconds(int64_t num_streams, int64_t num_rows) const {
  const size_t streams = class_of(num_streams);
  for (size_t rows = class_of(num_rows) + 1; rows-- > 0;) {
    if (is_known(streams, rows)) return measured_[streams][rows].seconds;
  }
  return 0;
}

int64_t DraftCost::best_depth(std::span<const Stream> streams) const {
  const auto num_streams = std::ssize(streams);
  if (num_streams == 0 || !is_known(class_of(num_streams), class_of(num_streams))) return 0;
  const int64_t most = std::ranges::max(streams, {}, &Stream::num_drafts).num_drafts;
  int64_t best = 0;
  double best_rate =
      kLeastGain * static_cast<double>(num_streams) / seconds(num_streams, num_streams);
  for (const int64_t depth : kDepths) {
    double tokens = 0;
    int64_t rows = 0;
    for (const Stream& stream : streams) {
      const int64_t drafts = std::min(depth, stream.num_drafts);
      rows += 1 + drafts;
      double held = 1;
      for (int64_t i = 0; i <= drafts; ++i) {
        tokens += held;
        held *= stream.share;
      }
    }
    const double rate = tokens / seconds(num_streams, rows);
    if (rate > best_rate) {
      best = depth;
      best_rate = rate;
    }
    if (depth >= most || !is_known(class_of(num_streams), class_of(rows))) break;
  }
  return best;
}

}  // namespace heddle::speculative
