// SPDX-License-Identifier: Apache-2.0
// ProcessMetrics: the metrics that Prometheus' clients export for every process
// (process_cpu_seconds_total, process_resident_memory_bytes, ...), and heddle_build_info, a
// constant 1 whose labels name the version.
//
// Threading: thread-confined.
#pragma once

#include <string>

#include "core/metrics.h"

namespace heddle::server {

class ProcessMetrics {
 public:
  // `build`: labels of heddle_build_info.
  explicit ProcessMetrics(const MetricLabels& build);

  // The current values as text for Prometheus. A value that cannot be read keeps its last value.
  // Cost: reads /proc, a few system calls for each open file.
  [[nodiscard]] std::string to_text();

 private:
  MetricRegistry registry_;
  MetricCounter cpu_seconds_;
  double counted_cpu_seconds_ = 0;
  MetricGauge resident_bytes_;
  MetricGauge virtual_bytes_;
  MetricGauge open_files_;
  MetricGauge max_files_;
  MetricGauge start_seconds_;
  const double boot_seconds_;  // when the machine booted, seconds since 1970
};

}  // namespace heddle::server
