// SPDX-License-Identifier: Apache-2.0
// heddle bench cache: what the prefix cache saves for prompts with common beginnings, what it costs
// for others, and that it changes no answer.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "tools/bench/cache_workload.h"
#include "tools/bench/replay.h"
#include "tools/cli/machine.h"
#include "tools/cli/option_names.h"
#include "tools/cli/options_engine.h"
#include "tools/cli/output_file.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/table.h"

namespace heddle::tools {
namespace {

using nlohmann::ordered_json;

constexpr double kClearTimeoutSeconds = 60;

// The result of one probe in the last run.
struct Probe {
  std::string name;
  int64_t prompt_tokens = 0;
  int64_t computed_tokens = 0;
  double first_token_ms = 0;
};

struct CacheCommand {
  EngineSettings model;
  std::string patterns = "shared,chats,forks,unique,repeats";
  WorkloadShape shape;
  TraceOptions trace;
  int64_t concurrency = 4;
  int64_t runs = 2;
  BenchOutput output;
};

// Results of one engine over all runs of a workload.
struct Side {
  std::vector<double> first_token_ms;  // times to the first token; sorted by percentile()
  std::vector<double> decode_rates;
  double seconds = 0;
  int64_t prompt_tokens = 0;
  int64_t shared_tokens = 0;
  int64_t reused_tokens = 0;
  int64_t matched_tokens = 0;
  int64_t exact_repeats = 0;
  CacheLoss lost;
  std::vector<std::vector<TokenId>> outputs;
  std::vector<Probe> probes;

  void add(const Workload& workload, Replay replay) {
    seconds += replay.seconds;
    probes.clear();
    for (size_t i = 0; i < replay.requests.size(); ++i) {
      const Replayed& request = replay.requests[i];
      if (workload.requests[i].probe.empty()) continue;
      probes.push_back({.name = workload.requests[i].probe,
                        .prompt_tokens = request.prompt_tokens,
                        .computed_tokens = request.prompt_tokens - request.cache.reused_tokens,
                        .first_token_ms = request.first_token_seconds * 1e3});
    }
    for (Replayed& request : replay.requests) {
      first_token_ms.push_back(request.first_token_seconds * 1e3);
      if (request.decode_tokens_per_second > 0) {
        decode_rates.push_back(request.decode_tokens_per_second);
      }
      prompt_tokens += request.prompt_tokens;
      shared_tokens += request.shared_tokens;
      reused_tokens += request.cache.reused_tokens;
      matched_tokens += request.cache.matched_tokens;
      exact_repeats += request.cache.exact_repeat ? 1 : 0;
      lost += request.cache.lost;
      outputs.push_back(std::move(request.output));
    }
  }
};

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto index = static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                   values.end());
  return values[index];
}

