// SPDX-License-Identifier: Apache-2.0
// MetricRegistry: counters, gauges and histograms that a Prometheus server reads as text.
//
//   MetricRegistry metrics(MetricNames::kHeddle, {{"model_name", "heddle-tiny"}});
//   MetricCounter steps = metrics.counter({"heddle_steps_total"}, "Steps that were computed.");
//   steps.add();
//   metrics.to_text();
//
// A metric may have two names, Heddle's and the one that dashboards for SGLang use; the registry
// exports one of them. Only metrics.cpp includes the headers of the metrics library.
//
// Threading: everything is thread-safe. add() and set() are atomic operations, observe() takes a
//            lock of its own for a few nanoseconds; none of them allocates.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <heddle/options.h>

namespace heddle {

struct MetricName {
  std::string_view heddle;
  std::string_view sglang = {};  // empty: the same as Heddle's name
};

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Handles: small, copyable, valid as long as the registry. A default-constructed one must not be
// used.
class MetricCounter {
 public:
  void add(double amount = 1) const;  // `amount` must not be negative (checked)

 private:
  friend class MetricRegistry;
  void* counter_ = nullptr;
};

class MetricGauge {
 public:
  void set(double value) const;

 private:
  friend class MetricRegistry;
  void* gauge_ = nullptr;
};

class MetricHistogram {
 public:
  void observe(double value) const;

 private:
  friend class MetricRegistry;
  void* histogram_ = nullptr;
};

class MetricRegistry {
 public:
  // `common` labels are added to every metric.
  MetricRegistry(MetricNames names, MetricLabels common);
  ~MetricRegistry();
  MetricRegistry(const MetricRegistry&) = delete;
  MetricRegistry& operator=(const MetricRegistry&) = delete;

  // The metric with this name and these labels; later calls return the same one. A name has one
  // kind and one help text. Cost: allocates and takes a lock, so callers keep the handle.
  MetricCounter counter(MetricName name, std::string_view help, const MetricLabels& labels = {});
  MetricGauge gauge(MetricName name, std::string_view help, const MetricLabels& labels = {});

  // `bounds` are the upper ends of the buckets, ascending; a last bucket counts all larger values.
  MetricHistogram histogram(MetricName name, std::string_view help, std::span<const double> bounds,
                            const MetricLabels& labels = {});

  // All metrics in Prometheus' text exposition format, version 0.0.4.
  [[nodiscard]] std::string to_text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The content type that a server sends with to_text().
inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace heddle
