// SPDX-License-Identifier: Apache-2.0
// The options of an engine. Every field has a default that is right for most machines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <heddle/status.h>

namespace heddle {

// The order in which waiting requests run.
enum class QueuePolicy {
  kFcfs,                  // first come, first served
  kLpm,                   // longest prefix match first
  kDfsWeight,             // requests below the same part of the prefix tree together
  kLof,                   // longest output first, by max_new_tokens
  kRandom,                // shuffled anew in every pass
  kRoutingKey,            // keys that run already, most running first
  kHrrn,                  // highest response ratio next: waited work over own work
  kShortestPrefillFirst,  // fewest uncached tokens first
  kFair,                  // the tenant that was served least
  kPriority,              // kFcfs with SchedulingOptions::enable_priority
};

// "fcfs", "lpm", "dfs-weight", "lof", "random", "routing-key", "hrrn", "shortest-prefill-first",
// "fair", "priority".
[[nodiscard]] std::string_view to_string(QueuePolicy policy);

// Error: kInvalidArgument, with the names there are.
[[nodiscard]] Result<QueuePolicy> parse_queue_policy(std::string_view name);

// The order of requests, and what happens when the machine is too small for all of them
// (docs/scheduling.md).
struct SchedulingOptions {
  QueuePolicy policy = QueuePolicy::kFcfs;
  double conservativeness = 1.0;  // scales what is set aside for tokens not yet drawn

  bool mixed_batches = true;           // prefill chunks and decoding sequences share a step
  bool overlap = true;                 // the next step is planned while one runs
  int32_t prefills_per_decode = 1;     // without mixed batches: prefill steps between decode steps;
                                       // 0: prefill first, always
  int32_t max_prefill_tokens = 16384;  // new prompt tokens that may be admitted for one step
  double target_itl_ms = 0;            // chunks of prompts are cut so that streams get their next
                             // token within, by what steps have taken so far; 0: no target

  bool enable_priority = false;
  bool low_values_first = false;               // small priority values are the urgent ones
  std::optional<int64_t> default_priority;     // none: the least urgent there is
  bool reject_priority_when_disabled = false;  // else the field is ignored
  bool preemption = true;                      // running requests give way to more urgent ones
  int64_t preemption_threshold = 10;           // by more than this
  int32_t max_preemptions = 3;                 // of one request; then it is left alone
  double preemption_min_run_seconds = 0.2;
  double aging_seconds = 0;  // a waiting request gains one class of urgency each; 0: never

  double cache_aware_max_wait_seconds = 5;  // lpm and dfs-weight: older requests go first
  int64_t max_queued_tokens = 0;            // prompt tokens that wait; 0: no limit
  double queue_timeout_seconds = 0;         // 0: none
  double running_timeout_seconds = 0;

  // fair: virtual token counters per tenant.
  double fair_cost_input = 1;
  double fair_cost_output = 2;
  double fair_cost_cached = 0.1;
  int32_t tenant_max_running = 0;  // 0: no limit
  int32_t tenant_max_queued = 0;
};

// The rule for which recurrent states are kept.
enum class SnapshotPolicy {
  kMulti,        // at forks, tails, message boundaries and ends
  kExtraBuffer,  // one per step, at a multiple of the grid; as other servers have it
  kNoBuffer,     // at the end of every step, likewise; needs page_size 1
};

// "multi", "extra_buffer", "no_buffer".
[[nodiscard]] std::string_view to_string(SnapshotPolicy policy);

// Error: kInvalidArgument, with the names there are.
[[nodiscard]] Result<SnapshotPolicy> parse_snapshot_policy(std::string_view name);

// The format of kept recurrent states.
enum class StateDtype { kFloat32, kBfloat16, kInt8 };

// "float32", "bfloat16", "int8".
[[nodiscard]] std::string_view to_string(StateDtype dtype);

// Takes "fp32" and "bf16", too. Error: kInvalidArgument, with the names there are.
[[nodiscard]] Result<StateDtype> parse_state_dtype(std::string_view name);

// The order in which kept things are given up where memory is short.
enum class EvictionPolicy {
  kFlops,  // by the work a state saves, per byte it takes, and how lately it was of use
  kLru,    // what was unused for longest
};

// "flops", "lru".
[[nodiscard]] std::string_view to_string(EvictionPolicy policy);

// Error: kInvalidArgument, with the names there are.
[[nodiscard]] Result<EvictionPolicy> parse_eviction_policy(std::string_view name);

// The prefix cache: what it keeps of requests for others that begin alike (docs/hybrid-cache.md).
struct CacheOptions {
  bool enabled = true;
  SnapshotPolicy state_snapshots = SnapshotPolicy::kMulti;
  int32_t snapshot_interval = 256;  // tokens, while decoding; a multiple of the grid
  StateDtype state_dtype = StateDtype::kFloat32;
  EvictionPolicy eviction = EvictionPolicy::kFlops;
};

// The source of guesses at how texts go on (docs/speculation.md).
enum class DraftAlgorithm {
  kNone,
  kAuto,        // kMtp where the checkpoint has a head that can be used, else kNone
  kNgram,       // what followed the same tokens before, in the request's own text or in others
  kMtp,         // the multi-token-prediction head inside the checkpoint
  kEagle,       // a network that was trained for the model, in a folder of its own
  kEagle3,      // likewise, which reads more of the model
  kStandalone,  // a small model with the same tokenizer, in a folder of its own
};

// "none", "auto", "ngram", "mtp", "eagle", "eagle3", "standalone".
[[nodiscard]] std::string_view to_string(DraftAlgorithm algorithm);

// In any case of letters; "nextn" is "mtp". Error: kInvalidArgument, with the names there are.
[[nodiscard]] Result<DraftAlgorithm> parse_draft_algorithm(std::string_view name);

// Speculative decoding: a step computes drafts beside the next token and keeps those that the model
// draws as well. It changes no text, only how many steps it takes (docs/speculation.md).
struct SpeculativeOptions {
  DraftAlgorithm algorithm = DraftAlgorithm::kAuto;

