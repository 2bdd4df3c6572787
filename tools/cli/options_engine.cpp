// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/options_engine.h"

#include <fmt/format.h>

#include "chat/chat_template.h"
#include "checkpoint/hub_cache.h"
#include "checkpoint/model_folder.h"
#include "core/log.h"
#include "tools/cli/machine.h"
#include "tools/cli/terminal.h"

namespace heddle::tools {
namespace {

void declare_what_has_effect(Options& options, const SchedulingOptions& scheduling) {
  options.has_effect_if(
      "--prefills-per-decode", [&scheduling] { return !scheduling.mixed_batches; },
      "while prefill and decoding share steps; add --no-mixed-batches");
  options.has_effect_if(
      "--cache-aware-max-wait-secs",
      [&scheduling] {
        return scheduling.policy == QueuePolicy::kLpm ||
               scheduling.policy == QueuePolicy::kDfsWeight;
      },
      "with this policy; use --policy lpm or dfs-weight");
  const auto by_priority = [&scheduling] {
    return scheduling.enable_priority || scheduling.policy == QueuePolicy::kPriority;
  };
  for (const char* name :
       {"--low-values-first", "--default-priority", "--preemption", "--preemption-threshold",
        "--max-preemptions", "--preemption-min-run-secs", "--priority-aging-secs"}) {
    options.has_effect_if(name, by_priority, "without priorities; add --enable-priority");
  }
  for (const char* name :
       {"--preemption-threshold", "--max-preemptions", "--preemption-min-run-secs"}) {
    options.has_effect_if(
        name, [&scheduling] { return scheduling.preemption; },
        "while no request gives way; drop --no-preemption");
  }
  options.has_effect_if(
      "--reject-priority-when-disabled", [by_priority] { return !by_priority(); },
      "while priorities are on; turn them off");
  for (const char* name : {"--fair-cost-input", "--fair-cost-output", "--fair-cost-cached"}) {
    options.has_effect_if(
        name, [&scheduling] { return scheduling.policy == QueuePolicy::kFair; },
        "with this policy; use --policy fair");
  }
}

namespace fs = std::filesystem;

constexpr const char* kDefaultModel = "models/heddle-tiny";
constexpr int kMaxFoldersUp = 4;  // levels of folders searched: build/PRESET/tools/heddle in a
                                  // checkout, bin/heddle in a package

bool is_model(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "config.json", ignored);
}

LogLevel parse_log_level(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning" || name == "warn") return LogLevel::kWarning;
  if (name == "error" || name == "critical") return LogLevel::kError;
  if (name == "off") return LogLevel::kOff;
  return LogLevel::kInfo;
}

Result<fs::path> checked_model_dir(const std::string& folder) {
  HEDDLE_RETURN_IF_ERROR(checkpoint::check_model_folder(folder));
  return fs::path(folder);
}

// Checks the chat template early, so that its errors are reported before the model is loaded.
Status check_chat_template(const EngineSettings& settings) {
  if (settings.chat_template.empty()) return ok_status();
  std::error_code ignored;
  if (!fs::exists(settings.chat_template, ignored)) {
    return not_found(
        fmt::format("--chat-template: there is no file {}; name a file with a template in Jinja, "
                    "for which no text and no name of a built-in template can stand",
                    settings.chat_template));
  }
  chat::ChatTemplateOptions options;
  options.template_file = settings.chat_template;
  return chat::ChatTemplate::load(settings.engine.model_dir, options)
      .status()
      .with_context("--chat-template");
}

void warn_of_inexact_states(const EngineOptions& options) {
  const StateDtype dtype = options.cache.state_dtype;
  if (!options.exact || !options.cache.enabled || dtype == StateDtype::kFloat32) return;
  log_warning(
      fmt::format("--exact with --state-cache-dtype {}: what the prefix cache gives back is "
                  "rounded, so an answer may depend on what was asked before; float32 is exact",
                  to_string(dtype)));
}

void declare_scheduling_options(Options& options, SchedulingOptions& scheduling) {
  options.heading("Scheduling");
  options.parsed(
      "--policy,--schedule-policy", to_string(scheduling.policy),
      [&scheduling](std::string_view name) -> Status {
        HEDDLE_ASSIGN_OR_RETURN(scheduling.policy, parse_queue_policy(name));
        return {};
      },
      "Order of waiting requests: fcfs, lpm, dfs-weight, lof, random, routing-key, hrrn, "
      "shortest-prefill-first, fair, or priority");
  options.value("--target-itl-ms", &scheduling.target_itl_ms, ranges::kNotNegative,
                "Cut prompts so that running streams wait no longer for a token; 0: no target");

  options.heading("Priorities and fairness");
  options.flag("--enable-priority,--enable-priority-scheduling", &scheduling.enable_priority,
               "Serve urgent requests first (fcfs, lof and fair)");
  options.value("--default-priority,--default-priority-value", &scheduling.default_priority,
                "Of requests without one; default: the least urgent there is");
  options.flag("--preemption,!--no-preemption,!--disable-priority-preemption",
               &scheduling.preemption,
               "Running requests give way to more urgent ones (default); with no-: never");
  options.value("--tenant-max-running", &scheduling.tenant_max_running, ranges::kCountOrNone,
                "Requests of one tenant that run; 0: no limit");
  options.value("--tenant-max-queued", &scheduling.tenant_max_queued, ranges::kCountOrNone,
                "Requests of one tenant that wait; 0: no limit");

  options.heading("Limits");
  options.value("--max-queued-tokens", &scheduling.max_queued_tokens, ranges::kCountOrNone,
                "Prompt tokens that wait; 0: no limit");
  options.value("--queue-timeout-secs", &scheduling.queue_timeout_seconds, ranges::kSeconds,
                "Waiting longer ends a request; 0: never");
  options.value("--running-timeout-secs", &scheduling.running_timeout_seconds, ranges::kSeconds,
                "Running longer ends a request; 0: never");

  options.heading(Options::kTuning);
  options.value("--conservativeness,--schedule-conservativeness", &scheduling.conservativeness,
                ranges::kPositive, "Scales what is set aside for tokens not yet drawn");
  options.flag("--mixed-batches,--enable-mixed-chunk,!--no-mixed-batches,!--disable-mixed-chunk",
               &scheduling.mixed_batches,
               "Prefill and decoding share steps (default); with no-: they take turns");
  options.flag("--overlap,!--no-overlap,!--disable-overlap-schedule", &scheduling.overlap,
               "Plan a step while one runs (default); with no-: one after the other");
  options.value("--prefills-per-decode,--decode-interleave", &scheduling.prefills_per_decode,
                ranges::kCountOrNone,
                "Without mixed batches: prefill steps between decode steps; 0: prefill first");
  options.value("--max-prefill-tokens", &scheduling.max_prefill_tokens, ranges::kCount,
                "New prompt tokens that may be admitted for one step");
  options.value("--cache-aware-max-wait-secs", &scheduling.cache_aware_max_wait_seconds,
                ranges::kSeconds, "lpm, dfs-weight: requests that wait longer go first");
  options.flag("--low-values-first,--schedule-low-priority-values-first",
               &scheduling.low_values_first, "Small priority values are the urgent ones");
  options.flag("--reject-priority-when-disabled,--abort-on-priority-when-disabled",
               &scheduling.reject_priority_when_disabled,
               "Refuse requests with a priority while priorities are off; else it is ignored");
  options.value("--preemption-threshold,--priority-scheduling-preemption-threshold",
                &scheduling.preemption_threshold, ranges::kCountOrNone, "By more than this");
  options.value("--max-preemptions", &scheduling.max_preemptions, ranges::kCountOrNone,
                "Of one request; then it is left alone");
  options.value("--preemption-min-run-secs", &scheduling.preemption_min_run_seconds,
                ranges::kSeconds, "A request runs at least so long before it gives way");
  options.value("--priority-aging-secs", &scheduling.aging_seconds, ranges::kSeconds,
                "A waiting request gains one class of urgency each; 0: never");
  options.value("--fair-cost-input", &scheduling.fair_cost_input, ranges::kNotNegative,
                "fair: what a prompt token costs its tenant");
  options.value("--fair-cost-output", &scheduling.fair_cost_output, ranges::kNotNegative,
                "fair: an output token");
  options.value("--fair-cost-cached", &scheduling.fair_cost_cached, ranges::kNotNegative,
                "fair: a prompt token from the cache");
  declare_what_has_effect(options, scheduling);
}

void declare_cache_options(Options& options, CacheOptions& cache) {
  options.heading("Prefix cache");
  options.flag("--prefix-cache,!--no-prefix-cache,!--disable-radix-cache", &cache.enabled,
               "Keep what was computed for prompts that begin alike (default)");
  options.choice("--state-snapshots,--state-checkpoints,--mamba-scheduler-strategy",
                 &cache.state_snapshots, parse_snapshot_policy,
                 {"multi", "extra_buffer", "no_buffer"},
                 "Which recurrent states are kept; no_buffer needs --page-size 1");
  options.choice("--state-cache-dtype", &cache.state_dtype, parse_state_dtype,
                 {"float32", "bfloat16", "int8", "fp32", "bf16"},
                 "How kept recurrent states are stored; less than float32 is no longer exact");
  options.choice("--eviction,--radix-eviction-policy", &cache.eviction, parse_eviction_policy,
                 {"flops", "lru"},
                 "Evicted first: the prefix that saves least work, or the one unused longest");
  options.heading(Options::kTuning);
  options.value("--snapshot-interval,--checkpoint-interval,--mamba-track-interval",
                &cache.snapshot_interval, ranges::kCount,
                "Tokens between states kept while decoding; a multiple of 64");
  for (const char* name :
       {"--state-snapshots", "--snapshot-interval", "--state-cache-dtype", "--eviction"}) {
    options.has_effect_if(
        name, [&cache] { return cache.enabled; },
        "without the prefix cache; drop --no-prefix-cache");
  }
}

void declare_speculative_options(Options& options, SpeculativeOptions& speculative) {
  options.heading("Speculation");
  options.parsed(
      "--speculative-algorithm", to_string(speculative.algorithm),
      [&speculative](std::string_view name) -> Status {
        HEDDLE_ASSIGN_OR_RETURN(speculative.algorithm, parse_draft_algorithm(name));
        return {};
      },
      "Source of draft tokens: auto, the prediction head in the checkpoint where there is one; "
      "none; ngram, the tokens that followed the same ones before; mtp, that head; eagle or "
      "eagle3, a network in a folder of its own; standalone, a small model with the same "
      "tokenizer; no text changes");
  options.parsed(
      "--speculative-draft-model-path,--model-draft", "",
      [&speculative](std::string_view folder) -> Status {
        HEDDLE_ASSIGN_OR_RETURN(speculative.draft_model_dir,
                                checkpoint::find_model(std::string(folder)));
        return {};
      },
      "Folder of the drafter: the network of eagle or eagle3, the small model of standalone, or a "
      "prediction head that was taken out of its checkpoint");
  options.value("--speculative-num-draft-tokens", &speculative.num_draft_tokens,
                ranges::kDraftTokens,
                "Tokens of a request that a step computes, the next one included; 0: at most 8, as "
                "many as pay by the times of steps so far");
  options.value("--speculative-num-steps", &speculative.num_steps, ranges::kDraftSteps,
                "Drafts that a network makes behind one another: one less than "
                "--speculative-num-draft-tokens, or the levels of a tree; 0: as that says");
  options.value("--speculative-eagle-topk", &speculative.eagle_topk, ranges::kBranches,
                "Branches of drafts: those that a network goes on from at each of its steps, with "
                "more than 1 a tree of --speculative-num-steps levels; or ways that the same "
                "tokens went on before, with ngram");
  options.has_effect_if(
      "--speculative-eagle-topk",
      [&speculative] {
        return speculative.eagle_topk == 1 ||
               (speculative.algorithm != DraftAlgorithm::kNone &&
                speculative.algorithm != DraftAlgorithm::kStandalone);
      },
      "where drafts have no branches; use --speculative-algorithm eagle3");
  options.has_effect_if(
      "--speculative-num-draft-tokens",
      [&speculative] { return speculative.algorithm != DraftAlgorithm::kNone; },
      "without drafts; use --speculative-algorithm");
  options.has_effect_if(
      "--speculative-num-steps",
      [&speculative] {
        return speculative.algorithm != DraftAlgorithm::kNone &&
               speculative.algorithm != DraftAlgorithm::kNgram;
      },
      "where no network drafts; use --speculative-algorithm mtp, or "
      "--speculative-num-draft-tokens");
  options.has_effect_if(
      "--speculative-draft-model-path",
      [&speculative] {
        return speculative.algorithm == DraftAlgorithm::kEagle ||
               speculative.algorithm == DraftAlgorithm::kEagle3 ||
               speculative.algorithm == DraftAlgorithm::kStandalone ||
               speculative.algorithm == DraftAlgorithm::kMtp;
      },
      "where no network drafts; use --speculative-algorithm eagle3 or standalone");
}

}  // namespace

