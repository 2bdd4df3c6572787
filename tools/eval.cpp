// SPDX-License-Identifier: Apache-2.0
// heddle eval: accuracy on question sets, and agreement with recorded outputs.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/call/text_codec.h"
#include "tools/cli/adapter_option.h"
#include "tools/cli/option_names.h"
#include "tools/cli/options_engine.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/table.h"
#include "tools/cli/terminal.h"
#include "tools/evaluation.h"
#include "tools/gsm8k.h"
#include "tools/load/options_served.h"
#include "tools/served_evaluation.h"

namespace heddle::tools {

namespace {

using Json = nlohmann::ordered_json;

struct EvalOptions {
  EngineSettings model;
  ServedSettings served;
  std::vector<std::string> adapters;  // at most one
  std::vector<std::string> sets;
  EvaluationOptions evaluation;
  Gsm8kOptions gsm8k;
  std::optional<int64_t> shots;
  std::optional<int64_t> num_questions;
  std::optional<int64_t> min_correct;
  std::optional<double> min_accuracy;
  bool expect_reference = false;
  bool json = false;
};

struct SetReport {
  std::string name;
  std::variant<EvaluationReport, Gsm8kReport> report;
};

// The function that asks the questions, whether its answers have tokens, and the tokens that end an
// answer.
struct Asked {
  AskQuestions ask;
  bool shows_tokens = false;
  std::vector<TokenId> end_tokens;
};

Result<SetReport> evaluate_set(const std::string& set, const Asked& asked, EvalOptions& options) {
  std::optional<ProgressBar> bar;
  options.evaluation.ask.progress = [&bar](int64_t done, int64_t total) {
    if (!bar) bar.emplace(total);
    bar->show(done, "questions");
  };
  SetReport report{.name = std::filesystem::path(set).filename().string()};
  if (is_gsm8k(set)) {
    HEDDLE_ASSIGN_OR_RETURN(report.report,
                            evaluate_gsm8k(asked.ask, set, options.gsm8k, options.evaluation));
  } else {
    HEDDLE_ASSIGN_OR_RETURN(auto questions, read_questions(set));
    if (options.num_questions && *options.num_questions < std::ssize(questions)) {
      questions.resize(static_cast<size_t>(*options.num_questions));
    }
    if (!asked.shows_tokens) {
      for (Question& question : questions) question.reference.reset();
    }
    HEDDLE_ASSIGN_OR_RETURN(report.report,
                            evaluate(asked.ask, questions, asked.end_tokens, options.evaluation));
  }
  return report;
}

// Checks the sets before a model is loaded.
Status check_sets(const EvalOptions& options) {
  if (options.sets.empty()) {
    const bool is_served = !options.served.url.empty();
    return invalid_argument(
        fmt::format("{}: name a question set (.jsonl), too",
                    is_served ? "--url " + options.served.url : options.model.model_dir));
  }
  std::vector<std::string> files = options.sets;
  if (!options.gsm8k.shots_file.empty()) files.push_back(options.gsm8k.shots_file);
  for (const std::string& file : files) {
    std::error_code ignored;
    if (std::ifstream(file).good() && !std::filesystem::is_directory(file, ignored)) continue;
    return not_found(fmt::format("cannot read the question set {}; name a .jsonl file", file));
  }
  const bool any_gsm8k = std::ranges::any_of(options.sets, is_gsm8k);
  const bool asks_gsm8k = options.shots || options.gsm8k.chat || !options.gsm8k.shots_file.empty();
  if (any_gsm8k || !asks_gsm8k) return ok_status();
  return invalid_argument(
      "--shots, --shots-file and --chat are for GSM8K, and no set is one; leave them out");
}

Result<std::vector<SetReport>> evaluate_sets(EvalOptions& options) {
  const bool is_served = !options.served.url.empty();
  std::string& first = options.model.model_dir;
  if (is_served) {  // there is no model folder: the first argument is a set
    if (!first.empty()) options.sets.insert(options.sets.begin(), std::exchange(first, {}));
  } else if (first.empty()) {
    return invalid_argument("MODEL_DIR is required, or --url; see heddle eval --help");
  } else {
    HEDDLE_RETURN_IF_ERROR(apply(options.model));
    HEDDLE_RETURN_IF_ERROR(apply_adapters(options.adapters, options.model.engine));
  }
  HEDDLE_RETURN_IF_ERROR(check_sets(options));
  options.gsm8k.shots = options.shots.value_or(options.gsm8k.shots);
  options.gsm8k.num_questions = options.num_questions.value_or(options.gsm8k.num_questions);
  std::unique_ptr<Engine> engine;
  std::unique_ptr<const server::TextCodec> codec;
  Asked asked;
  if (is_served) {
    HEDDLE_ASSIGN_OR_RETURN(asked.ask, ask_server(options.served));
  } else {
    HEDDLE_ASSIGN_OR_RETURN(engine, create_engine(options.model.engine));
    HEDDLE_ASSIGN_OR_RETURN(
        codec, server::make_model_codec(options.model.engine.model_dir, *engine->tokenizer(),
                                        options.model.chat_template));
    HEDDLE_ASSIGN_OR_RETURN(const auto adapters, load_adapters(options.adapters, *engine));
    if (!adapters.empty()) options.evaluation.sampling.adapter = adapters.front().adapter;
    asked = {.ask = ask_engine(*engine, *codec),
             .shows_tokens = true,
             .end_tokens = engine->model_info().eos_token_ids};
  }
  std::vector<SetReport> reports;
  for (const std::string& set : options.sets) {
    HEDDLE_ASSIGN_OR_RETURN(auto report, evaluate_set(set, asked, options));
    reports.push_back(std::move(report));
  }
  return reports;
}

// Right answers and agreement with recorded outputs over all sets.
struct ScoredAnswers {
  int64_t with_answer = 0;
  int64_t correct = 0;
  int64_t with_reference = 0;
  int64_t different = 0;