double share_of(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

size_t count_equal(const Side& a, const Side& b) {
  size_t equal = 0;
  for (size_t i = 0; i < a.outputs.size(); ++i) equal += a.outputs[i] == b.outputs[i] ? 1 : 0;
  return equal;
}

Status clear_cache(Engine& engine) {
  std::promise<Status> done;
  engine.clear_cache(kClearTimeoutSeconds,
                     [&done](Status status) { done.set_value(std::move(status)); });
  return done.get_future().get();
}

// Runs the workload alternately with and without the cache, so that other load on the machine
// affects both.
Status measure(Engine& cached, Engine& plain, const Workload& workload, const CacheCommand& command,
               Side& with, Side& without) {
  for (int64_t run = 0; run < command.runs; ++run) {
    HEDDLE_RETURN_IF_ERROR(clear_cache(cached));
    HEDDLE_ASSIGN_OR_RETURN(Replay on, replay(cached, workload, command.concurrency));
    HEDDLE_ASSIGN_OR_RETURN(Replay off, replay(plain, workload, command.concurrency));
    with.add(workload, std::move(on));
    without.add(workload, std::move(off));
  }
  return {};
}

ordered_json side_json(const Side& side) {
  return {{"seconds", side.seconds},
          {"ttft_ms_p50", percentile(side.first_token_ms, 0.5)},
          {"ttft_ms_p90", percentile(side.first_token_ms, 0.9)},
          {"ttft_ms_p99", percentile(side.first_token_ms, 0.99)},
          {"decode_tokens_per_second_p50", percentile(side.decode_rates, 0.5)}};
}

ordered_json probes_json(const Side& with, const Side& without) {
  ordered_json json = ordered_json::array();
  for (size_t i = 0; i < with.probes.size(); ++i) {
    const Probe& probe = with.probes[i];
    json.push_back({{"probe", probe.name},
                    {"prompt_tokens", probe.prompt_tokens},
                    {"computed_tokens", probe.computed_tokens},
                    {"ttft_ms", probe.first_token_ms},
                    {"ttft_ms_without_cache", without.probes[i].first_token_ms}});
  }
  return json;
}

std::string probes_text(const Side& with, const Side& without) {
  Table table({"probe", "prompt tokens", "computed", "TTFT ms", "without"});
  for (size_t i = 0; i < with.probes.size(); ++i) {
    const Probe& probe = with.probes[i];
    table.add({probe.name, fmt::format("{}", probe.prompt_tokens),
               fmt::format("{}", probe.computed_tokens),
               fmt::format("{:.2f}", probe.first_token_ms),
               fmt::format("{:.2f}", without.probes[i].first_token_ms)});
  }
  return "\n" + table.to_string();
}

Result<std::vector<Workload>> make_workloads(const std::vector<Pattern>& patterns,
                                             const TraceOptions& trace,
                                             const WorkloadShape& shape) {
  std::vector<Workload> workloads;
  for (const Pattern& pattern : patterns) workloads.push_back(pattern.make(shape));
  if (!trace.file.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(Workload recorded, read_trace(trace, shape));
    workloads.push_back(std::move(recorded));
  }
  return workloads;
}

// Checks the command before a model is loaded, and returns the patterns that were named.
Result<std::vector<Pattern>> check(const CacheCommand& command) {
  if (!command.model.engine.cache.enabled) {
    return invalid_argument(
        "every pattern runs with the prefix cache and without it; leave --no-prefix-cache out");
  }
  HEDDLE_ASSIGN_OR_RETURN(auto patterns, choose_patterns(command.patterns, command.concurrency));
  const std::string& trace = command.trace.file;
  if (patterns.empty() && trace.empty()) return invalid_argument("name --patterns or a --trace");
  if (!trace.empty() && !std::ifstream(trace)) {
    return not_found(
        fmt::format("cannot read the trace {}; name a Mooncake trace (.jsonl)", trace));
  }
  HEDDLE_RETURN_IF_ERROR(check_bench_output(command.output));
  return patterns;
}

Status run_cache(CacheCommand& command) {
  HEDDLE_ASSIGN_OR_RETURN(const auto patterns, check(command));
  HEDDLE_RETURN_IF_ERROR(apply(command.model));
  EngineOptions options = command.model.engine;
  options.skip_tokenizer = true;
  std::optional<double>& share =
      options.static_memory_fraction ? options.static_memory_fraction : options.memory_fraction;
  share = share.value_or(0.5) / 2;  // half each, because two engines are loaded
  options.cache.enabled = true;
  HEDDLE_ASSIGN_OR_RETURN(const auto cached, create_engine(options));
  options.cache.enabled = false;
  HEDDLE_ASSIGN_OR_RETURN(const auto plain, create_engine(options));

  const ModelInfo& model = cached->model_info();
  WorkloadShape shape = command.shape;
  shape.vocab_size = model.vocab_size;
  shape.context_length = model.context_length;
  HEDDLE_ASSIGN_OR_RETURN(const auto workloads, make_workloads(patterns, command.trace, shape));
  for (Engine* engine : {cached.get(), plain.get()}) {  // warm-up: the first steps touch memory
    HEDDLE_RETURN_IF_ERROR(replay(*engine, workloads.front(), command.concurrency).status());
  }

  ordered_json json = {
      {"benchmark", "cache"},
      {"model", options.model_dir.string()},
      {"dtype", model.dtype},
      {"exact", options.exact},
      {"concurrency", command.concurrency},
      {"runs", command.runs},
      {"prefix_tokens", shape.prefix_tokens},
      {"question_tokens", shape.question_tokens},
      {"output_tokens", shape.output_tokens},
      {"groups", shape.groups},
      {"questions", shape.questions},
      {"trace",
       {{"file", std::filesystem::path(command.trace.file).filename().string()},
        {"scale", command.trace.scale},
        {"limit", command.trace.limit}}},
      {"kv_tokens", cached->memory_plan().kv_tokens},
      {"state_slots", cached->memory_plan().state_slots},
      {"machine", {{"cpu", cpu_model()}, {"device", model.device}, {"commit", built_commit()}}},
      {"rows", ordered_json::array()}};
  Table table({"pattern", "requests", "prompt tokens", "shared", "reused", "TTFT p50 ms", "without",
               "p99 ms", "without", "decode tok/s", "without", "same answers"});
  std::string probed;
  for (const Workload& workload : workloads) {
    Side with;
    Side without;
    HEDDLE_RETURN_IF_ERROR(measure(*cached, *plain, workload, command, with, without));
    const size_t equal = count_equal(with, without);
    table.add({workload.name, fmt::format("{}", workload.requests.size()),
               fmt::format("{}", with.prompt_tokens / command.runs),
               fmt::format("{:.1f} %", share_of(with.shared_tokens, with.prompt_tokens) * 100),
               fmt::format("{:.1f} %", share_of(with.reused_tokens, with.prompt_tokens) * 100),
               fmt::format("{:.2f}", percentile(with.first_token_ms, 0.5)),
               fmt::format("{:.2f}", percentile(without.first_token_ms, 0.5)),
               fmt::format("{:.2f}", percentile(with.first_token_ms, 0.99)),
               fmt::format("{:.2f}", percentile(without.first_token_ms, 0.99)),
               fmt::format("{:.0f}", percentile(with.decode_rates, 0.5)),
               fmt::format("{:.0f}", percentile(without.decode_rates, 0.5)),
               fmt::format("{}/{}", equal, with.outputs.size())});
    json["rows"].push_back({{"pattern", workload.name},
                            {"requests", workload.requests.size()},
                            {"prompt_tokens", with.prompt_tokens / command.runs},
                            {"shared_tokens", with.shared_tokens / command.runs},
                            {"matched_tokens", with.matched_tokens / command.runs},
                            {"reused_tokens", with.reused_tokens / command.runs},
                            {"exact_repeats", with.exact_repeats / command.runs},
                            {"lost_tokens",
                             {{"eviction", with.lost.eviction / command.runs},
                              {"missing_state", with.lost.missing_state / command.runs},
                              {"grid", with.lost.grid / command.runs},
                              {"last_token", with.lost.last_token / command.runs}}},
                            {"with_cache", side_json(with)},
                            {"without_cache", side_json(without)},
                            {"equal_answers", equal},
                            {"answers", with.outputs.size()}});
    if (with.probes.empty()) continue;
    json["rows"].back()["probes"] = probes_json(with, without);
    probed += probes_text(with, without);
  }
  return emit(command.output, json,
              fmt::format("{}, {}, {} requests at a time, {} runs; a cache of {} tokens and {} "
                          "states\n\n{}{}",
                          options.model_dir.string(), model.dtype, command.concurrency,
                          command.runs, cached->memory_plan().kv_tokens,
                          cached->memory_plan().state_slots, table.to_string(), probed));
}

std::function<int()> declare_cache(Options& options) {
  auto settings = std::make_shared<CacheCommand>();
  settings->model.log_level = "warning";
  WorkloadShape& shape = settings->shape;
  options.examples(
      "heddle bench cache models/heddle-tiny\n"
      "heddle bench cache MODEL_DIR --patterns shared,unique --groups 8 --questions 16\n"
      "heddle bench cache MODEL_DIR --patterns \"\" --trace conversation_trace.jsonl --scale 0.05\n"
      "\n"
      "Every pattern runs with the cache and without it, in turn. Shared: the part of the prompts\n"
      "that some sequence sent before begins with, the most a cache could reuse. Same answers:\n"
      "token for token; --exact makes them so by construction. Probes are single requests, of\n"
      "which four come at once, so that --concurrency is 4 or more. A trace whose prompts are "
      "longer\n"
      "than the context is scaled: --scale multiplies its lengths and those of its shared blocks,\n"
      "so that the same part of it is shared; what is still too long is cut.");
  declare_engine_options(options, settings->model, ModelArgument::kRequired);
  options.heading("Workload");
  options.value("--patterns", &settings->patterns,
                "Of shared, chats, forks, unique, repeats, probes, separated by commas");
  options.value("--prefix-tokens", &shape.prefix_tokens, ranges::kContext,
                "Of a system prompt; documents have twice, unique prompts half of it");
  options.value("--question-tokens", &shape.question_tokens, ranges::kContext,
                "Tokens that a request adds of its own");
  options.value("--output-tokens", &shape.output_tokens, ranges::kContext, "Of every answer");
  options.value("--groups", &shape.groups, ranges::kBatch, "Different prefixes, chats, documents");
  options.value("--questions", &shape.questions, ranges::kBatch,
                "Requests of each; turns of a chat");
  options.text("--trace", &settings->trace.file, "A Mooncake trace (.jsonl) to replay as well");
  options.value("--scale", &settings->trace.scale, ranges::kShare, "Of the trace's lengths");
  options.value("--limit", &settings->trace.limit, ranges::kCountOrNone,
                "Requests of the trace; 0: all");
  options.needs("--scale", "--trace");
  options.needs("--limit", "--trace");
  for (const char* name :
       {"--prefix-tokens", "--question-tokens", "--output-tokens", "--groups", "--questions"}) {
    options.has_effect_if(
        name, [&patterns = settings->patterns] { return !patterns.empty(); },
        "on a trace; name --patterns");
  }
  options.value("--concurrency", &settings->concurrency, ranges::kBatch, "Requests at a time");
  options.value("--runs", &settings->runs, ranges::kRepeats, "Of every pattern");
  options.heading("Report");
  declare_bench_output(options, settings->output);
  return [settings] {
    const Status status = run_cache(*settings);
    return status.ok() ? 0 : report_failure(status);
  };
}

}  // namespace

const Subcommand kBenchCache = {.name = "cache",
                                .summary = "Measure the savings and the cost of the prefix cache.",
                                .declare = declare_cache};

}  // namespace heddle::tools
