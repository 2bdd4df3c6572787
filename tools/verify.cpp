// SPDX-License-Identifier: Apache-2.0
// heddle verify: compares a model with golden logits, hidden states and greedy tokens.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/adapter_files.h"
#include "models/registry.h"
#include "runner/load/cache_plan.h"
#include "runner/load/choose_device.h"
#include "runner/load/number_formats.h"
#include "tools/cli/adapter_option.h"
#include "tools/cli/machine.h"
#include "tools/cli/options_engine.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/table.h"
#include "tools/cli/terminal.h"
#include "verify/cached_feeding.h"
#include "verify/golden_pictures.h"
#include "verify/plain_feeding.h"

namespace heddle::tools {

namespace {

struct VerifyOptions {
  std::string model_dir;
  std::string cases;
  std::filesystem::path adapter;  // folder; empty: none
  RunDtype dtype = RunDtype::kAuto;
  KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto;
  std::string device = "cpu";
  Quantization quantization = Quantization::kNone;
  bool exact = false;
  int32_t threads = 0;
  int32_t num_ranks = 1;
  double collective_timeout_seconds = EngineOptions().collective_timeout_seconds;
  double tolerance = 2e-4;
  bool json = false;
};

struct Row {
  std::string name;
  int64_t tokens = 0;
  std::string feeding;
  verify::CaseResult result;
  int64_t cached_tokens = 0;
  int64_t reusable_tokens = 0;  // the row fails if the cache provided fewer tokens
  bool passed = false;
};

// Adds the verdict to a row that is complete otherwise.
Row judged(Row row, const VerifyOptions& options) {
  const verify::CaseResult& result = row.result;
  row.passed = result.logits_error < options.tolerance && result.hidden_error < options.tolerance &&
               result.plain_error < options.tolerance && result.greedy_wrong == 0 &&
               result.num_rows > 0 && row.cached_tokens >= row.reusable_tokens &&
               (!options.exact || result.same_bits);
  return row;
}

struct Report {
  std::vector<Row> rows;
  DType dtype = DType::kF32;  // dtype of the weights in the run

