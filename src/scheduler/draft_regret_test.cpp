// SPDX-License-Identifier: Apache-2.0
// Simulates adaptive drafting on devices whose costs are a formula and texts whose drafts are
// accepted at random: it never loses much to plain decoding, nor to the best fixed depth.
#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scheduler/pace.h"
#include "scheduler/stream_drafts.h"

namespace heddle::scheduler {
namespace {

constexpr int64_t kMaxDrafts = 7;
constexpr int64_t kMaxRows = 64;
constexpr double kPlainSeconds = 1e-3;  // of one stream

// The duration of steps, in plain steps of one stream.
struct DeviceCosts {
  std::string name;
  std::function<double(double streams)> plain;                // a plain step
  std::function<double(double streams, double rows)> verify;  // of a stream; 1 for one row
  std::function<double(double streams)> draft;  // making a draft for each, beside a plain step
};

// Between the points of a table in the logarithm of x; beyond the last one as along its last part.
double interpolated(const std::vector<std::pair<double, double>>& points, double x) {
  size_t i = 1;
  while (i + 1 < points.size() && points[i].first < x) ++i;
  const auto& [x0, y0] = points[i - 1];
  const auto& [x1, y1] = points[i];
  return y0 + (y1 - y0) * std::log(x / x0) / std::log(x1 / x0);
}

// Rows of a sequence, one and eight sequences of full80b_4l, as an H200 once had them.
DeviceCosts h200(double draft) {
  return {.name = fmt::format("an H200, a draft is {} steps", draft),
          .plain = [](double s) { return interpolated({{1, 1}, {8, 2.4}, {64, 7.6}}, s); },
          .verify =
              [](double s, double rows) {
                const double one = interpolated({{1, 1}, {2, 1.37}, {4, 1.88}, {8, 2.6}}, rows);
                const double eight = interpolated({{1, 1}, {2, 1.66}, {4, 2.38}, {8, 3.3}}, rows);
                return interpolated({{1, one}, {8, eight}}, std::min(s, 8.0));
              },
          .draft = [draft](double) { return draft; }};
}

// Four rows of a sequence take 2.9 steps; so do four sequences.
DeviceCosts cpu() {
  return {.name = "a CPU",
          .plain = [](double s) { return 1 + 0.63 * (s - 1); },
          .verify = [](double s,
                       double rows) { return (1 + 0.63 * (s * rows - 1)) / (1 + 0.63 * (s - 1)); },
          .draft = [](double) { return 0.15; }};
}

// Rows cost nothing up to 32 of a step, and then as much as steps.
DeviceCosts dense() {
  const auto rows_cost = [](double rows) { return 1 + 0.03 * std::max(rows - 32, 0.0); };
  return {
      .name = "a dense model",
      .plain = rows_cost,
      .verify = [rows_cost](double s, double rows) { return rows_cost(s * rows) / rows_cost(s); },
      .draft = [](double) { return 0.08; }};
}

// Nothing about it is as expected: more rows are dearer than as many steps.
DeviceCosts hostile() {
  return {.name = "a hostile device",
          .plain = [](double s) { return s; },
          .verify = [](double, double rows) { return rows * rows; },
          .draft = [](double) { return 2.0; }};
}

// By place: that a draft holds where all before it did.
using Chances = std::vector<double>;

struct Outcome {
  double seconds = 0;
  double plain_seconds = 0;  // that plain steps take for the same tokens
  int64_t num_steps = 0;
  int64_t num_drafts = 0;  // verified
  int64_t num_made = 0;
  int64_t num_sizes = 0;  // different numbers of rows in steps that drafted

  [[nodiscard]] double gain() const { return plain_seconds / seconds; }
};

// Streams that run for ever, with drafts from the runner; steps as the engine would take them.
class Play {
 public:
  explicit Play(DeviceCosts costs, uint64_t seed = 1) : costs_(std::move(costs)), random_(seed) {
    set_streams(1);
  }

  // 0: as many as pay; else always so many.
  Play& with_depth(int64_t depth) {
    options_.adapts = false;
    options_.max_made = depth;
    return *this;
  }

  Play& with_noise(double noise) {
    noise_ = noise;
    return *this;
  }

  // The first two steps of a shape take so many plain steps longer, as on a GPU.
  Play& with_warm_up(double warm_up) {
    warm_up_ = warm_up;
    return *this;
  }

  // A step ends before its drafts are made; the next one waits for them, as on a GPU.
  Play& with_drafts_behind() {
    drafts_behind_ = true;
    return *this;
  }

