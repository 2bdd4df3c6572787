// SPDX-License-Identifier: Apache-2.0
#include "server/http/http_metrics.h"

namespace heddle::server {
namespace {

constexpr double kSecondsBounds[] = {.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 120, 300, 600};

}  // namespace

HttpMetrics::HttpMetrics()
    : registry_(MetricNames::kHeddle, {}),
      disconnects_(registry_.counter({"heddle_client_disconnects_total"},
                                     "Clients that left before their answer was complete.")) {}

void HttpMetrics::on_answered(std::string_view route, const Answered& answered) {
  const std::string label(route.empty() ? "other" : route);
  auto [requests, fresh] = requests_.try_emplace({label, answered.status});
  if (fresh) {
    requests->second = registry_.counter(
        {"heddle_http_requests_total"}, "HTTP requests by route and status of the answer.",
        {{"route", label}, {"status", std::to_string(answered.status)}});
  }
  requests->second.add();
  if (answered.status == kClientLeft) disconnects_.add();
  if (!answered.read_whole) return;
  auto [latency, first] = seconds_.try_emplace(label);
  if (first) {
    latency->second = registry_.histogram({"heddle_http_request_seconds"},
                                          "From the request's last byte to the answer's.",
                                          kSecondsBounds, {{"route", label}});
  }
  latency->second.observe(answered.seconds);
}

}  // namespace heddle::server
