// SPDX-License-Identifier: Apache-2.0
#include "speculative/draft_cost.h"

#include <algorithm>
#include <bit>

namespace heddle::speculative {

namespace {

// The expected curve in units of a plain step: the extra cost of drafting and waiting for it, and
// of each draft of a stream. On an H200 a model of 512 experts has 0.2 and 0.25
// (docs/performance.md).
constexpr double kFixed = 0.3;
constexpr double kEach = 0.25;

constexpr int64_t kTries = 2;  // measured steps after which a ratio counts as known
// Factor on the expected extra cost of a size that was never measured.
constexpr double kUnmeasured = 0.85;
constexpr double kNewShare = 0.25;  // weight of a new time in the moving average
constexpr double kMostTimes = 2;    // a measured time is clipped to this multiple of the known time
constexpr double kMostTimesExpected = 4;  // the same limit if only an expected time is known
constexpr double kLeastGain = 1.05;       // with a smaller gain over plain steps, drafts are not
                                          // worth the noise
// Factor on the rate of the present depth, so that another depth must be clearly better.
constexpr double kStay = 1.04;
// With full credit, the rate of drafts may be this much lower than required.
constexpr double kDaring = 0.15;
// Depths to compare; the gain of another draft shrinks with the depth.
constexpr std::array<int64_t, 11> kDepths = {1, 2, 3, 5, 7, 11, 15, 23, 31, 47, 63};

// Expected extra time of a step, relative to a plain step.
double expected_addition(double drafts) { return drafts > 0 ? kFixed + kEach * drafts : 0; }

double drafts_of_a_stream(int64_t num_streams, int64_t num_rows) {
  return static_cast<double>(num_rows) / static_cast<double>(num_streams) - 1;
}

}  // namespace

// Counts 1 to 8 have a class each, larger counts two per octave.
size_t DraftCost::class_of(int64_t count) {
  const auto value = static_cast<uint64_t>(std::max<int64_t>(count, 1));
  if (value <= 8) return static_cast<size_t>(value - 1);
  // 0 for counts from 9 to 16.
  const auto octave = static_cast<size_t>(std::bit_width(value - 1)) - 4;
  const bool upper = ((value - 1) >> (octave + 2) & 1) != 0;
  return std::min<size_t>(8 + 2 * octave + (upper ? 1 : 0), kClasses - 1);
}

// ---- A step ended ----

void DraftCost::add(const Step& step) {
  if (step.seconds <= 0 || step.num_streams <= 0 || step.warms_up) return;
  const size_t streams = class_of(step.num_streams);
  Plain& plain = plain_[streams];
  ++num_steps_[streams];
  if (step.num_rows > step.num_streams || step.makes_others) {
    if (plain.count < kPlainTries) return;
    add_drafted(plain, step);
  } else {
    add_plain(plain, step.seconds);
  }
  plain.credit = std::min(plain.credit, kMostCredit);
  if (plain.credit < -kMostDebt) plain.in_debt = true;
  if (plain.credit >= 0) plain.in_debt = false;
}

void DraftCost::add_plain(Plain& plain, double seconds) {
  if (plain.count >= kPlainTries) {
    plain.seconds += kNewShare * (std::min(seconds, kMostTimes * plain.seconds) - plain.seconds);
    plain.credit += kTrialShare;
  } else {
    plain.seconds = plain.count == 0 ? seconds : std::min(plain.seconds, seconds);
  }
  ++plain.count;
  if (plain.due == 0) return;
  if (--plain.due == 0) plain.since = 0;
}

void DraftCost::add_drafted(Plain& plain, const Step& step) {
  const size_t streams = class_of(step.num_streams);
  const double value = step.seconds / plain.seconds;
  const double expected = ratio(step.num_streams, step.num_rows);
  const double plain_steps =
      static_cast<double>(step.num_tokens) / static_cast<double>(step.num_streams);
  const bool known =
      step.num_rows == step.num_streams || is_known(streams, class_of(step.num_rows));
  const double most = expected * (known ? kMostTimes : kMostTimesExpected);
  plain.credit += plain_steps - std::min(value, most);
  if (!step.makes_others) measure(streams, step, value, expected);
  if (++plain.since == kRemembered) plain.due = kPlainTries;
}

void DraftCost::measure(size_t streams, const Step& step, double value, double expected) {
  const size_t rows = class_of(step.num_rows);
  Ratio& ratio = ratios_[streams][rows];
  const bool is_recent = num_steps_[streams] - ratio.at <= kRemembered;
  if (is_known(streams, rows)) {
    ratio.value += kNewShare * (std::min(value, kMostTimes * ratio.value) - ratio.value);
  } else if (ratio.count > 0 && is_recent) {
    ratio.value = std::min(ratio.value, value);
  } else {
    // A first ratio that is as good as expected needs no second measurement.
    ratio.count = value <= expected ? kTries - 1 : 0;
    ratio.value = value;
  }
  ratio.drafts = drafts_of_a_stream(step.num_streams, step.num_rows);
  ratio.at = num_steps_[streams];
  ++ratio.count;
}

// ---- What steps cost ----

bool DraftCost::is_known(size_t streams, size_t rows) const {
  const Ratio& ratio = ratios_[streams][rows];
  return ratio.count >= kTries && num_steps_[streams] - ratio.at <= kRemembered;
}

// The class nearest to `streams` in which a ratio is known; `kClasses` if there is none.
size_t DraftCost::nearest_measured(size_t streams) const {
  const auto is_measured = [this](size_t s) {
    for (size_t rows = 0; rows < kClasses; ++rows) {
      if (is_known(s, rows)) return true;
    }
    return false;
  };
  for (size_t distance = 0; distance < kClasses; ++distance) {
    if (distance <= streams && is_measured(streams - distance)) return streams - distance;
    if (streams + distance < kClasses && is_measured(streams + distance)) return streams + distance;
  }
  return kClasses;
}

// Most drafts of a stream to try next: about twice as many as were measured.
double DraftCost::most_tried(size_t measured) const {
  double most = 0;
  for (size_t rows = 0; measured < kClasses && rows < kClasses; ++rows) {
    if (is_known(measured, rows)) most = std::max(most, ratios_[measured][rows].drafts);
  }
  return 2 * most + 1;
}

// The measured extra cost of `drafts` drafts divided by the expected one, interpolated between the
// nearest measured numbers.
double DraftCost::dearness(size_t streams, double drafts) const {
  const Ratio* below = nullptr;
  const Ratio* above = nullptr;
  for (size_t rows = 0; rows < kClasses; ++rows) {
    if (!is_known(streams, rows)) continue;
    const Ratio& ratio = ratios_[streams][rows];
    if (ratio.drafts <= drafts && (below == nullptr || ratio.drafts > below->drafts)) {
      below = &ratio;
    }
    if (ratio.drafts >= drafts && (above == nullptr || ratio.drafts < above->drafts)) {
      above = &ratio;
    }
  }
  const auto of = [](const Ratio& ratio) {
    return std::max(ratio.value - 1, 0.0) / expected_addition(ratio.drafts);
  };
  if (below == nullptr) return of(*above);
  if (above == nullptr || above->drafts <= below->drafts) return of(*below);
  const double part = (drafts - below->drafts) / (above->drafts - below->drafts);
  return of(*below) + part * (of(*above) - of(*below));
}

double DraftCost::ratio(size_t measured, int64_t num_streams, int64_t num_rows) const {
  const double drafts = drafts_of_a_stream(num_streams, num_rows);
  if (drafts <= 0) return 1;
  double addition = expected_addition(drafts);
  if (measured < kClasses) addition *= dearness(measured, drafts);
  if (!is_known(class_of(num_streams), class_of(num_rows))) addition *= kUnmeasured;
  return 1 + addition;
}

double DraftCost::ratio(int64_t num_streams, int64_t num_rows) const {
  return ratio(nearest_measured(class_of(num_streams)), num_streams, num_rows);
}

double DraftCost::plain_seconds(int64_t num_streams) const {
  const Plain& plain = plain_[class_of(num_streams)];
  return plain.count >= kPlainTries ? plain.seconds : 0;
}

// ---- How many drafts ----

bool DraftCost::may_draft(int64_t num_streams) const {
  const Plain& plain = plain_[class_of(num_streams)];
  return !plain.in_debt && plain.count >= kPlainTries && plain.due == 0;
}

int64_t DraftCost::best_depth(std::span<const Stream> streams, const DraftOdds& odds,
                              int64_t max_rows, int64_t depth_before) const {
  const auto num_streams = std::ssize(streams);
  if (num_streams == 0 || plain_seconds(num_streams) == 0) return 0;
  const int64_t most = std::ranges::max(streams, {}, &Stream::num_drafts).num_drafts;
  if (most == 0) return 0;
  const size_t measured = nearest_measured(class_of(num_streams));
  const double most_drafts = most_tried(measured);
  int64_t best = 0;
  const double daring = kDaring * std::clamp(credit(num_streams) / kMostCredit, 0.0, 1.0);
  // Rates are tokens per stream and time, relative to plain steps.
  double best_rate = (depth_before > 0 ? 1 : kLeastGain) - daring;
  for (const int64_t depth : kDepths) {
    double tokens = 0;
    int64_t num_rows = 0;
    int64_t num_drafting_rows = 0;
    for (const Stream& stream : streams) {
      const int64_t drafts = std::min(depth, stream.num_drafts);
      tokens += odds.expected_tokens(drafts, stream.trend);
      num_rows += 1 + drafts;
      if (drafts > 0) num_drafting_rows += 1 + drafts;
    }
    if (num_drafting_rows > max_rows) break;
    if (drafts_of_a_stream(num_streams, num_rows) > most_drafts) break;
    const double rate = (depth == depth_before ? kStay : 1) * tokens /
                        static_cast<double>(num_streams) / ratio(measured, num_streams, num_rows);
    if (rate > best_rate) {
      best = depth;
      best_rate = rate;
    }
    if (depth >= most) break;
  }
  return best;
}

}  // namespace heddle::speculative