  // The folder of the network that drafts: needed with kEagle, kEagle3 and kStandalone, may stand
  // in for the checkpoint with kMtp (`heddle export-nextn`).
  std::filesystem::path draft_model_dir;

  // Tokens of one sequence that a step computes, the next one included, 2 to 64. 0: at most 8, and
  // as few as measured steps say that pay, down to none.
  int32_t num_draft_tokens = 0;

  // Drafts that a network makes behind one another, 1 to 63: as num_draft_tokens, which is one
  // more. 0: as that says. Where drafts branch, the levels of their trees; needed there.
  int32_t num_steps = 0;

  // Branches, 1 to 16: with more than one, drafts are a tree of at most num_draft_tokens - 1
  // tokens, which must be set. A network goes on from so many at each of its steps, and its most
  // likely tokens are computed; with kNgram so many ways are drafted that the same tokens went on
  // before. 1 with kStandalone.
  int32_t eagle_topk = 1;

  // For measurements with weights that draft nothing well, as random ones: the tokens that a
  // sequence gets from a step on average, from 1 (no draft holds) to num_draft_tokens, whatever the
  // model draws. Texts mean nothing then. Chains only. 0: drafts hold that the model draws.
  double simulated_acceptance = 0;

  // As many drafts as pay, not always the same number.
  [[nodiscard]] bool adapts() const { return num_draft_tokens == 0 && num_steps == 0; }
};

// How metrics are called: by our names, or by those that dashboards made for SGLang look for.
enum class MetricNames { kHeddle, kSglang };

// "heddle", "sglang".
[[nodiscard]] std::string_view to_string(MetricNames names);

// Error: kInvalidArgument, with the names there are.
[[nodiscard]] Result<MetricNames> parse_metric_names(std::string_view text);

// Counters for Prometheus (docs/metrics.md).
struct MetricsOptions {
  bool enabled = true;
  MetricNames names = MetricNames::kHeddle;
  std::string model_name;   // the label of every metric; empty: the folder's name
  int32_t max_tenants = 0;  // tenants with counters of their own, 0 to 64; others count as one
};

// The source of the weights.
enum class LoadFormat {
  kAuto,         // kSafetensors
  kSafetensors,  // the files of the folder
  kDummy,        // seeded random weights; needs only config.json
};

// "auto", "safetensors", "dummy".
[[nodiscard]] std::string_view to_string(LoadFormat format);

// Error: kInvalidArgument, with the names there are.
[[nodiscard]] Result<LoadFormat> parse_load_format(std::string_view name);

// The format of the weights that are not quantised and, on a GPU, of activations.
enum class RunDtype { kAuto /* as stored */, kFloat32, kBfloat16, kFloat16 };

// "auto", "float32", "bfloat16", "float16".
[[nodiscard]] std::string_view to_string(RunDtype dtype);

// Takes "fp32", "bf16", "fp16" and "half", too. Error: kInvalidArgument, with the names there are.
[[nodiscard]] Result<RunDtype> parse_run_dtype(std::string_view name);

// The format of stored keys and values.
enum class KvCacheDtype {
  kAuto,  // FP8 where the checkpoint was calibrated for it and the run is not in float32; else the
          // dtype of the weights
  kFloat32,
  kBfloat16,
  kFloat16,
  kFp8E4m3,  // with the checkpoint's scales
};

// "auto", "float32", "bfloat16", "float16", "fp8_e4m3".
[[nodiscard]] std::string_view to_string(KvCacheDtype dtype);

// Takes "fp32", "bf16", "fp16", "half" and "fp8", too. Error: kInvalidArgument, with the names
// there are.
[[nodiscard]] Result<KvCacheDtype> parse_kv_cache_dtype(std::string_view name);

// Rounding, while they are loaded, of weights that the checkpoint stores unquantised, where that is
// worth it (docs/quantization.md). Or the format that the checkpoint has: it is served as it is
// stored, and loading fails where the checkpoint has another one. kFp8 and kInt8 are both.
enum class Quantization {
  kNone,      // as the checkpoint stores them
  kFp8,       // a scale a row
  kFp8Block,  // a scale a block of 128 x 128
  kInt8,
  kInt4,         // in groups of 128
  kInt4Group64,  // of 64
  kInt4Group32,  // of 32
  kMxfp4,
  kAwq,  // from here on: formats of checkpoints
  kGptq,
  kCompressedTensors,
  kModelOpt,
};

// "none", "fp8", "fp8-block", "int8", "int4", "int4-g64", "int4-g32", "mxfp4", "awq", "gptq",
// "compressed-tensors", "modelopt".
[[nodiscard]] std::string_view to_string(Quantization quantization);

// Takes the names of vLLM's and SGLang's kernels ("awq_marlin", "gptq_marlin") for the formats,
// too. Error: kInvalidArgument, with the names there are.
[[nodiscard]] Result<Quantization> parse_quantization(std::string_view name);

// Kernels that a GPU attends with. The CPU has one.
enum class AttentionBackend {
  kAuto,   // the fastest that GPU, number formats and widths have
  kPlain,  // those of exact mode, for all GPUs, formats and widths
};

// "auto", "plain".
[[nodiscard]] std::string_view to_string(AttentionBackend backend);

// SGLang's names of backends are taken for "auto", and its "torch_native" for "plain". Error:
// kInvalidArgument, with the names there are.
[[nodiscard]] Result<AttentionBackend> parse_attention_backend(std::string_view name);

struct EngineOptions {
  std::filesystem::path
      model_dir;  // a folder in hub layout: config.json, *.safetensors, tokenizer.json
  LoadFormat load_format = LoadFormat::kAuto;
  RunDtype dtype = RunDtype::kAuto;
  KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto;
  Quantization quantization = Quantization::kNone;