  void set_streams(int64_t count) {
    sequences_.clear();
    running_.clear();
    streams_.clear();
    for (int64_t i = 0; i < count; ++i) {
      Request request{.prompt = {1, 2, 3}};
      request.stop.max_new_tokens = 1 << 20;
      request::Sequence& sequence =
          sequences_.emplace_back(i, std::move(request), 0, std::span<const TokenId>());
      sequence.num_prompt_tokens = 2;
      sequence.num_computed = 2;
      RunningSequence& running = running_.emplace_back();
      running.sequence = &sequence;
      running.num_planned = 2;
      streams_.push_back(&running);
    }
  }

  // So many steps; returns what these cost.
  Outcome run(int64_t num_steps, const Chances& chances) {
    Outcome outcome;
    StreamDrafts drafts(nullptr, options_, pace_.draft_cost(), odds_);
    for (int64_t i = 0; i < num_steps; ++i) step(drafts, chances, outcome);
    outcome.num_steps = num_steps;
    std::set<int64_t> sizes;
    for (const auto& [shape, count] : seen_) sizes.insert(std::get<1>(shape));
    outcome.num_sizes = std::ssize(sizes);
    return outcome;
  }

 private:
  void step(StreamDrafts& drafts, const Chances& chances, Outcome& outcome) {
    const auto count = std::ssize(streams_);
    drafts.propose(streams_, 512);
    pace_.begin_step();
    int64_t num_rows = count;
    int64_t num_tokens = count;
    int64_t num_made = 0;
    bool any_draft = false;
    for (size_t i = 0; i < streams_.size(); ++i) {
      RunningSequence& running = *streams_[i];
      const auto num_drafts = std::ssize(drafts.of(i));
      const int64_t wanted = drafts.wanted(i);
      pace_.add_decode(running.num_planned, num_drafts, wanted);
      int64_t held = 0;
      while (held < num_drafts && dice_(random_) < chances[static_cast<size_t>(held)]) ++held;
      if (num_drafts > 0) {
        odds_.verified(running.acceptance_trend, num_drafts, held);
        any_draft = true;
      } else {
        running.acceptance_trend.fade();
      }
      running.made_drafts.tokens.assign(static_cast<size_t>(wanted), 7);
      num_rows += num_drafts;
      num_tokens += held;
      num_made += wanted;
    }
    if (!any_draft) odds_.fade();
    pace_.end_step(count, now_);

    const auto streams = static_cast<double>(count);
    const double plain = costs_.plain(streams);
    const double each = static_cast<double>(num_rows) / streams;
    double cost = plain * (each > 1 ? costs_.verify(streams, each) : 1);
    double making = plain * costs_.draft(streams) * static_cast<double>(num_made) / streams;
    if (drafts_behind_) std::swap(making, pending_);
    cost += making;
    cost *= 1 + noise_ * (2 * dice_(random_) - 1);
    const bool drafts_any = num_rows > count || num_made > 0;
    const bool warms_up =
        warm_up_ > 0 && ++(drafts_any ? seen_ : seen_plain_)[{count, num_rows, num_made}] <= 2;
    outcome.seconds += kPlainSeconds * cost;  // preparation that happens once is not reported
    if (warms_up) cost += warm_up_ * plain;
    now_ += kPlainSeconds * cost;
    outcome.plain_seconds += kPlainSeconds * plain * static_cast<double>(num_tokens) / streams;
    outcome.num_drafts += num_rows - count;
    outcome.num_made += num_made;
    pace_.step_completed(now_, {.num_tokens = num_tokens, .warms_up = warms_up});
  }