void declare_load_format(Options& options, LoadFormat& format, const char* help) {
  options.choice("--load-format", &format, parse_load_format, {"auto", "safetensors", "dummy"},
                 help);
}

void declare_dtypes(Options& options, RunDtype& dtype, KvCacheDtype& kv_cache_dtype) {
  options.choice("--dtype", &dtype, parse_run_dtype,
                 {"auto", "float32", "bfloat16", "float16", "fp32", "bf16", "fp16", "half"},
                 "Number format of the weights; auto: as stored");
  options.parsed(
      "--kv-cache-dtype", to_string(kv_cache_dtype),
      [&kv_cache_dtype](std::string_view name) -> Status {
        HEDDLE_ASSIGN_OR_RETURN(kv_cache_dtype, parse_kv_cache_dtype(name));
        return {};
      },
      "Format of keys and values: auto, float32, bfloat16, float16, fp8_e4m3; auto: as the "
      "checkpoint says, or as the weights are");
}

void declare_captures(Options& options, bool& disable_cuda_graph, int64_t& piecewise_max_tokens,
                      bool& debug) {
  options.flag("--disable-cuda-graph", &disable_cuda_graph,
               "On a GPU launch steps kernel by kernel, not as captured graphs");
  options.value("--piecewise-cuda-graph-max-tokens", &piecewise_max_tokens, ranges::kCountOrNone,
                "On a GPU capture steps with prompts of up to so many tokens, in pieces; 0: none");
  options.flag("--cuda-graph-debug", &debug,
               "Slow: log the program, and prove in every step what its ops read and write");
}

