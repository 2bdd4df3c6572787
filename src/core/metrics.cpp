// SPDX-License-Identifier: Apache-2.0
#include "core/metrics.h"

#include <map>

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "core/check.h"

namespace heddle {

struct MetricRegistry::Impl {
  MetricNames names;
  std::map<std::string, std::string> common;
  prometheus::Registry registry;

  [[nodiscard]] std::string name_of(const MetricName& name) const {
    const bool foreign = names == MetricNames::kSglang && !name.sglang.empty();
    return std::string(foreign ? name.sglang : name.heddle);
  }

  [[nodiscard]] std::map<std::string, std::string> labels_of(const MetricLabels& labels) const {
    std::map<std::string, std::string> all = common;
    for (const auto& [key, value] : labels) all[key] = value;
    return all;
  }
};

std::string_view to_string(MetricNames names) {
  return names == MetricNames::kSglang ? "sglang" : "heddle";
}

Result<MetricNames> parse_metric_names(std::string_view text) {
  if (text == "heddle") return MetricNames::kHeddle;
  if (text == "sglang") return MetricNames::kSglang;
  return invalid_argument(
      fmt::format("metrics names \"{}\" are not known; use heddle or sglang", text));
}

void MetricCounter::add(double amount) const {
  HEDDLE_DCHECK(amount >= 0);
  static_cast<prometheus::Counter*>(counter_)->Increment(amount);
}

void MetricGauge::set(double value) const { static_cast<prometheus::Gauge*>(gauge_)->Set(value); }

void MetricHistogram::observe(double value) const {
  static_cast<prometheus::Histogram*>(histogram_)->Observe(value);
}

MetricRegistry::MetricRegistry(MetricNames names, MetricLabels common)
    : impl_(std::make_unique<Impl>()) {
  impl_->names = names;
  for (auto& [key, value] : common) impl_->common.emplace(std::move(key), std::move(value));
}

MetricRegistry::~MetricRegistry() = default;

MetricCounter MetricRegistry::counter(MetricName name, std::string_view help,
                                      const MetricLabels& labels) {
  MetricCounter handle;
  handle.counter_ = &prometheus::BuildCounter()
                         .Name(impl_->name_of(name))
                         .Help(std::string(help))
                         .Register(impl_->registry)
                         .Add(impl_->labels_of(labels));
  return handle;
}

MetricGauge MetricRegistry::gauge(MetricName name, std::string_view help,
                                  const MetricLabels& labels) {
  MetricGauge handle;
  handle.gauge_ = &prometheus::BuildGauge()
                       .Name(impl_->name_of(name))
                       .Help(std::string(help))
                       .Register(impl_->registry)
                       .Add(impl_->labels_of(labels));
  return handle;
}

MetricHistogram MetricRegistry::histogram(MetricName name, std::string_view help,
                                          std::span<const double> bounds,
                                          const MetricLabels& labels) {
  MetricHistogram handle;
  handle.histogram_ = &prometheus::BuildHistogram()
                           .Name(impl_->name_of(name))
                           .Help(std::string(help))
                           .Register(impl_->registry)
                           .Add(impl_->labels_of(labels), prometheus::Histogram::BucketBoundaries(
                                                              bounds.begin(), bounds.end()));
  return handle;
}

std::string MetricRegistry::to_text() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace heddle