  DeviceCosts costs_;
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> dice_{0, 1};
  StreamDraftsOptions options_{
      .max_drafts = kMaxDrafts, .max_rows = kMaxRows, .max_made = kMaxDrafts};
  double noise_ = 0.05;
  double warm_up_ = 0;
  bool drafts_behind_ = false;
  double pending_ = 0;  // the cost of drafts that the next step waits for
  double now_ = 0;
  StepPace pace_{{.makes_drafts = true}};
  speculative::DraftOdds odds_;
  std::deque<request::Sequence> sequences_;
  std::deque<RunningSequence> running_;
  std::vector<RunningSequence*> streams_;
  using Shape = std::tuple<int64_t, int64_t, int64_t>;
  std::map<Shape, int64_t> seen_, seen_plain_;
};

const Chances kNothing(kMaxDrafts, 0.0);
const Chances kSeldom(kMaxDrafts, 0.3);
const Chances kUsually(kMaxDrafts, 0.9);
const Chances kOften = {0.93, 0.9, 0.88, 0.85, 0.8, 0.75, 0.7};
const Chances kAlways(kMaxDrafts, 1.0);
const Chances kTwo = {1, 1, 0, 0, 0, 0, 0};

std::vector<DeviceCosts> all_devices() {
  return {h200(0.1), h200(0.33), h200(0.55), cpu(), dense(), hostile()};
}

// The best of all depths that do not change.
double best_fixed_gain(const DeviceCosts& device, int64_t streams, const Chances& chances) {
  double best = 1;
  for (int64_t depth = 1; depth <= kMaxDrafts; ++depth) {
    if (streams * (depth + 1) > kMaxRows) break;
    Play play(device);
    play.with_depth(depth).set_streams(streams);
    best = std::max(best, play.run(300, chances).gain());
  }
  return best;
}

TEST(DraftRegretTest, NoTextAndNoDeviceLosesMuch) {
  for (const DeviceCosts& device : all_devices()) {
    for (const int64_t streams : {1, 3, 8, 32, 64}) {
      for (const Chances& chances : {kNothing, kSeldom, kOften, kAlways, kTwo}) {
        for (const uint64_t seed : {1u, 2u, 3u, 4u}) {
          Play play(device, seed);
          if (seed % 2 == 0) play.with_drafts_behind();
          play.set_streams(streams);
          const Outcome outcome = play.run(1000, chances);
          EXPECT_GE(outcome.gain(), 0.98)
              << device.name << ", " << streams << " streams, " << chances[0] << ", seed " << seed;
        }
      }
    }
  }
}

TEST(DraftRegretTest, TheBestDepthIsFoundSoonAndKept) {
  constexpr int kSeeds = 20;
  for (const DeviceCosts& device : all_devices()) {
    for (const int64_t streams : {1, 8, 24}) {
      for (const Chances& chances : {kSeldom, kUsually, kOften, kAlways}) {
        const double best = best_fixed_gain(device, streams, chances);
        if (best < 1.15) continue;  // hardly distinguishable from none
        double least = best;
        double sum = 0;
        for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
          Play play(device, seed);
          play.set_streams(streams);
          const double gain = play.run(3000, chances).gain();
          least = std::min(least, gain);
          sum += gain;
        }
        SCOPED_TRACE(fmt::format("{}, {} streams, {}: best {:.3f}, mean {:.3f}, least {:.3f}",
                                 device.name, streams, chances[0], best, sum / kSeeds, least));
        EXPECT_GE(sum / kSeeds, 0.93 * best);
        EXPECT_GE(least, 0.9 * best);
      }
    }
  }
}

TEST(DraftRegretTest, WhereNothingHoldsHardlyAnyDraftIsMade) {
  for (const int64_t streams : {1, 8, 32}) {
    Play play(h200(0.33));
    play.set_streams(streams);
    const Outcome first = play.run(500, kNothing);
    const Outcome later = play.run(5000, kNothing);
    EXPECT_GE(first.gain(), 0.97) << streams;
    EXPECT_GE(later.gain(), 0.99) << streams;
    EXPECT_LE(static_cast<double>(later.num_made), 0.03 * static_cast<double>(5000 * streams));
  }
}

TEST(DraftRegretTest, TheNumberOfStreamsMayChangeAllTheTime) {
  for (const DeviceCosts& device : all_devices()) {
    for (const Chances& chances : {kNothing, kOften}) {
      Play play(device);
      std::mt19937 random(7);
      double seconds = 0;
      double plain_seconds = 0;
      for (int i = 0; i < 400; ++i) {
        play.set_streams(1 + static_cast<int64_t>(random() % 64));
        const Outcome outcome = play.run(1 + static_cast<int64_t>(random() % 20), chances);
        seconds += outcome.seconds;
        plain_seconds += outcome.plain_seconds;
      }
      EXPECT_GE(plain_seconds / seconds, 0.98) << device.name << ", " << chances[0];
    }
  }
}

TEST(DraftRegretTest, TextsThatChangeAreFollowed) {
  Play play(h200(0.1));
  EXPECT_GE(play.run(1000, kOften).gain(), 1.4);
  EXPECT_GE(play.run(1000, kNothing).gain(), 0.97) << "its credit and its debt are lost";
  (void)play.run(3000, kOften);
  EXPECT_GE(play.run(1000, kOften).gain(), 1.4) << "found again";
}

TEST(DraftRegretTest, WarmingUpSaysNothingAndIsSoonOver) {
  Play play(h200(0.1));
  play.with_warm_up(50);
  play.set_streams(8);
  const Outcome outcome = play.run(1500, kOften);
  EXPECT_GE(outcome.gain(), 0.93 * best_fixed_gain(h200(0.1), 8, kOften));
  EXPECT_LE(outcome.num_sizes, 6) << "each is captured";
}

TEST(DraftRegretTest, NoiseDoesNotDecide) {
  for (const uint64_t seed : {1u, 2u, 3u, 4u, 5u}) {
    Play play(h200(0.1), seed);
    play.with_noise(0.3).set_streams(2);
    EXPECT_GE(play.run(3000, kOften).gain(), 1.2) << seed;
    Play losing(cpu(), seed);
    losing.with_noise(0.3).set_streams(8);
    EXPECT_GE(losing.run(3000, kNothing).gain(), 0.98) << seed;
  }
}

}  // namespace
}  // namespace heddle::scheduler
