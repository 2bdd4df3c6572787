// SPDX-License-Identifier: Apache-2.0
// heddle merge: writes a copy of a model with LoRA adapters merged into its weights.
#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/merge_checkpoint.h"
#include "checkpoint/model_folder.h"
#include "models/registry.h"
#include "tools/cli/output_file.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/terminal.h"
#include "tools/cli/value_range.h"

namespace heddle::tools {

namespace {

struct MergeSettings {
  std::string model_dir;
  std::vector<std::string> folders;  // folders of the adapters, then the output folder
  std::vector<std::string> scales;
  std::string dtype = "auto";
  bool json = false;
};

Result<checkpoint::MergeOptions> merge_options(const MergeSettings& settings) {
  if (settings.folders.size() < 2) {
    return invalid_argument(fmt::format(
        "only one folder after the model, {}; name an adapter and then the folder to make",
        settings.folders.front()));
  }
  const size_t num_adapters = settings.folders.size() - 1;
  if (!settings.scales.empty() && settings.scales.size() != num_adapters) {
    return invalid_argument(
        fmt::format("--scale is given {} times for {} adapters; give it once for each, in their "
                    "order, or leave it out",
                    settings.scales.size(), num_adapters));
  }
  checkpoint::MergeOptions options{.base = settings.model_dir, .output = settings.folders.back()};
  for (size_t i = 0; i < num_adapters; ++i) {
    checkpoint::MergeOptions::Adapter adapter{.folder = settings.folders[i]};
    if (!settings.scales.empty()) {
      const Result<double> scale = parse_number<double>(settings.scales[i], ranges::kAny);
      if (!scale.ok()) return scale.status().with_context("--scale");
      adapter.scale = *scale;
    }
    options.adapters.push_back(std::move(adapter));
  }
  if (settings.dtype != "auto") {
    HEDDLE_ASSIGN_OR_RETURN(options.dtype, parse_dtype(settings.dtype));
  }
  return options;
}

Result<checkpoint::MergeReport> run_merge(const checkpoint::MergeOptions& options) {
  HEDDLE_RETURN_IF_ERROR(checkpoint::check_safetensors_folder(options.base, "heddle merge"));
  HEDDLE_ASSIGN_OR_RETURN(const checkpoint::ModelConfig config, models::load_config(options.base));
  return checkpoint::merge_checkpoint(options, models::create_model(config)->weight_specs());
}

int merge(const MergeSettings& settings) {
  Result<checkpoint::MergeOptions> options = merge_options(settings);
  if (!options.ok()) return report_failure(options.status());
  std::atomic<int> stopped_by = 0;
  interrupts().set_handler([&stopped_by](int signal, int count) {
    if (count > 1) std::_Exit(128 + signal);
    stopped_by = signal;
  });
  options->progress = [&stopped_by, show = load_progress_bar()](int64_t done, int64_t total) {
    show(done, total);
    return stopped_by == 0 ? ok_status() : cancelled("stopped");
  };
  const Result<checkpoint::MergeReport> report = run_merge(*options);
  interrupts().set_handler(nullptr);
  if (report.status().code() == StatusCode::kCancelled) return 128 + stopped_by;
  if (!report.ok()) return report_failure(report.status());
  if (settings.json) {
    const nlohmann::ordered_json json = {
        {"output", settings.folders.back()},    {"adapters", settings.folders.size() - 1},
        {"changed", report->num_changed},       {"tensors", report->num_tensors},
        {"output_bytes", report->output_bytes}, {"shards", report->num_shards}};
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{}: {} of {} tensors changed, {:.2f} MiB\n", settings.folders.back(),
               report->num_changed, report->num_tensors, mebibytes(report->output_bytes));
  }
  return 0;
}

std::function<int()> declare_merge(Options& options) {
  auto settings = std::make_shared<MergeSettings>();
  options.examples(
      "heddle merge MODEL_DIR ADAPTER_DIR OUT_DIR\n"
      "heddle merge MODEL_DIR ADAPTER_DIR OUT_DIR --scale 0.5\n"
      "heddle merge MODEL_DIR FIRST_DIR SECOND_DIR OUT_DIR --scale 1 --scale 0.3\n"
      "\n"
      "The output has the model's tensors with s B A of each adapter added to its weights. "
      "OUT_DIR\n"
      "appears when all is done.");
  options.model("MODEL_DIR", &settings->model_dir, "Folder of the adapters' base, unquantised");
  options.positional("FOLDERS", &settings->folders,
                     "Folders of LoRA adapters as PEFT saves them; last, the folder to make");
  options.text("--scale", &settings->scales,
               "Factor on an adapter's own scale; once for each adapter, in their order");
  options.choice("--dtype", &settings->dtype, {"auto", "float32", "bfloat16", "float16"},
                 "Format of the written weights; auto: each as the model has it");
  options.flag("--json", &settings->json, "Print the report as JSON");
  return [settings] { return merge(*settings); };
}

}  // namespace

const Subcommand kMerge = {"merge", "Merge LoRA adapters into a copy of their model.",
                           declare_merge};

}  // namespace heddle::tools