  // Slow and segmentation-proof: fp32, recurrent delta rule for every token, fixed-order sums. Any
  // two ways to compute a token give the same bits (docs/numerics.md). Implies dtype float32.
  bool exact = false;

  // Where the model is computed: "cpu"; "cuda" or "cuda:N", a GPU; "auto": the first GPU where the
  // program and the driver have CUDA, the GPU's kernels pass a test and the model fits, else the
  // CPU.
  std::string device = "auto";

  // On a GPU decode steps are captured once and launched as a whole, and steps with prompts of up
  // to so many rows in pieces. True: all kernel by kernel.
  bool disable_cuda_graph = false;
  int64_t piecewise_cuda_graph_max_tokens = 512;

  // For the search of errors in ops and captured steps, on any device: every step proves what its
  // ops read and write, and fails naming the first op that is wrong. Slow.
  bool cuda_graph_debug = false;

  AttentionBackend attention_backend = AttentionBackend::kAuto;

  int32_t num_threads = 0;  // compute threads of the CPU; 0: the machine's physical cores

  int64_t context_length = 0;  // tokens a sequence may have; 0: what the model was made for
  int32_t max_running_requests =
      0;  // sequences in one step; 0: as many as the pools allow, at most 64, on a GPU 256
  std::optional<int64_t> chunked_prefill_tokens;  // prompt tokens of one step; none: 512, on a GPU
                                                  // 8192
  int32_t page_size = 16;                 // tokens of a KV page: a power of two from 1 to 128
  int64_t max_total_tokens = 0;           // size of the KV pool in tokens; 0: from memory_fraction
  int32_t max_queued_requests = 1024;     // waiting requests; one more is refused
  std::optional<double> memory_fraction;  // of the memory free after loading, for the pools; none:
                                          // 0.5, on a GPU 0.9
  std::optional<double> static_memory_fraction;  // instead: of all the device's memory, for weights
                                                 // and pools together
  uint64_t random_seed = 0;       // seeds requests that bring none; 0: from the system
  double watchdog_seconds = 300;  // requests are there and no step has ended for so long, or for
                                  // longer where the steps so far were slow: what the engine was
                                  // doing is logged and the process aborts; 0: never

  SchedulingOptions scheduling;
  CacheOptions cache;
  SpeculativeOptions speculative;
  MetricsOptions metrics;

  bool skip_tokenizer = false;  // token ids in and out only

  // Called on the engine's thread when the engine has stopped for good (Engine::health()) and every
  // request has its last event; must not block. May be empty.
  std::function<void()> on_failure;

  // Called now and then while weights load; may be empty.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_load_progress;
};

}  // namespace heddle
