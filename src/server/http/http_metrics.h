// SPDX-License-Identifier: Apache-2.0
// HttpMetrics counts requests by route and status, the time they took, and clients that left. The
// engine counts the rest (engine/engine_metrics.h).
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

  // `route` is a path of the server's own, never a client's: it becomes a label. Empty: none of
  // them. A request that was not read to its end counts, but not its time.
  void on_answered(std::string_view route, const Answered& answered);

  [[nodiscard]] std::string to_text() const { return registry_.to_text(); }

 private:
  MetricRegistry registry_;
  std::map<std::pair<std::string, int>, MetricCounter> requests_;
  std::map<std::string, MetricHistogram> seconds_;
  MetricCounter disconnects_;
};

}  // namespace heddle::server
