// SPDX-License-Identifier: Apache-2.0
#include "tools/load/load_workload.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::tools {
namespace {

constexpr int64_t kMooncakeBlockTokens = 512;
constexpr int64_t kMaxTokens = 100'000'000;
constexpr int64_t kFirstOrdinaryId = 3;

// Words that byte-level vocabularies contain as one token, including the space before them.
constexpr std::string_view kWords[] = {
    "the",   "of",    "and",   "to",     "in",   "is",   "you",   "that",   "it",    "he",
    "was",   "for",   "on",    "are",    "as",   "with", "his",   "they",   "at",    "be",
    "this",  "have",  "from",  "or",     "one",  "had",  "by",    "word",   "but",   "not",
    "what",  "all",   "were",  "we",     "when", "your", "can",   "said",   "there", "use",
    "an",    "each",  "which", "she",    "do",   "how",  "their", "if",     "will",  "up",
    "other", "about", "out",   "many",   "then", "them", "these", "so",     "some",  "her",
    "would", "make",  "like",  "him",    "into", "time", "has",   "look",   "two",   "more",
    "write", "go",    "see",   "number", "no",   "way",  "could", "people", "my",    "than",
    "first", "water", "been",  "call",   "who",  "oil",  "its",   "now",    "find",  "long",
    "down",  "day",   "did",   "get",    "come", "made", "may",   "part"};

uint64_t mixed(uint64_t seed, uint64_t salt) {
  return (seed + 1) * 0x9e3779b97f4a7c15u ^ (salt + 1) * 0xbf58476d1ce4e5b9u;
}

// Draws a number below `limit`. Unlike std::uniform_int_distribution, it gives the same result
// everywhere; its bias is below 2^-32 for the small ranges used here.
int64_t draw_below(std::mt19937_64& random, int64_t limit) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
}

Status line_error(const std::string& file, int64_t number, std::string_view what) {
  return invalid_argument(fmt::format("{}, line {}: {}", file, number, what));
}

// Calls `take` with each line that is not empty, until it returns false.
template <typename Take>
Status each_line(const std::string& name, Take take) {
  std::error_code ignored;
  std::ifstream file(name);
  if (!file || std::filesystem::is_directory(name, ignored)) {
    return not_found(fmt::format("cannot read {}; name a file with one request a line", name));
  }
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    HEDDLE_ASSIGN_OR_RETURN(const bool more, take(std::string_view(line), number));
    if (!more) break;
  }
  return {};
}

std::optional<int64_t> token_count(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto count = found->get<uint64_t>();
  if (count > kMaxTokens) return std::nullopt;
  return static_cast<int64_t>(count);
}

std::vector<LoadRequest> random_requests(const LoadWorkloadOptions& options) {
  std::vector<LoadRequest> requests;
  std::mt19937_64 random(mixed(options.seed, 0));
  const auto length = [&](int64_t longest) {
    const auto shortest =
        std::max<int64_t>(std::llround(static_cast<double>(longest) * options.length_ratio), 1);
    return shortest + draw_below(random, longest - shortest + 1);
  };
  const int64_t count = options.requests.value_or(kDefaultRequests);
  for (int64_t i = 0; i < count; ++i) {
    LoadRequest request;
    if (options.prefix_tokens > 0) {
      const auto group = static_cast<uint64_t>(i % options.groups);
      request.segments.push_back(
          {.seed = mixed(options.seed, group << 32), .tokens = options.prefix_tokens});
    }
    request.segments.push_back({.seed = random(), .tokens = length(options.input_tokens)});
    request.output_tokens = length(options.output_tokens);
    requests.push_back(std::move(request));
  }
  return requests;
}

Result<std::vector<LoadRequest>> read_prompts(const LoadWorkloadOptions& options) {
  std::vector<LoadRequest> requests;
  HEDDLE_RETURN_IF_ERROR(
      each_line(options.prompts_file, [&](std::string_view line, int64_t number) -> Result<bool> {
        const nlohmann::json entry =
            nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
        LoadRequest request;
        request.output_tokens = options.output_tokens;
        const bool prompt = entry.is_object() && entry.contains("prompt");
        const bool messages = entry.is_object() && entry.contains("messages");
        if (prompt && !messages && entry["prompt"].is_string()) {
          request.text = entry["prompt"].get<std::string>();
        } else if (messages && !prompt && entry["messages"].is_array()) {
          request.messages = entry["messages"].dump();
        } else {
          return line_error(options.prompts_file, number,
                            "a request is an object with a text \"prompt\" or a list \"messages\"");
        }
        if (entry.contains("output_tokens")) {
          const auto tokens = token_count(entry, "output_tokens");
          if (!tokens || *tokens == 0) {
            return line_error(options.prompts_file, number,
                              "\"output_tokens\" is not a whole number from 1 on");
          }
          request.output_tokens = *tokens;
        }
        requests.push_back(std::move(request));
        return !options.requests || std::ssize(requests) < *options.requests;
      }));
  return requests;
}