  [[nodiscard]] int64_t num_failed() const {
    return std::ranges::count_if(rows, [](const Row& row) { return !row.passed; });
  }
};

// A hint that 16-bit weights alone may explain a failed row, because goldens are computed in
// float32; empty if this does not apply.
std::string hint_of(const Report& report) {
  if (report.num_failed() == 0 || report.dtype == DType::kF32) return {};
  return fmt::format(
      "The weights ran as {}, whose rounding alone may exceed the limit of goldens made in "
      "float32: "
      "add --dtype float32.",
      to_string(report.dtype));
}

// Encodes the pictures of the cases. Returns the width of their features, 0 if there are none.
Result<int64_t> encode_pictures(const VerifyOptions& options,
                                std::vector<verify::GoldenCase>& goldens,
                                const std::shared_ptr<runner::ComputeDevice>& compute) {
  const bool has_pictures = std::ranges::any_of(
      goldens, [](const auto& golden) { return golden.recorded_pictures.has_value(); });
  if (!has_pictures) return 0;
  HEDDLE_ASSIGN_OR_RETURN(const auto encoder, runner::VisionEncoder::create(
                                                  {.model_dir = options.model_dir,
                                                   .dtype = runner::dtype_of(options.dtype),
                                                   .num_threads = usable_threads(options.threads)},
                                                  compute));
  for (verify::GoldenCase& golden : goldens) {
    HEDDLE_RETURN_IF_ERROR(verify::encode_pictures(*encoder, golden));
  }
  return encoder->config().feature_width();
}

Result<Report> check_all(const VerifyOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const auto config, models::load_config(options.model_dir));
  HEDDLE_ASSIGN_OR_RETURN(const auto file, checkpoint::SafetensorsFile::open(options.cases));
  HEDDLE_ASSIGN_OR_RETURN(std::vector<verify::GoldenCase> goldens, verify::read_golden_cases(file));
  int64_t adapter_rank = 0;
  if (!options.adapter.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(const auto adapter, checkpoint::AdapterFiles::open(options.adapter));
    adapter_rank = std::max<int64_t>(adapter.highest_rank(), 1);
  }
  size_t longest = 0;
  for (const auto& golden : goldens) longest = std::max(longest, golden.ids.size());
  const auto step_tokens = static_cast<int64_t>(longest) + 64;
  HEDDLE_ASSIGN_OR_RETURN(const runner::DeviceRequest request,
                          runner::parse_device(options.device));
  HEDDLE_ASSIGN_OR_RETURN(
      runner::ChosenDevice chosen,
      runner::choose_device(
          request, runner::threads_of_rank(usable_threads(options.threads), options.num_ranks),
          options.exact));
  HEDDLE_ASSIGN_OR_RETURN(const auto rounding, runner::rounding_of(options.quantization, config,
                                                                   /*dummy_weights=*/false));
  const std::shared_ptr<runner::ComputeDevice> compute = std::move(chosen.compute);
  HEDDLE_ASSIGN_OR_RETURN(const int64_t feature_width, encode_pictures(options, goldens, compute));
  HEDDLE_ASSIGN_OR_RETURN(
      const auto pass,
      runner::ForwardPass::create(
          {.model_dir = options.model_dir,
           .dtype = runner::dtype_of(options.dtype),
           .kv_dtype = runner::dtype_of(options.kv_cache_dtype),
           .exact = options.exact,
           .rounding = rounding,
           .num_threads = usable_threads(options.threads),
           .max_step_tokens = step_tokens,
           .max_logit_rows = step_tokens,
           .collect_hidden_states = true,
           .head_alone = true,
           .num_adapter_slots = options.adapter.empty() ? 0 : 1,
           .max_adapter_rank = adapter_rank,
           .feature_width = feature_width,
           .on_load_progress = load_progress_bar(),
           .num_ranks = options.num_ranks,
           .collective_timeout = runner::collective_timeout_of(options.collective_timeout_seconds)},
          compute));
  if (!options.adapter.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(Adapter loaded, pass->load_adapter(0, options.adapter));
    const auto adapter = std::make_shared<const Adapter>(std::move(loaded));
    for (verify::GoldenCase& golden : goldens) golden.adapter = adapter;
  }
  Report report{.rows = {}, .dtype = pass->dtype()};
  std::vector<Row>& rows = report.rows;
  for (const auto& golden : goldens) {
    std::vector<float> first_logits;
    for (const auto& feeding : verify::all_feedings()) {
      HEDDLE_ASSIGN_OR_RETURN(const auto result,
                              verify::check_case(*pass, golden, feeding, first_logits));
      rows.push_back(judged({.name = golden.name,
                             .tokens = golden.num_tokens(),
                             .feeding = feeding.name,
                             .result = result},
                            options));
    }
    if (feature_width > 0) continue;  // cached_feedings() are of text only
    for (const auto& feeding : verify::cached_feedings(*pass, golden)) {
      HEDDLE_ASSIGN_OR_RETURN(const auto result,
                              verify::check_cached_case(*pass, golden, feeding, first_logits));
      rows.push_back(judged({.name = golden.name,
                             .tokens = golden.num_tokens(),
                             .feeding = feeding.name,
                             .result = result.rows,
                             .cached_tokens = result.cached_tokens,
                             .reusable_tokens = feeding.reusable_tokens},
                            options));
    }
  }
  return report;
}

void print_json(const VerifyOptions& options, const Report& result) {
  const std::vector<Row>& rows = result.rows;
  nlohmann::ordered_json report = {{"model", options.model_dir},
                                   {"lora", options.adapter.string()},
                                   {"cases", options.cases},
                                   {"exact", options.exact},
                                   {"ranks", options.num_ranks},
                                   {"tolerance", options.tolerance},
                                   {"passed", result.num_failed() == 0},
                                   {"rows", nlohmann::ordered_json::array()}};
  if (const std::string hint = hint_of(result); !hint.empty()) report["hint"] = hint;
  for (const Row& row : rows) {
    report["rows"].push_back({{"case", row.name},
                              {"tokens", row.tokens},
                              {"fed", row.feeding},
                              {"cached_tokens", row.cached_tokens},
                              {"reusable_tokens", row.reusable_tokens},
                              {"compared_rows", row.result.num_rows},
                              {"recorded_rows", row.result.num_recorded},
                              {"logits_error", row.result.logits_error},
                              {"mean_logits_error", row.result.mean_error},
                              {"hidden_error", row.result.hidden_error},
                              {"plain_error", row.result.plain_error},
                              {"greedy_wrong", row.result.greedy_wrong},
                              {"near_ties", row.result.near_ties},
                              {"same_bits", row.result.same_bits},
                              {"passed", row.passed}});
  }
  fmt::print("{}\n", report.dump(2));
}

void print_table(const VerifyOptions& options, const std::vector<Row>& rows) {
  Table table({"case", "tokens", "fed", "cached", "logits", "hidden", "to whole", "greedy wrong",
               "near ties", "same bits", ""});
  for (const Row& row : rows) {
    table.add({row.name, std::to_string(row.tokens), row.feeding, std::to_string(row.cached_tokens),
               fmt::format("{:.1e}", row.result.logits_error),
               fmt::format("{:.1e}", row.result.hidden_error),
               fmt::format("{:.1e}", row.result.plain_error),
               std::to_string(row.result.greedy_wrong), std::to_string(row.result.near_ties),
               row.result.same_bits ? "yes" : "no", row.passed ? "ok" : "FAILED"});
  }
  fmt::print(
      "{}\nErrors are the largest ||delta|| / ||reference|| of a row, of the golden and of the "
      "case "
      "fed whole; the limit is {:g}. Of cached "
      "cases the rows computed behind the hit are compared, and the hit must be as long as it can "
      "be.{}\n",
      table.to_string(), options.tolerance,
      options.exact ? " Exact mode: all ways of feeding must give the same bits." : "");
}

int verify(const VerifyOptions& options) {
  const Result<Report> report = check_all(options);
  if (!report.ok()) return report_failure(report.status());
  const int64_t failed = report->num_failed();
  if (options.json) {
    print_json(options, *report);
  } else {
    const auto num_rows = static_cast<int64_t>(report->rows.size());
    print_table(options, report->rows);
    fmt::print("{} of {} checks passed.\n", num_rows - failed, num_rows);
    if (const std::string hint = hint_of(*report); !hint.empty()) fmt::print("{}\n", hint);
  }
  return failed == 0 ? 0 : 1;
}

std::function<int()> declare_verify(Options& options) {
  auto settings = std::make_shared<VerifyOptions>();
  options.examples(
      "heddle verify models/heddle-tiny tests/golden/heddle_tiny/logits.safetensors --dtype "
      "float32\n"
      "heddle verify MODEL_DIR CASES.safetensors --exact\n"
      "\n"
      "Every case is fed whole, in chunks of 1, 17, 64 and 65 tokens, together with others, "
      "and\n"
      "served from the prefix cache behind a request that begins alike: up to within a page, to "
      "its\n"
      "end, to a fork, to the end of the case. A hit that should be there and is not fails, too.\n"
      "Pictures are encoded from their recorded patches; cases with pictures are not tested with "
      "the cache.\n"
      "Exit code 0 if everything passed, 1 if not.");
  options.model("MODEL_DIR", &settings->model_dir,
                "Folder with config.json and weights, or a GGUF file");
  options.positional("CASES", &settings->cases,
                     "Golden file; without it: cases.safetensors in the adapter's folder, or in "
                     "that of the model",
                     /*required=*/false);
  declare_dtypes(options, settings->dtype, settings->kv_cache_dtype);
  declare_quantization(options, settings->quantization);
  options.flag("--exact", &settings->exact,
               "Exact mode: all ways of feeding must give the same bits");
  options.value("--device", &settings->device, kDeviceHelp);
  options.value("--threads", &settings->threads, ranges::kThreads,
                "Compute threads; 0: physical cores");
  declare_ranks(options, settings->num_ranks);
  declare_collective_timeout(options, settings->collective_timeout_seconds, settings->num_ranks);
  options.value("--tolerance", &settings->tolerance, ranges::kPositive,
                "Largest relative error of a row");
  options.parsed(
      "--lora", "",
      [settings](std::string_view text) -> Status {
        HEDDLE_ASSIGN_OR_RETURN(const AdapterArgument adapter, parse_adapter(text));
        settings->adapter = adapter.folder;
        return {};
      },
      "Folder of a LoRA adapter to add, or NAME=FOLDER; on the CPU");
  options.flag("--json", &settings->json, "Print the report as JSON");
  return [settings] {
    if (settings->cases.empty()) {
      const std::filesystem::path model = settings->model_dir;
      const bool is_file = model.extension() == ".gguf";
      const std::filesystem::path folder = is_file ? model.parent_path() : model;
      settings->cases =
          (settings->adapter.empty() ? folder : settings->adapter) / "cases.safetensors";
    }
    return verify(*settings);
  };
}

}  // namespace

const Subcommand kVerify = {"verify", "Compare a model with golden logits and tokens.",
                            declare_verify};

}  // namespace heddle::tools
