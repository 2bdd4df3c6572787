// SPDX-License-Identifier: Apache-2.0
// heddle bench serve: measures a server with OpenAI's API under load, this one or any other.
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/cli/machine.h"
#include "tools/cli/output_file.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/terminal.h"
#include "tools/load/load_client.h"
#include "tools/load/load_report.h"

namespace heddle::tools {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kDefaultClients = 8;

struct BenchServeCommand {
  std::string url = "http://127.0.0.1:30000";
  std::string api = "completions";
  bool insecure = false;
  LoadClientOptions client;
  LoadWorkloadOptions workload;
  int64_t warmup = 1;
  ServiceLevels levels;
  bool details = false;
  std::string html_file;
  BenchOutput output;
};

// The arguments of this process, with the API key removed.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string raw((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::string line;
  bool secret = false;
  for (size_t begin = 0; begin < raw.size();) {
    const size_t end = std::min(raw.find('\0', begin), raw.size());
    std::string word = raw.substr(begin, end - begin);
    begin = end + 1;
    if (secret) word = "***";
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    const bool names_key = name == "--api-key" || name == "--api_key";
    secret = names_key && equals == word.size();
    if (names_key && !secret) word = name + "=***";
    const bool plain = !word.empty() && word.find_first_of(" \"'$\\&;|<>*?(){}") == word.npos;
    line += (line.empty() ? "" : " ") + (plain || word == "***" ? word : "'" + word + "'");
  }
  return line;
}

Status check_serve(BenchServeCommand& command) {
  auto address = parse_server_address(command.url);
  if (!address.ok()) return address.status().with_context("--url");
  command.client.address = std::move(address).value();
  command.client.address.insecure = command.insecure;
  command.client.api = command.api == "chat"               ? LoadApi::kChatCompletions
                       : command.api == "completions-text" ? LoadApi::kCompletionsText
                                                           : LoadApi::kCompletions;
  if (!command.client.extra_body.empty() &&
      !ordered_json::parse(command.client.extra_body, nullptr, /*allow_exceptions=*/false)
           .is_object()) {
    return invalid_argument(
        fmt::format("--extra-body {}: it is no JSON object; write one as '{{\"top_k\": 20}}'",
                    command.client.extra_body));
  }
  if (!command.html_file.empty()) {
    HEDDLE_RETURN_IF_ERROR(check_output_file(command.html_file, ExistingFile::kReplace));
  }
  return check_bench_output(command.output);
}

Result<LoadWorkload> read_workload(const BenchServeCommand& command) {
  HEDDLE_ASSIGN_OR_RETURN(LoadWorkload workload, make_load_workload(command.workload));
  for (const LoadRequest& request : workload.requests) {
    if (!request.messages.empty() && command.client.api != LoadApi::kChatCompletions) {
      return invalid_argument(
          fmt::format("{} has messages, which need --api chat", command.workload.prompts_file));
    }
  }
  return workload;
}

std::string describe_load(const BenchServeCommand& command, const LoadWorkload& workload) {
  const auto& concurrency = command.client.concurrency;
  if (!workload.open_loop) return fmt::format("closed loop, {} clients", *concurrency);
  std::string text = "open loop";
  if (command.workload.rate) {
    text += fmt::format(", {} arrivals, {} requests/s", command.workload.arrivals,
                        *command.workload.rate);
  }
  return concurrency ? fmt::format("{}, at most {} in flight", text, *concurrency) : text;
}

Status write_html(const std::string& name, const std::string& html) {
  std::ofstream file(name);
  file << html;
  if (!file.flush()) return invalid_argument(fmt::format("{}: cannot be written", name));
  return {};
}

// Ends the run at the first Ctrl-C, so that the report covers what was done, and the program at the
// second.
class EndOnInterrupt {
 public:
  explicit EndOnInterrupt(LoadClient& client) {
    interrupts().set_handler([&client](int signal, int count) {
      if (count > 1) std::_Exit(128 + signal);
      client.stop();
    });
  }

  ~EndOnInterrupt() { interrupts().set_handler({}); }

  EndOnInterrupt(const EndOnInterrupt&) = delete;
  EndOnInterrupt& operator=(const EndOnInterrupt&) = delete;
};

