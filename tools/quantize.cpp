// SPDX-License-Identifier: Apache-2.0
// heddle quantize: writes a smaller copy of a checkpoint, with weights rounded to nearest.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/gguf_model.h"
#include "checkpoint/gguf_sampling.h"
#include "checkpoint/quantise_checkpoint.h"
#include "models/gguf_registry.h"
#include "tokenizer/gguf_tokenizer_files.h"
#include "tools/cli/output_file.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/terminal.h"

namespace heddle::tools {

namespace {

using checkpoint::QuantisedFormat;

constexpr int32_t kDefaultGroupSize = 128;

struct QuantizeSettings {
  std::string model_dir;
  std::string output;
  std::string format = "fp8-block";
  std::optional<int32_t> group_size;
  bool include_lm_head = false;
  bool json = false;
};

QuantisedFormat parse_format(const std::string& name) {
  if (name == "awq") return QuantisedFormat::kAwq;
  return name == "int8" ? QuantisedFormat::kInt8 : QuantisedFormat::kFp8Block;
}

void print_json(const QuantizeSettings& settings, const checkpoint::QuantiseReport& report) {
  const nlohmann::ordered_json json = {
      {"output", settings.output},           {"format", settings.format},
      {"quantised", report.num_quantised},   {"unfit", report.unfit},
      {"source_bytes", report.source_bytes}, {"output_bytes", report.output_bytes},
      {"shards", report.num_shards},         {"shards_resumed", report.num_shards_resumed}};
  fmt::print("{}\n", json.dump(2));
}

void print_text(const QuantizeSettings& settings, const checkpoint::QuantiseReport& report) {
  fmt::print(
      "{}: {} matrices as {}, rounded to nearest without calibration; {:.1f} MiB of {:.1f}\n",
      settings.output, report.num_quantised, settings.format, mebibytes(report.output_bytes),
      mebibytes(report.source_bytes));
  if (report.num_shards_resumed > 0) {
    fmt::print("{} of {} shards were there from an earlier run\n", report.num_shards_resumed,
               report.num_shards);
  }
  if (report.unfit.empty()) return;
  fmt::print("{} matrices stay as they are, because {} does not divide their width:\n",
             report.unfit.size(), settings.group_size.value_or(kDefaultGroupSize));
  for (const std::string& name : report.unfit) fmt::print("  {}\n", name);
}

// Opens a GGUF file as the folder that the same model has on the hub.
Result<checkpoint::QuantiseSource> gguf_source(const std::filesystem::path& path) {
  checkpoint::QuantiseSource source;
  HEDDLE_ASSIGN_OR_RETURN(source.config, models::gguf_config_text(path));
  HEDDLE_ASSIGN_OR_RETURN(source.weights, models::open_gguf_weights(path));
  HEDDLE_ASSIGN_OR_RETURN(const auto file, checkpoint::GgufModel::open(path));
  auto files = tokenizer::gguf_tokenizer_files(file.metadata());
  if (!files.ok()) return files.status().with_context(path.string());
  for (tokenizer::TokenizerFile& tokenizer_file : *files) {
    source.files.emplace_back(std::move(tokenizer_file.name), std::move(tokenizer_file.bytes));
  }
  auto generation = checkpoint::gguf_generation_config(file.metadata());
  if (!generation.ok()) return generation.status().with_context(path.string());
  if (*generation) source.files.emplace_back("generation_config.json", **std::move(generation));
  return source;
}

Result<checkpoint::QuantiseReport> quantise(checkpoint::QuantiseOptions options) {
  HEDDLE_ASSIGN_OR_RETURN(const auto gguf, checkpoint::find_gguf(options.source));
  if (!gguf) return checkpoint::quantise_checkpoint(options);
  options.source = *gguf;
  HEDDLE_ASSIGN_OR_RETURN(checkpoint::QuantiseSource source, gguf_source(*gguf));
  return checkpoint::quantise_checkpoint(options, std::move(source));
}

int quantize(const QuantizeSettings& settings) {
  const int32_t group_size = settings.group_size.value_or(kDefaultGroupSize);
  if (settings.group_size && settings.format != "awq") {
    return report_failure(invalid_argument(
        fmt::format("--group-size {} is of --format awq; {} has no groups to choose, leave it out",
                    *settings.group_size, settings.format)));
  }
  if (group_size != 32 && group_size != 64 && group_size != 128) {
    return report_failure(invalid_argument(
        fmt::format("--group-size {} is not served; use 32, 64 or 128", group_size)));
  }
  std::atomic<int> stopped_by = 0;
  interrupts().set_handler([&stopped_by](int signal, int count) {
    if (count > 1) std::_Exit(128 + signal);
    fmt::print(stderr, "\nStopping after this matrix; once more to stop at once\n");
    stopped_by = signal;
  });
  ProgressBar bar(100);
  const Result<checkpoint::QuantiseReport> report =
      quantise({.source = settings.model_dir,
                .output = settings.output,
                .format = parse_format(settings.format),
                .group_size = group_size,
                .include_lm_head = settings.include_lm_head,
                .progress = [&](int64_t done, int64_t total) {
                  bar.show(done * 100 / std::max<int64_t>(total, 1), "% of the weights");
                  return stopped_by == 0 ? ok_status() : cancelled("stopped");
                }});
  bar.clear();
  interrupts().set_handler(nullptr);
  if (report.status().code() == StatusCode::kCancelled) {
    fmt::print(stderr, "Stopped; the same command goes on where this one was\n");
    return 128 + stopped_by;
  }
  if (!report.ok()) return report_failure(report.status());
  if (settings.json) {
    print_json(settings, *report);
  } else {
    print_text(settings, *report);
  }
  return 0;
}

std::function<int()> declare_quantize(Options& options) {
  auto settings = std::make_shared<QuantizeSettings>();
  options.examples(
      "heddle quantize MODEL_DIR OUT_DIR --format fp8-block\n"
      "heddle quantize MODEL_DIR OUT_DIR --format awq --group-size 64\n"
      "heddle quantize MODEL_DIR OUT_DIR --format int8 --include-lm-head\n"
      "heddle quantize FILE.gguf OUT_DIR --format int8\n"
      "\n"
      "Every weight is rounded to the nearest code of its group, without looking at activations.\n"
      "An interrupted run continues where it stopped; OUT_DIR appears when all is done.");
  options.model("MODEL_DIR", &settings->model_dir,
                "Folder of an unquantised model, or a GGUF file");
  options.positional("OUT_DIR", &settings->output, "Folder to make");
  options.choice("--format", &settings->format, {"awq", "fp8-block", "int8"},
                 "awq: 4 bits; fp8-block: scales for blocks of 128 x 128; int8: scales for rows");
  options.value("--group-size", &settings->group_size,
                "Of awq: columns that share a scale, 32, 64 or 128 (default 128)");
  options.flag("--include-lm-head", &settings->include_lm_head, "Quantise the output head, too");
  options.flag("--json", &settings->json, "Print the report as JSON");
  return [settings] { return quantize(*settings); };
}

}  // namespace

const Subcommand kQuantize = {"quantize", "Write a smaller copy of a checkpoint.",
                              declare_quantize};

}  // namespace heddle::tools
