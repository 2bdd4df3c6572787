// SPDX-License-Identifier: Apache-2.0
// The report of a load test as one HTML file: numbers, and plots as inline SVG. It loads nothing,
// runs no script, and follows the reader's setting of light or dark mode.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tools/load/load_report.h"

namespace heddle::tools {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ground: #ffffff; --panel: #f5f6f8; --ink: #1b1f24;
  --faint: #667080; --rule: #d5dae1; --one: #2563c9; --two: #c2560c; --bad: #c4262e; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --panel: #1d2127; --ink: #e6e9ee;
  --faint: #97a1af; --rule: #363d47; --one: #6ea8fe; --two: #f0a35e; --bad: #ff7b7b; } }
body { margin: 0 auto; max-width: 70rem; padding: 1.5rem; background: var(--ground);
  color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .6rem; }
.tile { background: var(--panel); border-radius: .5rem; padding: .6rem .8rem; }
.tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.tile span, figcaption, .note { color: var(--faint); font-size: .85rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: .8rem; }
figure { margin: 0; background: var(--panel); border-radius: .5rem; padding: .6rem .8rem; }
figcaption b { color: var(--ink); } svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--faint); font: 11px system-ui, sans-serif; }
.axis { stroke: var(--rule); fill: none; } .curve { fill: none; stroke-width: 1.8; }
.one { stroke: var(--one); } .two { stroke: var(--two); } .dot { fill: var(--one); opacity: .6; }
.bad { stroke: var(--bad); stroke-width: 1.5; } .limit { stroke: var(--two); stroke-dasharray: 4 3; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--rule);
  font-variant-numeric: tabular-nums; }
th:first-child, td:first-child, .words td, .words th { text-align: left; overflow-wrap: anywhere; }
th { color: var(--faint); font-weight: 500; } .failed { color: var(--bad); }
)";

constexpr double kWidth = 480, kHeight = 220, kLeft = 52, kRight = 10, kTop = 10, kBottom = 30;
constexpr int kTicks = 4;
// Limit for the points of a plot, which keeps the file quick to show.
constexpr size_t kMaxDots = 2000;
constexpr int kCurvePoints = 200;
constexpr int64_t kTimelineBins = 60;

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

// Rounds up to a number with few digits whose quarter also has few digits, for axis labels.
double round_up(double value) {
  if (!(value > 0)) return 1;
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double step : {1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0}) {
    if (value <= step * power * (1 + 1e-9)) return step * power;
  }
  return 10 * power;
}

class Plot {
 public:
  Plot(double x_end, double y_end, std::string_view x_unit)
      : x_end_(round_up(x_end)), y_end_(y_end) {
    svg_ = fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\">", kWidth, kHeight);
    for (int i = 0; i <= kTicks; ++i) {
      const double share = static_cast<double>(i) / kTicks;
      svg_ += fmt::format(
          "<path class=\"axis\" d=\"M{:.1f} {:.1f}H{:.1f}\"/><text x=\"{:.1f}\" y=\"{:.1f}\" "
          "text-anchor=\"end\">{:.4g}</text><text x=\"{:.1f}\" y=\"{:.1f}\" "
          "text-anchor=\"{}\">{:.4g}{}</text>",
          kLeft, y(share * y_end_), kWidth - kRight, kLeft - 6, y(share * y_end_) + 4,
          share * y_end_, x(share * x_end_), kHeight - 10, i == kTicks ? "end" : "middle",
          share * x_end_, i == kTicks ? " " + std::string(x_unit) : "");
    }
  }

  void curve(const std::vector<std::pair<double, double>>& points, std::string_view style) {
    if (points.empty()) return;
    std::string path;
    for (const auto& [at, value] : points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(at), y(value));
    }
    svg_ += fmt::format("<path class=\"curve {}\" d=\"{}\"/>", style, path);
  }

  void dot(double at, double value, std::string_view title) {
    svg_ += fmt::format(
        "<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"><title>{}</title></circle>",
        x(at), y(value), escaped(title));
  }

  void cross(double at, std::string_view title) {
    svg_ += fmt::format(
        "<path class=\"bad\" d=\"M{0:.1f} {1:.1f}l7 7m-7 0l7 -7\"><title>{2}</title></path>",
        x(at) - 3.5, kTop, escaped(title));
  }

  void vertical(double at, std::string_view title) {
    svg_ +=
        fmt::format("<path class=\"limit\" d=\"M{:.1f} {:.1f}V{:.1f}\"><title>{}</title></path>",
                    x(std::min(at, x_end_)), kTop, kHeight - kBottom, escaped(title));
  }

  [[nodiscard]] std::string figure(std::string_view title, std::string_view note) const {
    return fmt::format("<figure><figcaption><b>{}</b> {}</figcaption>{}</svg></figure>\n",
                       escaped(title), escaped(note), svg_);
  }

 private:
  [[nodiscard]] double x(double value) const {
    return kLeft + value / x_end_ * (kWidth - kLeft - kRight);
  }

  [[nodiscard]] double y(double value) const {
    return kHeight - kBottom - value / y_end_ * (kHeight - kTop - kBottom);
  }

  double x_end_, y_end_;
  std::string svg_;
};