Status warm_up(LoadClient& client, const BenchServeCommand& command, const LoadWorkload& workload) {
  std::vector<LoadRequest> requests;
  for (int64_t i = 0; i < command.warmup; ++i) {
    requests.push_back(workload.requests[static_cast<size_t>(i % std::ssize(workload.requests))]);
    requests.back().at_seconds.reset();
    // Uses other prompts than the measured ones, so that a cache does not know those afterwards.
    for (PromptSegment& segment : requests.back().segments) segment.seed = ~segment.seed;
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto records, client.run(requests));
  for (const LoadRecord& record : records) {
    if (!record.failure) continue;
    return unavailable(fmt::format("a request to warm up failed, {}: {}", record.failure->kind,
                                   record.failure->message));
  }
  return {};
}

Status run_serve_benchmark(BenchServeCommand& command) {
  HEDDLE_RETURN_IF_ERROR(check_serve(command));
  HEDDLE_ASSIGN_OR_RETURN(const LoadWorkload workload, read_workload(command));
  if (!workload.open_loop && !command.client.concurrency) {
    command.client.concurrency = kDefaultClients;
  }
  LoadClient client(command.client);
  const EndOnInterrupt end(client);
  std::string model = command.client.model;
  if (model.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(model, client.choose_model());
  }
  HEDDLE_RETURN_IF_ERROR(warm_up(client, command, workload));

  const std::string date = utc_time(std::time(nullptr));
  LoadReport report;
  report.planned = std::ssize(workload.requests);
  report.levels = command.levels;
  ProgressBar bar(report.planned);
  HEDDLE_ASSIGN_OR_RETURN(
      report.records, client.run(workload.requests, [&bar](const LoadProgress& progress) {
        const double rate =
            progress.seconds > 0 ? static_cast<double>(progress.arrivals) / progress.seconds : 0;
        bar.show(progress.done,
                 fmt::format("requests, {} in flight, {:.1f} events/s, TTFT {:.0f} ms, {} failed",
                             progress.in_flight, rate, progress.last_ttft_ms, progress.failed));
      }));
  bar.clear();
  report.statistics = summarize(report.records, report.levels);
  report.facts = {{"date", date},
                  {"server", command.url},
                  {"model", model},
                  {"api", command.api},
                  {"workload", workload.description},
                  {"load", describe_load(command, workload)},
                  {"client", cpu_model()},
                  {"commit", built_commit()},
                  {"command", command_line()}};
  if (!command.html_file.empty()) {
    HEDDLE_RETURN_IF_ERROR(write_html(command.html_file, load_report_html(report)));
  }
  ordered_json json = load_report_json(report, command.details);
  json["seed"] = command.workload.seed;
  json["machine"] = {{"cpu", cpu_model()}, {"commit", built_commit()}};
  HEDDLE_RETURN_IF_ERROR(emit(command.output, json, load_report_text(report)));
  if (report.statistics.completed == 0) return unavailable("no request was answered");
  return {};
}