  void add(const EvaluationReport& report) {
    with_answer += report.with_answer;
    correct += report.correct;
    with_reference += report.with_reference;
    different += report.different;
  }

  void add(const Gsm8kReport& report) {
    with_answer += report.total;
    correct += report.correct;
  }
};

// The expectation on the command line that the reports do not meet; empty if all are met. An
// expectation that no question can be measured against is not met.
std::string unmet_expectation(const EvalOptions& options, const std::vector<SetReport>& reports) {
  ScoredAnswers totals;
  for (const SetReport& set : reports) {
    std::visit([&totals](const auto& report) { totals.add(report); }, set.report);
  }
  if ((options.min_correct || options.min_accuracy) && totals.with_answer == 0) {
    return "no question of the sets has an answer; leave out --min-correct and --min-accuracy";
  }
  const double accuracy =
      static_cast<double>(totals.correct) / static_cast<double>(totals.with_answer);
  if (options.min_correct && totals.correct < *options.min_correct) {
    return fmt::format("{} of {} answers are right, --min-correct asks for {}", totals.correct,
                       totals.with_answer, *options.min_correct);
  }
  if (options.min_accuracy && accuracy < *options.min_accuracy) {
    return fmt::format("{} of {} answers are right ({:.4f}), --min-accuracy asks for {}",
                       totals.correct, totals.with_answer, accuracy, *options.min_accuracy);
  }
  if (!options.expect_reference) return {};
  if (totals.with_reference == 0) {
    return "no question of the sets has a recorded output; leave out --expect-reference";
  }
  if (totals.different > 0) {
    return fmt::format(
        "{} of {} outputs are not the recorded ones, --expect-reference allows for near ties only",
        totals.different, totals.with_reference);
  }
  return {};
}

Json to_json(const std::string& set, const EvaluationReport& report) {
  return {{"set", set},
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

Json to_json(const std::string& set, const Gsm8kReport& report) {
  return {{"set", set},
          {"shots", report.shots},
          {"total", report.total},
          {"correct", report.correct},
          {"accuracy", report.share_of_total(report.correct)},
          {"invalid", report.invalid},
          {"invalid_rate", report.share_of_total(report.invalid)},
          {"failed", report.failed},
          {"prompt_tokens", report.prompt_tokens},
          {"cached_tokens", report.cached_tokens},
          {"output_tokens", report.output_tokens},
          {"seconds", report.seconds},
          {"mean_request_seconds", report.request_seconds},
          {"output_tokens_per_second", static_cast<double>(report.output_tokens) / report.seconds}};
}

void print_json(const std::vector<SetReport>& reports) {
  Json json = Json::array();
  for (const auto& [name, report] : reports) {
    json.push_back(std::visit(
        [&name](const auto& of_its_kind) { return to_json(name, of_its_kind); }, report));
  }
  fmt::print("{}\n", (json.size() == 1 ? json[0] : json).dump(2));
}

std::string rate(int64_t output_tokens, double seconds) {
  return fmt::format("{:.0f}", static_cast<double>(output_tokens) / seconds);
}

// The entries of `reports` that are of type Report.
template <typename Report>
std::vector<std::pair<std::string, Report>> reports_of_kind(const std::vector<SetReport>& reports) {
  std::vector<std::pair<std::string, Report>> chosen;
  for (const auto& [name, report] : reports) {
    if (const auto* of_kind = std::get_if<Report>(&report)) chosen.emplace_back(name, *of_kind);
  }
  return chosen;
}

void print_comparisons(const std::vector<std::pair<std::string, EvaluationReport>>& reports) {
  Table table(
      {"set", "correct", "of", "equal to reference", "of", "near ties", "different", "tok/s"});
  for (const auto& [name, report] : reports) {
    table.add({name, std::to_string(report.correct), std::to_string(report.with_answer),
               std::to_string(report.equal_to_reference), std::to_string(report.with_reference),
               std::to_string(report.near_ties), std::to_string(report.different),
               rate(report.output_tokens, report.seconds)});
  }
  fmt::print("{}", table.to_string());
  fmt::print(
      "A near tie: the first different token stood where the two best logits were closer than "
      "1e-3.\n");
}

void print_scores(const std::vector<std::pair<std::string, Gsm8kReport>>& reports) {
  Table table({"set", "questions", "accuracy", "invalid", "failed", "seconds", "s/question",
               "tok/s", "cached tokens", "of"});
  for (const auto& [name, report] : reports) {
    table.add({name, std::to_string(report.total),
               fmt::format("{:.3f}", report.share_of_total(report.correct)),
               fmt::format("{:.3f}", report.share_of_total(report.invalid)),
               std::to_string(report.failed), fmt::format("{:.1f}", report.seconds),
               fmt::format("{:.2f}", report.request_seconds),
               rate(report.output_tokens, report.seconds), std::to_string(report.cached_tokens),
               std::to_string(report.prompt_tokens)});
  }
  fmt::print("{}", table.to_string());
}

void print_tables(const std::vector<SetReport>& reports) {
  const auto comparisons = reports_of_kind<EvaluationReport>(reports);
  if (!comparisons.empty()) print_comparisons(comparisons);
  const auto scores = reports_of_kind<Gsm8kReport>(reports);
  if (!scores.empty()) print_scores(scores);
}

int eval(EvalOptions& options) {
  const Result<std::vector<SetReport>> reports = evaluate_sets(options);
  if (!reports.ok()) return report_failure(reports.status());
  options.json ? print_json(*reports) : print_tables(*reports);
  const std::string unmet = unmet_expectation(options, *reports);
  if (unmet.empty()) return 0;
  fmt::print(stderr, "error: {}\n", unmet);
  return kExitFailure;
}

std::function<int()> declare_eval(Options& options) {
  auto settings = std::make_shared<EvalOptions>();
  options.examples(
      "heddle eval models/heddle-tiny tests/golden/heddle_tiny/math.jsonl\n"
      "heddle eval models/heddle-tiny tests/golden/heddle_tiny/*.jsonl --dtype float32 "
      "--expect-reference\n"
      "\n"
      "heddle eval --url https://host/v1 --api-key KEY gsm8k/test.jsonl\n"
      "heddle eval models/heddle-tiny gsm8k/test.jsonl --shots 5 --min-accuracy 0.8\n"
      "\n"
      "A line of a set: {\"messages\": [...], \"answer\": \"6\", \"reference_token_ids\": [...]};\n"
      "right is what follows the last ####, or the whole output. Or a set is GSM8K as published,\n"
      "{\"question\": \"...\", \"answer\": \"... #### 18\"}: the first examples go before every "
      "question\n"
      "behind them, and right is the last number behind ####, or the last of all.\n"
      "Exit code 0, or 1 where an expectation (--min-correct, ...) is not met.");
  options.reserve("--seed");
  options.reserve("--parallel");
  declare_engine_options(options, settings->model, ModelArgument::kRequiredOrUrl);
  declare_adapter(options, settings->adapters);
  const std::vector<DeclaredOption> of_this_process = options.declared();
  options.heading("Evaluation");
  options.positional("SET", &settings->sets,
                     "Question sets (.jsonl); with --url in place of MODEL_DIR, too",
                     /*required=*/false);
  declare_served_options(options, settings->served, of_this_process);
  options.value("--parallel", &settings->evaluation.ask.parallel, ranges::kBatch,
                "Questions in flight");
  options.value("--timeout", &settings->served.timeout_seconds, ranges::kMeasureSeconds,
                "With --url: seconds until a question has failed");
  options.needs("--timeout", "--url");
  options.value("--num-questions", &settings->num_questions, ranges::kCount,
                "Ask the first ones of each set only, this many (default: all; of GSM8K 200)");
  options.flag("--json", &settings->json, "Print the report as JSON");
  options.heading("Expectations");
  options.value("--min-correct", &settings->min_correct, ranges::kCountOrNone,
                "Fail unless this many answers are right, in all sets together");
  options.value("--min-accuracy", &settings->min_accuracy, ranges::kProbability,
                "Fail unless this share of the answers is right, in all sets together");
  options.flag("--expect-reference", &settings->expect_reference,
               "Fail unless every output is the recorded one; only where the two best logits are "
               "closer than 1e-3 (a near tie) may it differ");
  options.excludes("--url", "--expect-reference");
  options.heading("GSM8K");
  options.value("--shots", &settings->shots, ranges::kCountOrNone,
                "Worked examples before every question (default 5)");
  options.text("--shots-file", &settings->gsm8k.shots_file,
               "Where they come from (default: the set itself)");
  options.flag("--chat", &settings->gsm8k.chat,
               "The prompt is a user's message: apply the chat template");
  declare_sampling_options(
      options, settings->evaluation.sampling,
      fmt::format("Sampling (default: always the most likely token, {} at most)",
                  kDefaultAnswerTokens));
  return [settings] { return eval(*settings); };
}

}  // namespace

const Subcommand kEval = {"eval", "Ask a model the questions of a set and count right answers.",
                          declare_eval};

}  // namespace heddle::tools
