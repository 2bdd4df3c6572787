// SPDX-License-Identifier: Apache-2.0
// HttpMetrics: counts requests by route and status, the time they took, and clients that
// disconnected. The other counters are the engine's (engine/engine_metrics.h).
//
// Threading: confined to the I/O thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/metrics.h"
#include "server/http/http_message.h"

namespace heddle::server {

class HttpMetrics {
 public:
  HttpMetrics();

  // Counts an answered request. `route` becomes a label, so it is one of the server's own paths,
  // never a client's text; empty: an unknown path. A request that was not read to its end is
  // counted, but its time is not.
  void on_answered(std::string_view route, const Answered& answered);

  [[nodiscard]] std::string to_text() const { return registry_.to_text(); }

 private:
  MetricRegistry registry_;
  std::map<std::pair<std::string, int>, MetricCounter> requests_;
  std::map<std::string, MetricHistogram> seconds_;
  MetricCounter disconnects_;
};

}  // namespace heddle::server