std::function<int()> declare_serve_benchmark(Options& options) {
  auto settings = std::make_shared<BenchServeCommand>();
  LoadClientOptions& client = settings->client;
  LoadWorkloadOptions& workload = settings->workload;
  options.examples(
      "heddle bench serve\n"
      "heddle bench serve --url http://host:8000 --concurrency 32 --requests 500 --html load.html\n"
      "heddle bench serve --rate 4 --input-tokens 1024 --output-tokens 256 --slo ttft=1000,itl=50\n"
      "heddle bench serve --rate 20 --arrivals burst --prefix-tokens 2048 --groups 8\n"
      "heddle bench serve --api chat --prompts prompts.jsonl\n"
      "heddle bench serve --trace AzureLLMInferenceTrace_conv.csv --requests 500 --speed 2\n"
      "\n"
      "Without --rate or --trace, every client sends its next request when it has its answer "
      "(closed\n"
      "loop). With one, requests are sent at their times, however slow the answers are (open "
      "loop).\n"
      "Ctrl-C ends the run; the report is then of what was done.");
  options.heading("Server");
  options.text("--url", &settings->url, "Where the server is: http or https");
  options.flag("--insecure", &settings->insecure, "Accept any certificate of an https server");
  options.text("--model", &client.model, "Name to ask for; default: the first of /v1/models");
  options.text("--api-key", &client.api_key, "Key to send; reports do not show it");
  options.choice("--api", &settings->api, {"completions", "completions-text", "chat"},
                 "completions sends token ids, the others words");
  options.flag("--ignore-eos,!--no-ignore-eos", &client.ignore_eos,
               "Ask for answers of full length; turn off where a server refuses it");
  options.text("--extra-body", &client.extra_body, "JSON object to add to every request");
  options.value("--timeout", &client.timeout_seconds, ranges::kMeasureSeconds,
                "Seconds until a request has failed");
  options.heading("Load");
  options.value("-n,--requests", &workload.requests, ranges::kCount,
                "Requests to send; default: 100, or all of a file");
  options.value("--concurrency", &client.concurrency, ranges::kCount,
                "Clients of a closed loop (default 8), or most in flight of an open one");
  options.value("--rate", &workload.rate, ranges::kPositive, "Requests per second of an open loop");
  options.choice("--arrivals", &workload.arrivals, {"poisson", "uniform", "burst"},
                 "How they are spread in time");
  options.value("--burst-size", &workload.burst_size, ranges::kCount, "Requests of one burst");
  options.value("--seed", &workload.seed, "Of lengths, prompts and arrivals");
  options.value("--warmup", &settings->warmup, ranges::kCountOrNone, "Requests before the clock");
  options.heading("Prompts");
  options.value("--input-tokens", &workload.input_tokens, ranges::kContext, "Of a random prompt");
  options.value("--output-tokens", &workload.output_tokens, ranges::kContext, "Of every answer");
  options.value("--length-ratio", &workload.length_ratio, ranges::kShare,
                "Lengths are uniform between this share of them and all");
  options.value("--prefix-tokens", &workload.prefix_tokens, ranges::kCountOrNone,
                "Tokens before them, which a group shares");
  options.value("--groups", &workload.groups, ranges::kCount, "Different prefixes");
  options.value("--vocab-size", &client.vocab_size, {.low = 4, .high = 1e7},
                "Token ids are drawn below this");
  options.text("--prompts", &workload.prompts_file, "File of requests (.jsonl)");
  options.text("--trace", &workload.trace_file, "Recorded times and lengths (.csv, .jsonl)");
  options.value("--speed", &workload.speed, ranges::kPositive, "Of the trace's clock");
  options.value("--scale", &workload.scale, ranges::kPositive, "Of the trace's lengths");
  options.heading("Report");
  options.parsed(
      "--slo", "",
      [settings = settings.get()](std::string_view text) -> Status {
        auto levels = parse_service_levels(text);
        if (!levels.ok()) return levels.status().with_context("--slo");
        settings->levels = *levels;
        return {};
      },
      "Limits in ms for the goodput: ttft=1000,itl=50,tpot=50,e2e=9000");
  options.text("--html", &settings->html_file, "Also write a report with plots to a file");
  options.flag("--details", &settings->details, "Every request in the JSON report");
  declare_bench_output(options, settings->output);

  options.needs("--arrivals", "--rate");
  options.excludes("--rate", "--trace");
  options.excludes("--prompts", "--trace");
  options.needs("--speed", "--trace");
  options.needs("--scale", "--trace");
  for (const char* name : {"--input-tokens", "--length-ratio", "--prefix-tokens"}) {
    options.excludes(name, "--prompts");
    options.excludes(name, "--trace");
  }
  options.excludes("--output-tokens", "--trace");
  const BenchServeCommand* const read = settings.get();
  options.has_effect_if(
      "--burst-size", [read] { return read->workload.arrivals == "burst"; },
      "without bursts; add --arrivals burst");
  options.has_effect_if(
      "--groups", [read] { return read->workload.prefix_tokens > 0; },
      "without a prefix; name --prefix-tokens");
  options.has_effect_if(
      "--vocab-size",
      [read] { return read->api == "completions" && read->workload.prompts_file.empty(); },
      "on words; only --api completions sends ids");
  options.has_effect_if(
      "--details", [read] { return read->output.json || !read->output.file.empty(); },
      "without --json or --output");
  return [settings] {
    const Status status = run_serve_benchmark(*settings);
    return status.ok() ? 0 : report_failure(status);
  };
}

}  // namespace

const Subcommand kBenchServe = {.name = "serve",
                                .summary = "Measure a server under load, this one or another.",
                                .declare = declare_serve_benchmark};

}  // namespace heddle::tools