std::string distribution_plot(std::string_view name, std::string_view meaning,
                              const Distribution& values, const std::optional<double>& limit) {
  if (values.sorted.empty()) return {};
  // A few outliers would compress the rest of the plot: the last hundredth is cut off if it is far
  // away.
  const double far = values.percentile(0.99) * 2;
  const double end = values.max() > far && far > 0 ? far : values.max();
  Plot plot(std::max(end, 1e-3), 100, "ms");
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i <= kCurvePoints; ++i) {
    const double share = static_cast<double>(i) / kCurvePoints;
    const double value = values.percentile(share);
    if (value > end) break;
    points.emplace_back(value, share * 100);
  }
  plot.curve(points, "one");
  if (limit) plot.vertical(*limit, fmt::format("limit: {} ms", *limit));
  return plot.figure(name,
                     fmt::format("{}; % of {} that are as quick", meaning, values.sorted.size()));
}

std::string series_plot(std::string_view title, std::string_view note, double bin_seconds,
                        const std::vector<double>& values, std::string_view style) {
  Plot plot(bin_seconds * static_cast<double>(values.size()),
            round_up(*std::ranges::max_element(values)), "s");
  std::vector<std::pair<double, double>> points;
  for (size_t i = 0; i < values.size(); ++i) {
    points.emplace_back((static_cast<double>(i) + 0.5) * bin_seconds, values[i]);
  }
  plot.curve(points, style);
  return plot.figure(title, note);
}

std::string scatter_plot(const LoadReport& report) {
  double last_sent = 0;
  for (const LoadRecord& record : report.records) last_sent = std::max(last_sent, record.sent);
  const Distribution& ttft = report.statistics.ttft_ms;
  Plot plot(std::max(last_sent, 1e-3), round_up(ttft.max()), "s");
  const size_t step = report.records.size() / kMaxDots + 1;
  for (size_t i = 0; i < report.records.size(); i += step) {
    const LoadRecord& record = report.records[i];
    if (record.failure) {
      plot.cross(record.sent, record.failure->kind);
    } else if (const auto ms = latencies_of(record).ttft_ms) {
      plot.dot(record.sent, *ms,
               fmt::format("{:.0f} ms, {} input tokens", *ms, record.input_tokens.value_or(0)));
    }
  }
  return plot.figure("Time to first token by time of sending",
                     "ms; a cross is a request that failed");
}

std::string tile(std::string_view value, std::string_view name) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", value, name);
}

std::string tiles(const LoadReport& report) {
  const LoadStatistics& statistics = report.statistics;
  const auto number = [](double value) { return fmt::format("{:.4g}", value); };
  std::string html = "<div class=\"tiles\">\n";
  html += tile(number(statistics.per_second(statistics.output_tokens)), "output tokens/s");
  html += tile(number(statistics.per_second(statistics.completed)), "requests/s");
  if (report.levels.any()) {
    html += tile(number(statistics.per_second(statistics.good)), "goodput, requests/s");
  }
  html += tile(number(statistics.ttft_ms.percentile(0.5)) + " ms", "TTFT, median");
  html += tile(number(statistics.itl_ms.percentile(0.5)) + " ms", "ITL, median");
  html += tile(number(statistics.e2e_ms.percentile(0.99)) + " ms", "E2E, p99");
  html += tile(number(statistics.concurrency), "mean requests in flight");
  html +=
      tile(fmt::format("{} + {}", statistics.completed, statistics.failed), "completed + failed");
  return html + "</div>\n";
}