void declare_quantization(Options& options, Quantization& quantization) {
  options.choice("--quantization", &quantization, parse_quantization,
                 {"none", "fp8", "fp8-block", "int8", "int4", "int4-g64", "int4-g32", "mxfp4",
                  "awq", "gptq", "compressed-tensors", "modelopt"},
                 "Quantise an unquantised checkpoint at load, rounding to nearest; or the format "
                 "that the checkpoint has, which then is checked");
}

void declare_ranks(Options& options, int32_t& num_ranks) {
  options.value("--tp,--tp-size,--tensor-parallel-size", &num_ranks, ranges::kRanks,
                "Ranks that share the model and the compute threads; more than 1 on the CPU alone");
}

void declare_collective_timeout(Options& options, double& seconds, const int32_t& num_ranks) {
  options.value("--collective-timeout", &seconds, ranges::kSeconds,
                "Seconds that a rank waits for another one in a step before all of them end; 0: "
                "for ever");
  options.has_effect_if(
      "--collective-timeout", [&num_ranks] { return num_ranks > 1; },
      "without other ranks; use --tp");
}

void declare_engine_options(Options& options, EngineSettings& settings, ModelArgument argument) {
  EngineOptions& engine = settings.engine;
  options.model(
      "MODEL_DIR", &settings.model_dir,
      argument == ModelArgument::kOptional
          ? "Folder of the model: config.json, *.safetensors, tokenizer.json; or a "
            "GGUF file; or its name, ORG/NAME, in Hugging Face's cache; default: models/heddle-tiny"
          : "Folder of the model: config.json, *.safetensors, tokenizer.json; or a "
            "GGUF file; or its name, ORG/NAME, in Hugging Face's cache",
      argument == ModelArgument::kRequired);
  options.heading("Model");
  if (argument == ModelArgument::kOptional) {
    options.model("--model,--model-path", &settings.model_path, "The same as MODEL_DIR",
                  /*required=*/false);
  }
  declare_load_format(options, engine.load_format, kDummyWeightsHelp);
  declare_dtypes(options, engine.dtype, engine.kv_cache_dtype);
  declare_quantization(options, engine.quantization);
  options.flag(
      "--exact", &engine.exact,
      "Slow and reproducible: any two ways to compute a token give the same bits (not with "
      "a --state-cache-dtype less than float32)");
  options.value("--context-length", &engine.context_length, ranges::kCountOrNone,
                "Tokens of prompt and output together; 0: what the model was made for");
  options.text("--chat-template", &settings.chat_template,
               "A Jinja file to use instead of the model's own template");
  options.value("--random-seed", &engine.random_seed,
                "Seeds requests that bring no seed; 0: from the system");

  options.heading("Resources");
  options.value("--device", &engine.device, kDeviceHelp);
  declare_captures(options, engine.disable_cuda_graph, engine.piecewise_cuda_graph_max_tokens,
                   engine.cuda_graph_debug);
  options.parsed(
      "--attention-backend", to_string(engine.attention_backend),
      [&engine](std::string_view name) -> Status {
        HEDDLE_ASSIGN_OR_RETURN(engine.attention_backend, parse_attention_backend(name));
        const std::string_view taken = to_string(engine.attention_backend);
        if (name != taken) {
          fmt::print(stderr, "note: --attention-backend {} is {} here\n", name, taken);
        }
        return {};
      },
      "Kernels that a GPU attends with: auto, the fastest it has, or plain, those of exact mode");
  options.value("--threads", &engine.num_threads, ranges::kThreads,
                "Compute threads; 0: the machine's physical cores");
  declare_ranks(options, engine.num_ranks);
  options.value("--memory-fraction", &engine.memory_fraction, ranges::kShare,
                "Share of the memory that is free once the weights are loaded, for the pools; "
                "default: 0.5, on a GPU 0.9");
  options.value("--max-total-tokens", &engine.max_total_tokens, ranges::kCountOrNone,
                "Tokens in the cache; 0: from the memory fraction");
  options.value("--max-running-requests", &engine.max_running_requests, ranges::kCountOrNone,
                "Sequences in one step; 0: as many as the pools allow, at most 64, on a GPU 256");
  options.value("--max-queued-requests", &engine.max_queued_requests, ranges::kCount,
                "Waiting requests; one more is refused");
  options.value("--chunked-prefill-tokens,--chunked-prefill-size", &engine.chunked_prefill_tokens,
                ranges::kChunkTokens,
                "Prompt tokens of one step; default, and -1: 512, on a GPU 8192; prompts are never "
                "computed whole");
  options.value("--page-size", &engine.page_size, ranges::kCount,
                "Tokens of a cache page: a power of two from 1 to 128");
  options.heading(Options::kTuning);
  options.value("--mem-fraction-static,--gpu-memory-utilization", &engine.static_memory_fraction,
                ranges::kShare,
                "Instead: share of all the device's memory, for weights and pools together");
  options.excludes("--mem-fraction-static", "--memory-fraction");
  options.value("--watchdog-timeout", &engine.watchdog_seconds, ranges::kSeconds,
                "Seconds without the end of a step, while requests are there, after which the "
                "process logs what it was doing and aborts (more where steps are slow; after a "
                "tenth /health says stuck); 0: never");
  declare_collective_timeout(options, engine.collective_timeout_seconds, engine.num_ranks);

  declare_scheduling_options(options, engine.scheduling);
  declare_cache_options(options, engine.cache);
  declare_speculative_options(options, engine.speculative);
  options.accept_familiar();

  options.heading("Output");
  options.choice("--log-level", &settings.log_level,
                 {"debug", "info", "warning", "warn", "error", "critical", "off"},
                 "Least severe messages of the log");
  options.choice("--log-format", &settings.log_format, {"text", "json"},
                 "json: an object a line, with time, level and message");
}

