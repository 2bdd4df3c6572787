// SPDX-License-Identifier: Apache-2.0
// Streams under a target for their inter-token latency, on a device whose steps take a
// known time.
#include <array>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scheduler/hybrid_cache_fixture.h"

namespace heddle::scheduler {
namespace {

using request::Sequence;

constexpr double kFixedSeconds = 0.004;
constexpr double kTokenSeconds = 0.0001;
constexpr double kAttendedSeconds = 2e-9;
constexpr double kTargetMs = 20;

struct Pace {
  double widest_gap = 0;  // seconds between two tokens of a stream
  int64_t steps = 0;      // steps that computed the prompt
  std::vector<int64_t> chunks;
};

class PaceFixture {
 public:
  explicit PaceFixture(const BatchSchedulerOptions& options, bool overlap) : hybrid_(options) {
    hybrid_.base.overlap = overlap;
    hybrid_.base.proves = false;
    auto record = hybrid_.base.runner.on_step;
    hybrid_.base.runner.on_step = [this, record](const request::BatchPlan& plan) {
      StepWork work;
      for (const request::PlannedSequence& sequence : plan.sequences) {
        work.add(sequence.num_new_tokens(), sequence.context_tokens);
      }
      hybrid_.base.clock.advance_seconds(slowness * seconds_of(work));
      return record(plan);
    };
  }

  double slowness = 1;
  double attended_seconds = kAttendedSeconds;

  // A prompt alone, so that the device is known.
  void warm_up() { hybrid_.serve(hybrid_.unique(1000), 20); }

  // Three streams run and a prompt comes.
  Pace prompt_among_streams(Tokens prompt) {
    const std::array<Sequence*, 3> streams = start_streams();
    const Sequence& late = hybrid_.submit(std::move(prompt), 4);
    Pace pace;
    int64_t drawn = streams[0]->num_output_tokens();
    double last = hybrid_.base.clock.now_seconds();
    for (; late.num_output_tokens() == 0; ++pace.steps) {
      EXPECT_TRUE(hybrid_.base.step());
      if (streams[0]->num_output_tokens() == drawn) continue;
      drawn = streams[0]->num_output_tokens();
      const double now = hybrid_.base.clock.now_seconds();
      pace.widest_gap = std::max(pace.widest_gap, now - last);
      last = now;
    }
    end(streams);
    pace.chunks = hybrid_.served(late).chunks;
    return pace;
  }

  // Three streams run and prompts come together: the first chunk of each.
  std::vector<int64_t> first_chunks(const std::vector<Tokens>& prompts) {
    const std::array<Sequence*, 3> streams = start_streams();
    std::vector<const Sequence*> late;
    for (const Tokens& prompt : prompts) late.push_back(&hybrid_.submit(prompt, 4));
    EXPECT_TRUE(hybrid_.base.step());
    std::vector<int64_t> chunks;
    for (const Sequence* sequence : late) chunks.push_back(planned(*sequence));
    end(streams);
    return chunks;
  }

  Tokens unique(int64_t count) { return hybrid_.unique(count); }

  void ask(const Tokens& prompt, int64_t max_new_tokens = 1) {
    hybrid_.submit(prompt, max_new_tokens);
    while (hybrid_.base.step()) {
    }
  }

 private:
  [[nodiscard]] double seconds_of(const StepWork& work) const {
    return kFixedSeconds + kTokenSeconds * static_cast<double>(work.new_tokens) +
           attended_seconds * work.attended_tokens;
  }

  std::array<Sequence*, 3> start_streams() {
    std::array<Sequence*, 3> streams{};
    for (Sequence*& stream : streams) stream = &hybrid_.submit(hybrid_.unique(40), 2000);
    while (streams[2]->num_output_tokens() < 5) EXPECT_TRUE(hybrid_.base.step());
    return streams;
  }

  void end(const std::array<Sequence*, 3>& streams) {
    for (Sequence* stream : streams) hybrid_.base.scheduler->release(*stream, Ending::kAborted);
    while (hybrid_.base.step()) {
    }
  }

  // New tokens of the last plan.
  [[nodiscard]] int64_t planned(const Sequence& sequence) const {
    for (const auto& [id, count] : hybrid_.base.planned()) {
      if (id == sequence.id) return count;
    }
    return 0;
  }

