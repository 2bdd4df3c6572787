// SPDX-License-Identifier: Apache-2.0
// heddle bench: speed of the whole model (offline) and of single ops, compared with what the
// machine allows. bench_cache.cpp measures the savings of the prefix cache, bench_serve.cpp
// servers.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/registry.h"
#include "ops/benchmark/op_benchmark.h"
#include "ops/benchmark/roofline.h"
#include "ops/simd/this_cpu.h"
#include "runner/load/cache_plan.h"
#include "runner/load/choose_device.h"
#include "runner/load/number_formats.h"
#include "tools/bench/bench_offline.h"
#include "tools/bench/bench_ops_cuda.h"
#include "tools/cli/machine.h"
#include "tools/cli/options_engine.h"
#include "tools/cli/output_file.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/table.h"
#include "tools/cli/terminal.h"

namespace heddle::tools {

namespace {

using nlohmann::ordered_json;

ordered_json machine_json(const ops::Roofline& roofline) {
  return {{"cpu", cpu_model()},
          {"threads", roofline.num_threads},
          {"simd", ops::simd_target_name()},
          {"read_gb_per_s", roofline.read_gb_per_s},
          {"float_gflops", roofline.float_gflops},
          {"bf16_gflops", roofline.bf16_gflops},
          {"commit", built_commit()}};
}

ordered_json machine_json(const runner::ForwardPass& pass,
                          const std::optional<ops::Roofline>& roofline) {
  if (roofline) return machine_json(*roofline);
  return {{"device", pass.compute().device().name()}, {"commit", built_commit()}};
}

std::string roofline_line(const ops::Roofline& roofline) {
  return fmt::format(
      "{} threads: reads {:.1f} GB/s, {:.0f} GFLOP/s in float32, {:.0f} in bfloat16\n",
      roofline.num_threads, roofline.read_gb_per_s, roofline.float_gflops, roofline.bf16_gflops);
}

struct OfflineCommand {
  std::string model_dir;
  LoadFormat load_format = LoadFormat::kAuto;
  Quantization quantization = Quantization::kNone;
  bool quantize_lm_head = false;
  RunDtype dtype = RunDtype::kAuto;
  KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto;
  std::string device = "cpu";
  bool exact = false;
  bool disable_cuda_graph = false;
  int64_t piecewise_max_tokens = EngineOptions().piecewise_cuda_graph_max_tokens;
  bool cuda_graph_debug = false;
  int32_t threads = 0;
  int32_t num_ranks = 1;
  double collective_timeout_seconds = EngineOptions().collective_timeout_seconds;
  std::string prefill = "512,4096";
  std::string decode_batch = "1,4,16";
  std::string verify_rows;
  OfflineOptions options;
  BenchOutput output;
};

Status run_offline(OfflineCommand& command) {
  HEDDLE_RETURN_IF_ERROR(check_bench_output(command.output));
  command.options.prefill_tokens.clear();
  command.options.decode_batches.clear();
  if (!command.prefill.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(command.options.prefill_tokens,
                            parse_counts("--prefill", command.prefill, ranges::kContext));
  }
  if (!command.decode_batch.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(command.options.decode_batches,
                            parse_counts("--decode-batch", command.decode_batch, ranges::kBatch));
  }
  if (!command.verify_rows.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(
        command.options.verify_rows,
        parse_counts("--verify-rows", command.verify_rows, ranges::kVerifyRows));
  }
  int64_t rows = 1;
  for (const int64_t batch : command.options.decode_batches) rows = std::max(rows, batch);
  int64_t rows_each = 1;
  for (const int64_t count : command.options.verify_rows) rows_each = std::max(rows_each, count);
  rows *= rows_each;
  HEDDLE_ASSIGN_OR_RETURN(const auto config, models::load_config(command.model_dir));
  const bool dummy_weights = command.load_format == LoadFormat::kDummy;
  HEDDLE_ASSIGN_OR_RETURN(std::optional<checkpoint::Rounding> rounding,
                          runner::rounding_of(command.quantization, config, dummy_weights));
  if (rounding) {
    rounding->include_lm_head = command.quantize_lm_head;
  } else if (command.quantize_lm_head) {
    return invalid_argument("--quantize-lm-head needs --quantization; name one or leave it out");
  }
  HEDDLE_ASSIGN_OR_RETURN(const runner::DeviceRequest request,
                          runner::parse_device(command.device));
  HEDDLE_RETURN_IF_ERROR(check_offline(command.options, config.max_position_embeddings));
  HEDDLE_ASSIGN_OR_RETURN(
      runner::ChosenDevice chosen,
      runner::choose_device(
          request, runner::threads_of_rank(usable_threads(command.threads), command.num_ranks),
          command.exact));
  HEDDLE_ASSIGN_OR_RETURN(
      const auto pass,
      runner::ForwardPass::create(
          {.model_dir = command.model_dir,
           .dummy_weights = dummy_weights,
           .dtype = runner::dtype_of(command.dtype),
           .kv_dtype = runner::dtype_of(command.kv_cache_dtype),
           .exact = command.exact,
           .rounding = rounding,
           .num_threads = usable_threads(command.threads),
           .captures = runner::captures_of(command.disable_cuda_graph, command.piecewise_max_tokens,
                                           command.cuda_graph_debug),
           .max_step_tokens = std::max(command.options.chunk_tokens, rows),
           .max_logit_rows = rows,
           .on_load_progress = load_progress_bar(),
           .num_ranks = command.num_ranks,
           .collective_timeout = runner::collective_timeout_of(command.collective_timeout_seconds)},
          std::move(chosen.compute)));
  HEDDLE_ASSIGN_OR_RETURN(const OfflineReport report, bench_offline(*pass, command.options));

  const std::string dtype_name(to_string(pass->dtype()));
  ordered_json json = {{"benchmark", "offline"},
                       {"model", command.model_dir},
                       {"dtype", dtype_name},
                       {"kv_cache_dtype", to_string(pass->kv_dtype())},
                       {"exact", command.exact},
                       {"disable_cuda_graph", command.disable_cuda_graph},
                       {"piecewise_cuda_graph_max_tokens", command.piecewise_max_tokens},
                       {"cuda_graph_debug", command.cuda_graph_debug},
                       {"load_format", to_string(command.load_format)},
                       {"quantization", to_string(command.quantization)},
                       {"quantize_lm_head", command.quantize_lm_head},
                       {"parameters", pass->num_parameters()},
                       {"ranks", command.num_ranks},
                       {"chunk_tokens", command.options.chunk_tokens},
                       {"decode_context", command.options.decode_context},
                       {"machine", machine_json(*pass, report.roofline)},
                       {"rows", ordered_json::array()}};
  Table table({"what", "ms", "tok/s", "GB/s", "memory", "of memory"});
  for (const OfflineRow& row : report.rows) {
    const auto& traffic = row.traffic;
    const bool has_share = traffic && traffic->read_gb_per_s > 0;
    table.add({row.what, fmt::format("{:.2f}", row.seconds * 1e3),
               fmt::format("{:.1f}", row.tokens_per_second),
               traffic ? fmt::format("{:.1f}", traffic->gigabytes_per_second) : "",
               has_share ? fmt::format("{:.1f}", traffic->read_gb_per_s) : "",
               has_share ? fmt::format("{:.0f} %", traffic->bandwidth_share * 100) : ""});
    ordered_json item = {
        {"what", row.what}, {"seconds", row.seconds}, {"tokens_per_second", row.tokens_per_second}};
    if (traffic) item["gigabytes_per_second"] = traffic->gigabytes_per_second;
    if (has_share) {
      item["read_gb_per_s"] = traffic->read_gb_per_s;
      item["bandwidth_share"] = traffic->bandwidth_share;
    }
    json["rows"].push_back(item);
  }
  return emit(command.output, json,
              fmt::format("{}, {}, KV {}, {} parameters\n{}\n{}", command.model_dir, dtype_name,
                          to_string(pass->kv_dtype()), pass->weights().num_parameters(),
                          report.roofline ? roofline_line(*report.roofline)
                                          : pass->compute().device().name() + "\n",
                          table.to_string()));
}

struct OpsCommand {
  std::string filter;
  std::string device = "cpu";
  bool exact = false;
  int32_t threads = 0;
  double seconds = 0.2;
  BenchOutput output;
};

Status run_ops(const OpsCommand& command) {
  if (command.device != "cpu") {
    return run_ops_on_cuda(command.device, command.filter, command.exact, command.output);
  }
  HEDDLE_RETURN_IF_ERROR(check_bench_output(command.output));
  device::ThreadPool pool(usable_threads(command.threads));
  ops::CpuContext context(pool, command.exact);
  std::vector<ops::OpBenchmark> benchmarks = ops::benchmarks_matching(context, command.filter);
  if (benchmarks.empty()) {
    std::string names;
    for (const ops::BenchmarkFamily& family : ops::all_benchmarks()) {
      names += names.empty() ? "" : ", ";
      names += family.name;
    }
    return not_found(
        fmt::format("no op and no family of ops has \"{}\" in its name; families are {}",
                    command.filter, names));
  }
  const ops::Roofline roofline = ops::measure_roofline(context);
  ordered_json json = {{"benchmark", "ops"},
                       {"exact", command.exact},
                       {"machine", machine_json(roofline)},
                       {"rows", ordered_json::array()}};
  Table table({"op", "shape", "us", "GB/s", "GFLOP/s", "of roofline"});
  for (ops::OpBenchmark& next : benchmarks) {
    // Moved into this variable, so that its memory is freed after this iteration.
    const ops::OpBenchmark benchmark = std::exchange(next, {});
    const ops::Measurement measured = ops::measure(benchmark, command.seconds);
    const double share = roofline.floor_seconds(benchmark) / measured.median_seconds;
    table.add({benchmark.name, benchmark.shape,
               fmt::format("{:.1f}", measured.median_seconds * 1e6),
               fmt::format("{:.1f}", measured.gb_per_s), fmt::format("{:.0f}", measured.gflops),
               fmt::format("{:.0f} %", share * 100)});
    json["rows"].push_back({{"op", benchmark.name},
                            {"shape", benchmark.shape},
                            {"median_seconds", measured.median_seconds},
                            {"best_seconds", measured.best_seconds},
                            {"gb_per_s", measured.gb_per_s},
                            {"gflops", measured.gflops},
                            {"roofline_share", share}});
  }
  return emit(command.output, json, roofline_line(roofline) + "\n" + table.to_string());
}

int exit_code(const Status& status) { return status.ok() ? 0 : report_failure(status); }

std::function<int()> declare_offline(Options& options) {
  auto settings = std::make_shared<OfflineCommand>();
  options.examples(
      "heddle bench offline models/heddle-tiny\n"
      "heddle bench offline FOLDER_WITH_ONLY_A_CONFIG --load-format dummy --dtype float16\n"
      "heddle bench offline MODEL_DIR --prefill 512 --decode-batch 1 --output report.json\n"
      "\n"
      "A decode row's GB/s are the bytes a step must move at least (every weight once, the chosen\n"
      "experts, KV and states) over its median time; \"memory\" is what reading memory reached, at "
      "the\n"
      "median of reads between the steps.");
  options.model("MODEL_DIR", &settings->model_dir, "Folder with config.json");
  declare_quantization(options, settings->quantization);
  options.flag("--quantize-lm-head", &settings->quantize_lm_head,
               "With --quantization: the output head, too");
  declare_load_format(options, settings->load_format, kDummyWeightsHelp);
  declare_dtypes(options, settings->dtype, settings->kv_cache_dtype);
  options.flag("--exact", &settings->exact, "Measure exact mode");
  options.value("--device", &settings->device, kDeviceHelp);
  declare_captures(options, settings->disable_cuda_graph, settings->piecewise_max_tokens,
                   settings->cuda_graph_debug);
  options.value("--threads", &settings->threads, ranges::kThreads,
                "Compute threads; 0: physical cores");
  declare_ranks(options, settings->num_ranks);
  declare_collective_timeout(options, settings->collective_timeout_seconds, settings->num_ranks);
  options.value("--prefill", &settings->prefill,
                "Prompt lengths, separated by commas; empty: none");
  options.value("--decode-batch", &settings->decode_batch,
                "Numbers of sequences that decode together, separated by commas; empty: none");
  options.value(
      "--verify-rows", &settings->verify_rows,
      "Rows of each of these sequences in a step that verifies drafts, from 2 on, separated by "
      "commas; empty: none");
  options.value("--chunk", &settings->options.chunk_tokens, ranges::kStepTokens,
                "Tokens of one prefill step");
  options.value("--context", &settings->options.decode_context, ranges::kContext,
                "Tokens before the first decode step");
  options.value("--steps", &settings->options.decode_steps, ranges::kContext,
                "Decode steps of one repeat");
  options.value("--repeats", &settings->options.repeats, ranges::kRepeats,
                "Repeats; medians count");
  for (const char* name : {"--context", "--steps", "--verify-rows"}) {
    options.has_effect_if(
        name, [settings = settings.get()] { return !settings->decode_batch.empty(); },
        "where nothing decodes; name a --decode-batch");
  }
  declare_bench_output(options, settings->output);
  return [settings] { return exit_code(run_offline(*settings)); };
}

std::function<int()> declare_ops(Options& options) {
  auto settings = std::make_shared<OpsCommand>();
  options.examples(
      "heddle bench ops\n"
      "heddle bench ops linear --threads 1\n"
      "heddle bench ops rms_norm\n"
      "heddle bench ops --device cuda gated_delta_rule\n"
      "\n"
      "The roofline is the larger of bytes over read bandwidth and operations over peak "
      "arithmetic,\n"
      "both measured first with the same threads.");
  options.positional("FILTER", &settings->filter,
                     "Only ops that have this in their name or in their family's", false);
  options.flag("--exact", &settings->exact, "Measure the kernels of exact mode");
  options.value("--device", &settings->device,
                "cpu, or cuda or cuda:N: some ops in bfloat16 on a GPU");
  options.value("--threads", &settings->threads, ranges::kThreads,
                "Compute threads; 0: physical cores");
  options.value("--seconds", &settings->seconds, ranges::kMeasureSeconds, "Least time per shape");
  for (const char* name : {"--threads", "--seconds"}) {
    options.has_effect_if(
        name, [settings = settings.get()] { return settings->device == "cpu"; },
        "with --device cuda, where a captured graph is measured");
  }
  declare_bench_output(options, settings->output);
  return [settings] { return exit_code(run_ops(*settings)); };
}

constexpr Subcommand kOffline = {"offline", "Prefill and decode speed of a model.",
                                 declare_offline};
constexpr Subcommand kOps = {"ops", "Speed of single ops as a share of the roofline.", declare_ops};
constexpr const Subcommand* kKinds[] = {&kOffline, &kOps, &kBenchCache, &kBenchSpeculative,
                                        &kBenchServe};

}  // namespace

const Subcommand kBench = {.name = "bench",
                           .summary =
                               "Measure whole models (offline), single ops (ops), what the prefix "
                               "cache saves (cache), what drafts gain (speculative), or a "
                               "server under load (serve).",
                           .children = kKinds};

}  // namespace heddle::tools
