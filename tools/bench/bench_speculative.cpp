// SPDX-License-Identifier: Apache-2.0
// heddle bench speculative: what drafts gain over plain decoding, alternating on the same machine,
// and that they change no text.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "core/clock.h"
#include "server/call/text_codec.h"
#include "tools/cli/machine.h"
#include "tools/cli/option_names.h"
#include "tools/cli/options_engine.h"
#include "tools/cli/output_file.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/table.h"
#include "tools/evaluation.h"

namespace heddle::tools {
namespace {

using nlohmann::ordered_json;

struct SpeculativeCommand {
  EngineSettings model;
  std::vector<std::string> sets;
  std::string parallel = "1,8";
  int64_t rounds = 5;
  int64_t questions = 8;
  int64_t prompt_tokens = 128;
  int64_t output_tokens = 128;
  BenchOutput output;
};

struct QuestionSet {
  std::string name;
  std::vector<std::vector<TokenId>> prompts;
};

// Measurements of one engine over all rounds of a set.
struct EngineRounds {
  std::vector<double> rates;  // output tokens per second in each round
  double seconds = 0;
  int64_t output_tokens = 0;
  DraftReport drafts;
  std::vector<std::vector<TokenId>> outputs;

  [[nodiscard]] double per_step(int64_t count) const {
    return static_cast<double>(count) /
           static_cast<double>(std::max<int64_t>(drafts.verify_steps, 1));
  }

  // Average tokens that a sequence gets in a decode step; the step that ends its prompt is not
  // counted.
  [[nodiscard]] double tokens_per_step() const { return 1 + per_step(drafts.accepted_tokens); }

  [[nodiscard]] double drafts_per_step() const {
    return per_step(drafts.accepted_tokens + drafts.rejected_tokens);
  }