Status apply(EngineSettings& settings) {
  set_log_level(parse_log_level(settings.log_level));
  set_log_format(settings.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  if (!settings.model_path.empty()) {
    if (!settings.model_dir.empty() && settings.model_dir != settings.model_path) {
      return invalid_argument(fmt::format("two models are named: {} and --model-path {}; name one",
                                          settings.model_dir, settings.model_path));
    }
    settings.model_dir = settings.model_path;
  }
  const fs::path& drafter = settings.engine.speculative.draft_model_dir;
  std::error_code ignored;
  if (!drafter.empty() && !fs::exists(drafter, ignored)) {
    return not_found(fmt::format(
        "--speculative-draft-model-path: there is no folder {}; name the one that has the "
        "drafter's config.json",
        drafter.string()));
  }
  warn_of_inexact_states(settings.engine);
  settings.engine.num_threads = usable_threads(settings.engine.num_threads);
  settings.engine.on_load_progress = load_progress_bar();
  HEDDLE_ASSIGN_OR_RETURN(settings.engine.model_dir, settings.model_dir.empty()
                                                         ? default_model_dir()
                                                         : checked_model_dir(settings.model_dir));
  return check_chat_template(settings);
}

Result<fs::path> default_model_dir() {
  if (is_model(kDefaultModel)) return fs::path(kDefaultModel);
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (int i = 0; !error && i <= kMaxFoldersUp && folder.has_relative_path(); ++i) {
    if (is_model(folder / kDefaultModel)) return folder / kDefaultModel;
    folder = folder.parent_path();
  }
  return not_found(
      fmt::format("no model is named and {} is neither below the current folder nor near "
                  "the program; name a model's folder as the first argument",
                  kDefaultModel));
}

}  // namespace heddle::tools