std::string distributions_table(const LoadStatistics& statistics) {
  std::string html =
      "<h2>Latencies in ms</h2>\n<div "
      "class=\"scroll\"><table><tr><th></th><th>mean</th><th>std</th>"
      "<th>median</th><th>p90</th><th>p95</th><th>p99</th><th>max</th></tr>\n";
  const auto add = [&html](std::string_view name, const Distribution& values) {
    html += fmt::format(
        "<tr><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td>"
        "<td>{:.2f}</td><td>{:.2f}</td></tr>\n",
        name, values.mean, values.deviation, values.percentile(0.5), values.percentile(0.9),
        values.percentile(0.95), values.percentile(0.99), values.max());
  };
  add("Time to first token (TTFT)", statistics.ttft_ms);
  add("Between tokens (ITL)", statistics.itl_ms);
  add("Per output token (TPOT)", statistics.tpot_ms);
  add("End to end (E2E)", statistics.e2e_ms);
  return html + "</table></div>\n";
}

std::string failures_table(const LoadStatistics& statistics) {
  if (statistics.failures.empty()) return {};
  std::string html =
      "<h2 class=\"failed\">Failures</h2>\n<div class=\"scroll\"><table "
      "class=\"words\"><tr><th>kind"
      "</th><th>requests</th><th>the first one's message</th></tr>\n";
  for (const auto& [kind, failures] : statistics.failures) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", escaped(kind),
                        failures.count, escaped(failures.example));
  }
  return html + "</table></div>\n";
}

std::string facts_table(const LoadReport& report) {
  const LoadStatistics& statistics = report.statistics;
  std::string html = "<h2>The run</h2>\n<div class=\"scroll\"><table class=\"words\">\n";
  const auto add = [&html](std::string_view name, std::string_view value) {
    html += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escaped(name), escaped(value));
  };
  for (const auto& [name, value] : report.facts) add(name, value);
  add("duration", fmt::format("{:.2f} s", statistics.duration_seconds));
  add("input tokens",
      fmt::format("{}, {} of them cached", statistics.input_tokens, statistics.cached_tokens));
  add("output tokens", fmt::format("{}", statistics.output_tokens));
  add("latest send behind schedule", fmt::format("{:.1f} ms", statistics.max_lag_seconds * 1e3));
  const auto ended = static_cast<int64_t>(report.records.size());
  if (report.planned > ended) {
    add("not ended", fmt::format("{} of {} requests", report.planned - ended, report.planned));
  }
  return html + "</table></div>\n";
}

}  // namespace

std::string load_report_html(const LoadReport& report) {
  const LoadStatistics& statistics = report.statistics;
  std::string html =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>Load test</title>\n<style>";
  html += kStyle;
  html += "</style>\n</head>\n<body>\n<h1>Load test</h1>\n";
  for (const auto& [name, value] : report.facts) {
    if (name == "workload" || name == "load") {
      html += fmt::format("<div class=\"note\">{}</div>\n", escaped(value));
    }
  }
  html +=
      "<p></p>\n" + tiles(report) + failures_table(statistics) + distributions_table(statistics);
  html += "<h2>Distributions</h2>\n<div class=\"plots\">\n";
  html +=
      distribution_plot("TTFT", "time to first token", statistics.ttft_ms, report.levels.ttft_ms);
  html += distribution_plot("ITL", "time between tokens", statistics.itl_ms, report.levels.itl_ms);
  html +=
      distribution_plot("TPOT", "time per output token", statistics.tpot_ms, report.levels.tpot_ms);
  html += distribution_plot("E2E", "end to end", statistics.e2e_ms, report.levels.e2e_ms);
  html += "</div>\n<h2>Over time</h2>\n<div class=\"plots\">\n";
  const LoadTimeline timeline = timeline_of(report.records, kTimelineBins);
  html +=
      series_plot("Output", "tokens/s", timeline.bin_seconds, timeline.tokens_per_second, "one");
  html += series_plot("Requests in flight", "mean of each part", timeline.bin_seconds,
                      timeline.in_flight, "two");
  html += scatter_plot(report);
  html += "</div>\n" + facts_table(report) + "</body>\n</html>\n";
  return html;
}

}  // namespace heddle::tools