  // The share of verified drafts that were accepted; 0 if there were none.
  [[nodiscard]] double accepted_share() const {
    const int64_t verified = drafts.accepted_tokens + drafts.rejected_tokens;
    return static_cast<double>(drafts.accepted_tokens) /
           static_cast<double>(std::max<int64_t>(verified, 1));
  }
};

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

// The median over rounds of the ratio of the rate with drafts to the plain rate.
double median_gain(const EngineRounds& drafting, const EngineRounds& plain) {
  std::vector<double> gains;
  for (size_t i = 0; i < drafting.rates.size(); ++i) {
    gains.push_back(drafting.rates[i] / plain.rates[i]);
  }
  return median_of(gains);
}

size_t num_equal_answers(const EngineRounds& a, const EngineRounds& b) {
  size_t equal = 0;
  for (size_t i = 0; i < a.outputs.size(); ++i) equal += a.outputs[i] == b.outputs[i] ? 1 : 0;
  return equal;
}

QuestionSet random_questions(const SpeculativeCommand& command, int64_t count,
                             const ModelInfo& model) {
  std::mt19937_64 random(1);
  QuestionSet set{.name = "random", .prompts = {}};
  for (int64_t i = 0; i < count; ++i) {
    std::vector<TokenId>& prompt = set.prompts.emplace_back();
    for (int64_t t = 0; t < command.prompt_tokens; ++t) {
      prompt.push_back(static_cast<TokenId>(random() % static_cast<uint64_t>(model.vocab_size)));
    }
  }
  return set;
}

// The questions of all sets. Each is asked once per engine, because an earlier answer would supply
// its own drafts.
Result<std::vector<QuestionSet>> read_sets(const SpeculativeCommand& command, int64_t num_batches,
                                           const Engine& engine) {
  const int64_t wanted = command.rounds * command.questions * num_batches;
  std::vector<QuestionSet> sets;
  if (command.sets.empty()) {
    sets.push_back(random_questions(command, wanted, engine.model_info()));
    return sets;
  }
  HEDDLE_ASSIGN_OR_RETURN(
      const auto codec, server::make_model_codec(command.model.engine.model_dir,
                                                 *engine.tokenizer(), command.model.chat_template));
  for (const std::string& file : command.sets) {
    QuestionSet set{.name = std::filesystem::path(file).filename().string(), .prompts = {}};
    HEDDLE_ASSIGN_OR_RETURN(const auto questions, read_questions(file));
    for (const Question& question : questions) {
      HEDDLE_ASSIGN_OR_RETURN(auto prompt, prompt_of(question, *codec));
      set.prompts.push_back(std::move(prompt));
    }
    if (std::ssize(set.prompts) < wanted) {
      return invalid_argument(fmt::format(
          "{} has {} questions; {} rounds of {} for {} --parallel need {}, each asked once", file,
          set.prompts.size(), command.rounds, command.questions, num_batches, wanted));
    }
    sets.push_back(std::move(set));
  }
  return sets;
}

Status ask_round(Engine& engine, const SpeculativeCommand& command,
                 std::span<const std::vector<TokenId>> prompts, int64_t parallel,
                 EngineRounds& side) {
  std::vector<Request> requests;
  for (const std::vector<TokenId>& prompt : prompts) {
    Request request{.prompt = prompt};
    request.sampling.temperature = 0;
    request.stop.max_new_tokens = command.output_tokens;
    request.stop.ignore_eos = command.sets.empty();
    requests.push_back(std::move(request));
  }
  const SteadyClock clock;
  const double begin = clock.now_seconds();
  HEDDLE_ASSIGN_OR_RETURN(std::vector<Answer> answers,
                          ask(engine, std::move(requests), {.parallel = parallel}));
  const double seconds = clock.now_seconds() - begin;
  int64_t tokens = 0;
  for (Answer& answer : answers) {
    if (answer.failed())
      return internal_error("a request failed: " + answer.finish.error.to_string());
    tokens += std::ssize(answer.tokens);
    side.drafts.verify_steps += answer.drafts.verify_steps;
    side.drafts.accepted_tokens += answer.drafts.accepted_tokens;
    side.drafts.rejected_tokens += answer.drafts.rejected_tokens;
    side.outputs.push_back(std::move(answer.tokens));
  }
  side.rates.push_back(static_cast<double>(tokens) / seconds);
  side.seconds += seconds;
  side.output_tokens += tokens;
  return {};
}

Status run_speculative(SpeculativeCommand& command) {
  if (command.model.engine.speculative.algorithm == DraftAlgorithm::kNone) {
    return invalid_argument("nothing drafts; name a --speculative-algorithm");
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<int64_t> batches,
                          parse_counts("--parallel", command.parallel, ranges::kBatch));
  HEDDLE_RETURN_IF_ERROR(check_bench_output(command.output));
  HEDDLE_RETURN_IF_ERROR(apply(command.model));
  EngineOptions options = command.model.engine;
  options.skip_tokenizer = command.sets.empty();
  std::optional<double>& share =
      options.static_memory_fraction ? options.static_memory_fraction : options.memory_fraction;
  share = share.value_or(0.8) / 2;  // half each, because two engines are loaded
  HEDDLE_ASSIGN_OR_RETURN(const auto drafting, create_engine(options));
  const DraftAlgorithm algorithm = drafting->options().speculative.algorithm;
  if (algorithm == DraftAlgorithm::kNone) {
    return invalid_argument(
        "nothing drafts by itself with this model; name a --speculative-algorithm");
  }
  EngineOptions without = options;
  without.speculative = {.algorithm = DraftAlgorithm::kNone};
  HEDDLE_ASSIGN_OR_RETURN(const auto plain, create_engine(without));
  HEDDLE_ASSIGN_OR_RETURN(const auto sets, read_sets(command, std::ssize(batches), *drafting));

  const ModelInfo& model = drafting->model_info();
  ordered_json json = {
      {"benchmark", "speculative"},
      {"model", options.model_dir.string()},
      {"dtype", model.dtype},
      {"algorithm", to_string(algorithm)},
      {"num_draft_tokens", drafting->options().speculative.num_draft_tokens},
      {"rounds", command.rounds},
      {"questions", command.questions},
      {"output_tokens", command.output_tokens},
      {"simulated_acceptance", options.speculative.simulated_acceptance},
      {"machine", {{"cpu", cpu_model()}, {"device", model.device}, {"commit", built_commit()}}},
      {"rows", ordered_json::array()}};
  Table table({"set", "at once", "plain tok/s", "with drafts", "gain", "drafts a step", "held",
               "tokens a step", "same answers"});
  for (const QuestionSet& set : sets) {
    std::span<const std::vector<TokenId>> left = set.prompts;
    for (const int64_t parallel : batches) {
      EngineRounds with, base;
      for (int64_t round = 0; round < command.rounds; ++round) {
        const auto questions = left.first(static_cast<size_t>(command.questions));
        left = left.subspan(static_cast<size_t>(command.questions));
        const auto ask_plain = [&] {
          return ask_round(*plain, command, questions, parallel, base);
        };
        if (round % 2 == 0) HEDDLE_RETURN_IF_ERROR(ask_plain());
        HEDDLE_RETURN_IF_ERROR(ask_round(*drafting, command, questions, parallel, with));
        if (round % 2 != 0) HEDDLE_RETURN_IF_ERROR(ask_plain());
      }
      const double gain = median_gain(with, base);
      const size_t equal = num_equal_answers(with, base);
      table.add({set.name, fmt::format("{}", parallel),
                 fmt::format("{:.0f}", median_of(base.rates)),
                 fmt::format("{:.0f}", median_of(with.rates)), fmt::format("{:.2f}", gain),
                 fmt::format("{:.2f}", with.drafts_per_step()),
                 fmt::format("{:.0f} %", 100 * with.accepted_share()),
                 fmt::format("{:.2f}", with.tokens_per_step()),
                 fmt::format("{}/{}", equal, with.outputs.size())});
      json["rows"].push_back({{"set", set.name},
                              {"parallel", parallel},
                              {"plain_tokens_per_second", median_of(base.rates)},
                              {"tokens_per_second", median_of(with.rates)},
                              {"gain", gain},
                              {"verify_steps", with.drafts.verify_steps},
                              {"drafts_per_step", with.drafts_per_step()},
                              {"accepted_share", with.accepted_share()},
                              {"tokens_per_step", with.tokens_per_step()},
                              {"seconds", with.seconds},
                              {"plain_seconds", base.seconds},
                              {"equal_answers", equal},
                              {"answers", with.outputs.size()}});
    }
  }
  return emit(command.output, json,
              fmt::format("{}, {}, {}; {} rounds of {} requests\n\n{}", options.model_dir.string(),
                          model.dtype, to_string(algorithm), command.rounds, command.questions,
                          table.to_string()));
}

std::function<int()> declare_speculative(Options& options) {
  auto settings = std::make_shared<SpeculativeCommand>();
  settings->model.log_level = "warning";
  options.examples(
      "heddle bench speculative models/heddle-tiny tests/golden/heddle_tiny/math.jsonl\n"
      "  --speculative-algorithm mtp\n"
      "heddle bench speculative MODEL_DIR --speculative-algorithm ngram --parallel 1,4,32\n"
      "\n"
      "An engine with drafts and one without answer the same questions greedily, in turn; every\n"
      "question is asked once. Gain: the median over the rounds of the ratio of tokens a second,\n"
      "prompts included. Drafts a step: as many as the cost model chose, or as\n"
      "--speculative-num-draft-tokens says; held: their share that the model drew. Same\n"
      "answers: token for token.\n"
      "--simulated-acceptance says what drafts would be worth that hold so often: weights may be\n"
      "random (--load-format dummy) then, and texts mean nothing.");
  options.reserve("--parallel");
  declare_engine_options(options, settings->model, ModelArgument::kRequired);
  options.heading("Workload");
  options.positional("SET", &settings->sets,
                     "Question sets (.jsonl) as for eval; without one, random tokens", false);
  options.value("--parallel", &settings->parallel, "Requests at a time, separated by commas");
  options.value("--rounds", &settings->rounds, ranges::kRepeats, "Of each engine; medians count");
  options.value("--questions", &settings->questions, ranges::kCount, "Of a round");
  options.value("--prompt-tokens", &settings->prompt_tokens, ranges::kContext,
                "Of a random prompt");
  options.value("--output-tokens", &settings->output_tokens, ranges::kContext,
                "Of an answer, at most; of a random prompt's, exactly");
  options.has_effect_if(
      "--prompt-tokens", [&sets = settings->sets] { return sets.empty(); },
      "where sets have their own prompts");
  options.value("--simulated-acceptance", &settings->model.engine.speculative.simulated_acceptance,
                ranges::kAcceptance,
                "Tokens that a step yields on average, whatever the model draws; 0: as it draws");
  options.heading("Report");
  declare_bench_output(options, settings->output);
  return [settings] {
    const Status status = run_speculative(*settings);
    return status.ok() ? 0 : report_failure(status);
  };
}

}  // namespace

const Subcommand kBenchSpeculative = {.name = "speculative",
                                      .summary = "Measure what drafts gain beside plain decoding.",
                                      .declare = declare_speculative};

}  // namespace heddle::tools
