// SPDX-License-Identifier: Apache-2.0
// heddle export-nextn: writes the next-token-prediction layer of a checkpoint as a draft model.
#include "checkpoint/export_nextn.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "tools/cli/output_file.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/terminal.h"

namespace heddle::tools {

namespace {

struct ExportSettings {
  std::string model_dir;
  std::string output_dir;
};

int export_nextn(const ExportSettings& settings) {
  std::atomic<int> stopped_by = 0;
  interrupts().set_handler([&stopped_by](int signal, int count) {
    if (count > 1) std::_Exit(128 + signal);
    stopped_by = signal;
  });
  const auto report = checkpoint::export_nextn(
      settings.model_dir, settings.output_dir,
      [&stopped_by, show = load_progress_bar()](int64_t done_bytes, int64_t total_bytes) {
        show(done_bytes, total_bytes);
        return stopped_by == 0 ? ok_status() : cancelled("stopped");
      });
  interrupts().set_handler(nullptr);
  if (report.status().code() == StatusCode::kCancelled) return 128 + stopped_by;
  if (!report.ok()) return report_failure(report.status());
  fmt::print("{}: {}, {} tensors, {:.2f} MiB\n", settings.output_dir, report->architecture,
             report->num_tensors, mebibytes(report->num_bytes));
  return 0;
}

std::function<int()> declare_export_nextn(Options& options) {
  auto settings = std::make_shared<ExportSettings>();
  options.examples(
      "heddle export-nextn models/heddle-tiny heddle-tiny-nextn\n"
      "heddle export-nextn DeepSeek-V3 DeepSeek-V3-NextN\n"
      "\n"
      "The layer is model.layers.{num_hidden_layers}.* (DeepSeek-V3) or mtp.* (Qwen3-Next).\n"
      "Its tensors are copied as they are, into one file; tokenizer and other small files come\n"
      "along, and config.json describes the draft. The embedding and the output head stay behind:\n"
      "a draft shares its target's.");
  options.model("MODEL_DIR", &settings->model_dir, "Folder of the whole checkpoint");
  options.positional("OUT_DIR", &settings->output_dir, "Folder to make; it must not exist");
  return [settings] { return export_nextn(*settings); };
}

}  // namespace

const Subcommand kExportNextn = {
    "export-nextn", "Take the next-token-prediction layer out of a checkpoint, as a draft model.",
    declare_export_nextn};

}  // namespace heddle::tools
