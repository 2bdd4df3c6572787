// SPDX-License-Identifier: Apache-2.0
#include "tools/load/load_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/load/load_report.h"

namespace heddle::tools {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

LoadRecord answered(double sent, const std::vector<LoadRecord::Arrival>& arrivals) {
  LoadRecord record{.scheduled = sent, .sent = sent, .arrivals = arrivals};
  record.ended = arrivals.back().at;
  return record;
}

auto near(double value) { return DoubleNear(value, 1e-9); }

TEST(LoadStatistics, PercentilesLieBetweenNeighbours) {
  const std::vector<double> values = {10, 20, 30, 40};
  EXPECT_NEAR(percentile_of_sorted(values, 0.95), 38.5, 1e-9);
  EXPECT_EQ(percentile_of_sorted(values, 0), 10);
  EXPECT_EQ(percentile_of_sorted(values, 0.5), 25);
  EXPECT_EQ(percentile_of_sorted(values, 1), 40);
  EXPECT_EQ(percentile_of_sorted({}, 0.5), 0);
  const Distribution distribution({40, 10, 30, 20});
  EXPECT_EQ(distribution.mean, 25);
  EXPECT_NEAR(distribution.deviation, 11.180339887498949, 1e-12);
  EXPECT_EQ(distribution.max(), 40);
}

TEST(LoadStatistics, LatenciesOfAnAnswerByHand) {
  const auto latencies = latencies_of(answered(0, {{0.5, 1}, {0.6, 1}, {0.8, 1}}));
  EXPECT_THAT(*latencies.ttft_ms, near(500));
  EXPECT_THAT(latencies.itl_ms, ElementsAre(near(100), near(200)));
  EXPECT_THAT(*latencies.tpot_ms, near(150));
  EXPECT_THAT(latencies.e2e_ms, near(800));
  EXPECT_EQ(latencies.output_tokens, 3);
}

TEST(LoadStatistics, SeveralTokensOfAnEventAreAsManyGaps) {
  LoadRecord record = answered(1, {{1.5, 1}, {1.9, 4}});
  EXPECT_THAT(latencies_of(record).itl_ms, ElementsAre(near(100), near(100), near(100), near(100)));
  EXPECT_THAT(*latencies_of(record).tpot_ms, near(100));
  record.output_tokens = 9;  // the server knows better
  EXPECT_THAT(*latencies_of(record).tpot_ms, near(50));
}

TEST(LoadStatistics, OneTokenHasNoGapAndNoTextHasNoFirst) {
  const auto one = latencies_of(answered(0, {{0.25, 1}}));
  EXPECT_THAT(*one.ttft_ms, near(250));
  EXPECT_FALSE(one.tpot_ms);
  EXPECT_TRUE(one.itl_ms.empty());
  const auto none = latencies_of({.sent = 1, .ended = 1.5});
  EXPECT_FALSE(none.ttft_ms);
  EXPECT_THAT(none.e2e_ms, near(500));
}

TEST(LoadStatistics, SummarizesARunByHand) {
  std::vector<LoadRecord> records = {
      answered(1, {{1.5, 1}, {2, 1}}),                // TTFT 500, E2E 1000
      answered(1.5, {{1.7, 1}, {1.8, 1}, {1.9, 1}}),  // TTFT 200, E2E 400
      {.scheduled = 2, .sent = 2.25, .ended = 3, .failure = LoadFailure{"HTTP 503", "full"}},
      {.sent = 2.5, .ended = 3, .failure = LoadFailure{"HTTP 503", "again"}}};
  records[0].input_tokens = 10;
  records[0].output_tokens = 2;
  records[0].cached_tokens = 4;
  const LoadStatistics statistics = summarize(records, {.ttft_ms = 300});
  EXPECT_EQ(statistics.completed, 2);
  EXPECT_EQ(statistics.failed, 2);
  EXPECT_EQ(statistics.failures.at("HTTP 503").count, 2);
  EXPECT_EQ(statistics.failures.at("HTTP 503").example, "full");
  EXPECT_THAT(statistics.duration_seconds, near(2));
  EXPECT_THAT(statistics.concurrency, near(0.7));
  EXPECT_EQ(statistics.input_tokens, 10);
  EXPECT_EQ(statistics.cached_tokens, 4);
  EXPECT_EQ(statistics.output_tokens, 5);
  EXPECT_EQ(statistics.without_usage, 1);
  EXPECT_EQ(statistics.good, 1);
  EXPECT_THAT(statistics.per_second(statistics.good), near(0.5));
  EXPECT_THAT(statistics.ttft_ms.sorted, ElementsAre(near(200), near(500)));
  EXPECT_THAT(statistics.itl_ms.sorted, ElementsAre(near(100), near(100), near(500)));
  EXPECT_THAT(summarize(records, {.itl_ms = 100.1}).good, 1);
  EXPECT_THAT(summarize(records, {.e2e_ms = 1000.1}).good, 2);
  EXPECT_EQ(summarize({}, {}).duration_seconds, 0);
}

TEST(LoadStatistics, ALateSendIsSeen) {
  LoadRecord late = answered(2, {{3, 1}});
  late.scheduled = 0.5;
  EXPECT_THAT(summarize(std::vector{late}, {}).max_lag_seconds, near(1.5));
}

TEST(ServiceLevels, AreReadByName) {
  const auto levels = parse_service_levels("ttft=1000,itl=50.5");
  ASSERT_TRUE(levels.ok()) << levels.status().to_string();
  EXPECT_EQ(levels->ttft_ms, 1000);
  EXPECT_EQ(levels->itl_ms, 50.5);
  EXPECT_FALSE(levels->tpot_ms);
  for (const char* wrong : {"", "ttft", "ttft=", "ttft=0", "ttft=-1", "ttft=x", "speed=3",
                            "ttft=1,", "ttft=1,ttft=2", "ttft=nan"}) {
    EXPECT_FALSE(parse_service_levels(wrong).ok()) << wrong;
  }
  EXPECT_THAT(parse_service_levels("speed=3").status().message(), HasSubstr("\"speed=3\""));
}

TEST(LoadReport, TheTimelineCountsTokensAndRequestsInFlight) {
  const std::vector<LoadRecord> records = {answered(0, {{1.5, 2}, {4, 1}}),
                                           answered(2, {{2.5, 1}, {3, 3}})};
  const LoadTimeline timeline = timeline_of(records, 4);
  EXPECT_EQ(timeline.bin_seconds, 1);
  EXPECT_THAT(timeline.tokens_per_second, ElementsAre(0, 2, 1, 4));
  EXPECT_THAT(timeline.in_flight, ElementsAre(1, 1, 2, 1));
  EXPECT_THAT(timeline_of({}, 2).in_flight, ElementsAre(0, 0));
}

TEST(LoadReport, HtmlNeedsNothingElseAndEscapesWhatServersSay) {
  LoadReport report{.facts = {{"server", "http://<x>"}, {"workload", "random"}},
                    .records = {answered(0, {{0.5, 1}, {0.75, 1}}),
                                {.sent = 1,
                                 .ended = 2,
                                 .failure = LoadFailure{"HTTP 500", "<script>alert(1)</script>"}}},
                    .planned = 3};
  report.levels.ttft_ms = 100;
  report.statistics = summarize(report.records, report.levels);
  const std::string html = load_report_html(report);
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(html, HasSubstr("1 of 3 requests"));
  for (const char* outside : {"<script", "src=", "href=", "url(", "nan", "inf"}) {
    EXPECT_THAT(html, ::testing::Not(HasSubstr(outside)));
  }
  const LoadReport empty;
  EXPECT_THAT(load_report_html(empty), HasSubstr("</html>"));
  EXPECT_THAT(load_report_text(report), HasSubstr("1 failed, HTTP 500: "));
}

}  // namespace
}  // namespace heddle::tools
