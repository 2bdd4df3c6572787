// SPDX-License-Identifier: Apache-2.0
// heddle eval: accuracy on question sets, and agreement with recorded outputs.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "evaluation.h"
#include "options_engine.h"
#include "report_failure.h"
#include "subcommand.h"
#include "table.h"

namespace heddle::tools {

namespace {

struct EvalOptions {
  EngineSettings model;
  std::vector<std::string> sets;
  EvaluationOptions evaluation;
  bool json = false;
};

struct SetReport {
  std::string name;
  EvaluationReport report;
};

Result<std::vector<SetReport>> evaluate_sets(EvalOptions& options) {
  if (options.evaluation.parallel < 1 || options.evaluation.max_new_tokens < 1) {
    return invalid_argument(fmt::format("--parallel {} and --max-new-tokens {} must be at least 1",
                                        options.evaluation.parallel,
                                        options.evaluation.max_new_tokens));
  }
  HEDDLE_RETURN_IF_ERROR(apply(options.model));
  HEDDLE_ASSIGN_OR_RETURN(const auto engine, Engine::create(options.model.engine));
  HEDDLE_ASSIGN_OR_RETURN(const auto chat_template,
                          chat::ChatTemplate::load(options.model.engine.model_dir));
  std::vector<SetReport> reports;
  for (const std::string& set : options.sets) {
    HEDDLE_ASSIGN_OR_RETURN(const auto questions, read_questions(set, *engine, chat_template));
    HEDDLE_ASSIGN_OR_RETURN(const auto report, evaluate(*engine, questions, options.evaluation));
    reports.push_back({std::filesystem::path(set).filename().string(), report});
  }
  return reports;
}

nlohmann::ordered_json to_json(const SetReport& set) {
  const EvaluationReport& report = set.report;
  return {{"set", set.name},
          {"total", report.total},
          {"with_answer", report.with_answer},
          {"correct", report.correct},
          {"with_reference", report.with_reference},
          {"equal_to_reference", report.equal_to_reference},
          {"near_ties", report.near_ties},
          {"different", report.different},
          {"failed", report.failed},
          {"output_tokens", report.output_tokens},
          {"seconds", report.seconds}};
}

int eval(EvalOptions& options) {
  const Result<std::vector<SetReport>> reports = evaluate_sets(options);
  if (!reports.ok()) return report_failure(reports.status());
  if (options.json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const SetReport& set : *reports) json.push_back(to_json(set));
    fmt::print("{}\n", (json.size() == 1 ? json[0] : json).dump(2));
    return 0;
  }
  Table table(
      {"set", "correct", "of", "equal to reference", "of", "near ties", "different", "tok/s"});
  for (const auto& [name, report] : *reports) {
    table.add({name, std::to_string(report.correct), std::to_string(report.with_answer),
               std::to_string(report.equal_to_reference), std::to_string(report.with_reference),
               std::to_string(report.near_ties), std::to_string(report.different),
               fmt::format("{:.0f}", static_cast<double>(report.output_tokens) / report.seconds)});
  }
  fmt::print("{}", table.to_string());
  fmt::print(
      "A near tie: the first different token stood where the two best logits were closer than "
      "1e-3.\n");
  return 0;
}

std::function<int()> declare_eval(Options& options) {
  auto settings = std::make_shared<EvalOptions>();
  options.examples(
      "heddle eval models/heddle-tiny tests/golden/heddle_tiny/math.jsonl\n"
      "heddle eval models/heddle-tiny tests/golden/heddle_tiny/*.jsonl --dtype float32\n"
      "\n"
      "A line of a set: {\"messages\": [...], \"answer\": \"6\", \"reference_token_ids\": [...]}.\n"
      "Answers are greedy; right is what follows the last ####, or the whole output.");
  declare_engine_options(options, settings->model, ModelArgument::kRequired);
  options.heading("Evaluation");
  options.positional("SET", &settings->sets, "Question sets (.jsonl)");
  options.value("--parallel", &settings->evaluation.parallel, "Questions in flight");
  options.value("--max-new-tokens", &settings->evaluation.max_new_tokens, "Limit per answer");
  options.flag("--json", &settings->json, "Print the report as JSON");
  return [settings] { return eval(*settings); };
}

}  // namespace

const Subcommand kEval = {"eval", "Ask a model the questions of a set and count right answers.",
                          declare_eval};

}  // namespace heddle::tools
