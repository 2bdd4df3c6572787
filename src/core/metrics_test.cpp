// SPDX-License-Identifier: Apache-2.0
#include "core/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/exposition.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricRegistryTest, ExportsWhatWasCounted) {
  MetricRegistry metrics(MetricNames::kHeddle, {{"model_name", "m"}});
  const MetricCounter stops = metrics.counter({"heddle_ends_total"}, "Ends.", {{"reason", "stop"}});
  const MetricCounter aborts =
      metrics.counter({"heddle_ends_total"}, "Ends.", {{"reason", "abort"}});
  const MetricGauge running = metrics.gauge({"heddle_running"}, "Running.");
  const double bounds[] = {0.1, 1};
  const MetricHistogram seconds = metrics.histogram({"heddle_seconds"}, "Seconds.", bounds);
  stops.add();
  stops.add(2);
  aborts.add(0);
  running.set(5);
  running.set(4);
  for (const double value : {0.05, 0.5, 0.7, 30.0}) seconds.observe(value);

  const auto text = testing::parse_exposition(metrics.to_text());
  EXPECT_EQ(text.types.at("heddle_ends_total"), "counter");
  EXPECT_EQ(text.helps.at("heddle_ends_total"), "Ends.");
  EXPECT_EQ(text.value("heddle_ends_total", {R"(model_name="m")", R"(reason="stop")"}), 3);
  EXPECT_EQ(text.value("heddle_ends_total", {R"(reason="abort")"}), 0);
  EXPECT_EQ(text.value("heddle_running"), 4);
  EXPECT_EQ(text.value("heddle_seconds_bucket", {R"(le="0.1")"}), 1);
  EXPECT_EQ(text.value("heddle_seconds_bucket", {R"(le="1")"}), 3);
  EXPECT_EQ(text.value("heddle_seconds_bucket", {R"(le="+Inf")"}), 4);
  EXPECT_EQ(text.value("heddle_seconds_count"), 4);
  EXPECT_DOUBLE_EQ(text.value("heddle_seconds_sum"), 31.25);
}

TEST(MetricRegistryTest, AskedForAgainItIsTheSameMetric) {
  MetricRegistry metrics(MetricNames::kHeddle, {});
  metrics.counter({"heddle_a_total"}, "A.").add();
  metrics.counter({"heddle_a_total"}, "A.").add();
  EXPECT_EQ(testing::parse_exposition(metrics.to_text()).value("heddle_a_total"), 2);
}

TEST(MetricRegistryTest, ForeignNamesReplaceOursWhereThereAreSome) {
  for (const MetricNames names : {MetricNames::kHeddle, MetricNames::kSglang}) {
    MetricRegistry metrics(names, {});
    metrics.gauge({"heddle_running", "sglang:num_running_reqs"}, "Running.").set(1);
    metrics.gauge({"heddle_only_ours"}, "Ours.").set(1);
    const auto text = testing::parse_exposition(metrics.to_text());
    const bool foreign = names == MetricNames::kSglang;
    EXPECT_EQ(text.types.contains("sglang:num_running_reqs"), foreign);
    EXPECT_EQ(text.types.contains("heddle_running"), !foreign);
    EXPECT_TRUE(text.types.contains("heddle_only_ours"));
  }
}

TEST(MetricRegistryTest, LabelsMayHoldAnything) {
  MetricRegistry metrics(MetricNames::kHeddle, {{"model_name", "a\"b\\c\nd"}});
  metrics.gauge({"heddle_running"}, "Running.").set(1);
  const std::string text = metrics.to_text();
  EXPECT_THAT(text, HasSubstr(R"(model_name="a\"b\\c\nd")"));
  EXPECT_THAT(text, Not(HasSubstr("c\nd")));
}

}  // namespace
}  // namespace heddle