  HybridCacheFixture hybrid_;
};

BatchSchedulerOptions with_target(double target_ms, bool mixed = true) {
  BatchSchedulerOptions options = multi();
  options.cache.pools.num_pages = 6000;
  options.chunked_prefill_tokens = 512;
  options.limits.max_tokens = 512 + 32;
  options.scheduling.mixed_batches = mixed;
  options.scheduling.target_itl_ms = target_ms;
  return options;
}

TEST(BatchSchedulerPaceTest, StreamsKeepTheirPaceUnderALongPrompt) {
  for (const bool mixed : {true, false}) {
    for (const bool overlap : {true, false}) {
      SCOPED_TRACE(fmt::format("mixed {}, overlap {}", mixed, overlap));
      PaceFixture without(with_target(0, mixed), overlap);
      without.warm_up();
      EXPECT_GT(without.prompt_among_streams(without.unique(8192)).widest_gap, 0.05);

      PaceFixture with(with_target(kTargetMs, mixed), overlap);
      with.warm_up();
      const Pace pace = with.prompt_among_streams(with.unique(8192));
      EXPECT_LE(pace.widest_gap, 1e-3 * kTargetMs * 1.0001);
      EXPECT_GT(pace.widest_gap, 1e-3 * kTargetMs * 0.6) << "and the prompt gets what it can";
      EXPECT_LT(pace.steps, (mixed ? 1 : 3) * 8192 / kLeastChunkTokens);
    }
  }
}

TEST(BatchSchedulerPaceTest, WithoutStreamsPromptsAreNotLimited) {
  PaceFixture fixture(with_target(kTargetMs), true);
  fixture.warm_up();
  fixture.ask(fixture.unique(2048));
  const Pace pace = fixture.prompt_among_streams(fixture.unique(10));
  EXPECT_EQ(pace.chunks, (std::vector<int64_t>{10}));
}

// Before the first prompt's time is known, chunks are the smallest; so they are if nothing helps.
TEST(BatchSchedulerPaceTest, ThePromptGoesOnWhateverTheTarget) {
  PaceFixture fixture(with_target(1), true);  // less than a step of the streams takes
  fixture.warm_up();
  const Pace pace = fixture.prompt_among_streams(fixture.unique(1024));
  EXPECT_EQ(pace.chunks, std::vector<int64_t>(1024 / kLeastChunkTokens, kLeastChunkTokens));
}

// The first chunk attends the part of the prompt that was in the cache.
TEST(BatchSchedulerPaceTest, ALongCachedPrefixCountsFromTheFirstChunk) {
  PaceFixture fixture(with_target(kTargetMs), true);
  fixture.warm_up();
  const Tokens stem = fixture.unique(12'800);
  fixture.ask(stem);
  const Pace pace = fixture.prompt_among_streams(joined(stem, fixture.unique(1024)));
  EXPECT_LE(pace.chunks.size(), 1024u / kLeastChunkTokens) << "it was found";
  EXPECT_LE(pace.widest_gap, 1e-3 * kTargetMs * 1.0001);
}

// Tokens with much before them are dear: ten of them leave most of the time to the next prompt,
// which is not held to as few as they could be.
TEST(BatchSchedulerPaceTest, AFewDearTokensLeaveRoomForManyCheapOnes) {
  PaceFixture fixture(with_target(kTargetMs), false);
  fixture.attended_seconds = 10 * kAttendedSeconds;
  fixture.warm_up();
  const Tokens stem = fixture.unique(12'800);
  fixture.ask(stem);
  EXPECT_EQ(fixture.first_chunks({joined(stem, fixture.unique(10)), fixture.unique(1000)}),
            (std::vector<int64_t>{10, 64}));
}

TEST(BatchSchedulerPaceTest, ADeviceThatBecomesSlowerIsNoticed) {
  PaceFixture fixture(with_target(kTargetMs), true);
  fixture.warm_up();
  fixture.slowness = 1.5;
  fixture.ask(fixture.unique(512 * StepTimeModel::kRemembered), StepTimeModel::kRemembered + 1);
  const Pace pace = fixture.prompt_among_streams(fixture.unique(4096));
  EXPECT_LE(pace.widest_gap, 1e-3 * kTargetMs * 1.0001);
}

}  // namespace
}  // namespace heddle::scheduler