// Parses "2023-11-16 18:15:46.6805900" to seconds since 1970.
std::optional<double> parse_time(std::string_view text) {
  const auto number = [text](size_t at, size_t length) {
    int value = -1;
    const std::string_view digits = text.substr(at, length);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + length, value);
    return error == std::errc() && end == digits.data() + length ? value : -1;
  };
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  const int year = number(0, 4), month = number(5, 2), day = number(8, 2);
  const int hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  if (year < 0 || month < 0 || day < 0 || hour < 0 || minute < 0 || second < 0) return std::nullopt;
  const std::chrono::year_month_day date(std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day)));
  if (!date.ok()) return std::nullopt;
  double fraction = 0;
  double unit = 0.1;
  for (const char digit : text.substr(19)) {
    if (digit == '.' && unit == 0.1) continue;
    if (digit < '0' || digit > '9') return std::nullopt;
    fraction += unit * (digit - '0');
    unit /= 10;
  }
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400 + hour * 3600 + minute * 60 + second + fraction;
}

std::optional<int64_t> parse_tokens(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMaxTokens) {
    return std::nullopt;
  }
  return value;
}

class TraceReader {
 public:
  explicit TraceReader(const LoadWorkloadOptions& options) : options_(options) {}

  Result<std::vector<LoadRequest>> read() {
    const std::string& file = options_.trace_file;
    const Status status =
        each_line(file, [this](std::string_view line, int64_t number) -> Result<bool> {
          if (line.starts_with('{')) {
            HEDDLE_RETURN_IF_ERROR(add_mooncake(line, number));
          } else if (!line.starts_with("TIMESTAMP,")) {
            HEDDLE_RETURN_IF_ERROR(add_azure(line, number));
          }
          return !options_.requests || std::ssize(requests_) < *options_.requests;
        });
    HEDDLE_RETURN_IF_ERROR(status);
    if (requests_.empty()) return invalid_argument(fmt::format("{} has no requests", file));
    return std::move(requests_);
  }

 private:
  [[nodiscard]] int64_t scaled(int64_t tokens) const {
    return std::max<int64_t>(std::llround(static_cast<double>(tokens) * options_.scale), 1);
  }

  Status add_azure(std::string_view line, int64_t number) {
    const size_t first = line.find(',');
    const size_t second = first == std::string_view::npos ? first : line.find(',', first + 1);
    if (second != std::string_view::npos) {
      const auto time = parse_time(line.substr(0, first));
      const auto input = parse_tokens(line.substr(first + 1, second - first - 1));
      const auto output = parse_tokens(line.substr(second + 1));
      if (time && input && output) {
        LoadRequest request;
        request.segments.push_back({.seed = mixed(options_.seed, static_cast<uint64_t>(number)),
                                    .tokens = scaled(*input)});
        return add(std::move(request), *time, *output, number);
      }
    }
    return line_error(options_.trace_file, number,
                      "a request is \"2023-11-16 18:15:46.68,CONTEXT_TOKENS,GENERATED_TOKENS\" or "
                      "an object of JSON");
  }

  Status add_mooncake(std::string_view line, int64_t number) {
    const nlohmann::json entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto input = entry.is_object() ? token_count(entry, "input_length") : std::nullopt;
    const auto output = entry.is_object() ? token_count(entry, "output_length") : std::nullopt;
    if (!input || !output || !entry.contains("timestamp") || !entry["timestamp"].is_number()) {
      return line_error(options_.trace_file, number,
                        "a request needs numbers timestamp, input_length and output_length");
    }
    LoadRequest request;
    int64_t left = scaled(*input);
    if (entry.contains("hash_ids")) {
      if (!entry["hash_ids"].is_array()) {
        return line_error(options_.trace_file, number, "hash_ids is no list");
      }
      for (const nlohmann::json& hash : entry["hash_ids"]) {
        if (!hash.is_number_unsigned()) {
          return line_error(options_.trace_file, number, "hash_ids holds what is no number");
        }
        const int64_t tokens = std::min(left, scaled(kMooncakeBlockTokens));
        if (tokens == 0) break;
        request.segments.push_back(
            {.seed = mixed(options_.seed, hash.get<uint64_t>()), .tokens = tokens});
        left -= tokens;
      }
    }
    if (left > 0) {
      request.segments.push_back(
          {.seed = mixed(~options_.seed, static_cast<uint64_t>(number)), .tokens = left});
    }
    return add(std::move(request), entry["timestamp"].get<double>() / 1e3, *output, number);
  }

  Status add(LoadRequest request, double time, int64_t output, int64_t number) {
    if (requests_.empty()) start_ = time;
    request.at_seconds = (time - start_) / options_.speed;
    if (!requests_.empty() && *request.at_seconds < *requests_.back().at_seconds) {
      return line_error(options_.trace_file, number, "it is earlier than the line before");
    }
    request.output_tokens = scaled(output);
    requests_.push_back(std::move(request));
    return {};
  }

  const LoadWorkloadOptions& options_;
  std::vector<LoadRequest> requests_;
  double start_ = 0;
};

ArrivalOptions arrivals_of(const LoadWorkloadOptions& options) {
  return {.kind = options.arrivals == "uniform" ? ArrivalKind::kUniform
                  : options.arrivals == "burst" ? ArrivalKind::kBurst
                                                : ArrivalKind::kPoisson,
          .requests_per_second = *options.rate,
          .burst_size = options.burst_size,
          .seed = options.seed};
}

std::string describe_random(const LoadWorkloadOptions& options) {
  std::string text = fmt::format("random prompts of {} tokens, answers of {}", options.input_tokens,
                                 options.output_tokens);
  if (options.length_ratio < 1) text += fmt::format(", from {} of that on", options.length_ratio);
  if (options.prefix_tokens > 0) {
    text += fmt::format(", after {} prefixes of {} tokens", options.groups, options.prefix_tokens);
  }
  return text;
}

template <typename OnId>
void draw_segments(const LoadRequest& request, int64_t limit, OnId on_id) {
  for (const PromptSegment& segment : request.segments) {
    std::mt19937_64 random(segment.seed);
    for (int64_t i = 0; i < segment.tokens; ++i) on_id(draw_below(random, limit));
  }
}

}  // namespace

Result<LoadWorkload> make_load_workload(const LoadWorkloadOptions& options) {
  LoadWorkload workload;
  const auto file_name = [](const std::string& path) {
    return std::filesystem::path(path).filename().string();
  };
  if (!options.trace_file.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(workload.requests, TraceReader(options).read());
    workload.open_loop = true;
    workload.description = fmt::format("the trace {}, {} times as fast, lengths times {}",
                                       file_name(options.trace_file), options.speed, options.scale);
    return workload;
  }
  if (!options.prompts_file.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(workload.requests, read_prompts(options));
    if (workload.requests.empty()) {
      return invalid_argument(fmt::format("{} has no requests", options.prompts_file));
    }
    workload.description = fmt::format("the prompts of {}", file_name(options.prompts_file));
  } else {
    workload.requests = random_requests(options);
    workload.description = describe_random(options);
  }
  if (!options.rate) return workload;
  workload.open_loop = true;
  const auto times = arrival_times(arrivals_of(options), std::ssize(workload.requests));
  for (size_t i = 0; i < times.size(); ++i) workload.requests[i].at_seconds = times[i];
  return workload;
}

std::vector<int64_t> prompt_ids(const LoadRequest& request, int64_t vocab_size) {
  std::vector<int64_t> ids;
  draw_segments(request, vocab_size - kFirstOrdinaryId,
                [&ids](int64_t id) { ids.push_back(id + kFirstOrdinaryId); });
  return ids;
}

std::string prompt_text(const LoadRequest& request) {
  if (request.segments.empty()) return request.text;
  std::string text;
  draw_segments(request, std::ssize(kWords), [&text](int64_t index) {
    if (!text.empty()) text += ' ';
    text += kWords[index];
  });
  return text;
}

std::vector<double> arrival_times(const ArrivalOptions& options, int64_t count) {
  std::mt19937_64 random(options.seed);
  // Computed here, because distributions of standard libraries differ.
  const auto exponential = [&random](double mean) {
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;  // uniform in [0, 1)
    return -std::log1p(-uniform) * mean;
  };
  const double gap = 1 / options.requests_per_second;
  std::vector<double> times;
  double now = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) {
      switch (options.kind) {
        case ArrivalKind::kPoisson:
          now += exponential(gap);
          break;
        case ArrivalKind::kUniform:
          now = static_cast<double>(i) * gap;
          break;
        case ArrivalKind::kBurst:
          if (i % options.burst_size == 0) {
            now += exponential(gap * static_cast<double>(options.burst_size));
          }
          break;
      }
    }
    times.push_back(now);
  }
  return times;
}

}  // namespace heddle::tools
