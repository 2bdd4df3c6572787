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
  kRandom,                // shuffled again in every pass
  kRoutingKey,            // keys with running requests, the most running first
  kHrrn,                  // highest response ratio next: waited work over own work
  kShortestPrefillFirst,  // fewest uncached tokens first
  kFair,                  // the tenant that was served least goes first
  kPriority,              // kFcfs with SchedulingOptions::enable_priority
};

// "fcfs", "lpm", "dfs-weight", "lof", "random", "routing-key", "hrrn", "shortest-prefill-first",
// "fair", "priority".
[[nodiscard]] std::string_view to_string(QueuePolicy policy);

// Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<QueuePolicy> parse_queue_policy(std::string_view name);

// The order of requests, and what happens if not all fit (docs/scheduling.md).
struct SchedulingOptions {
  QueuePolicy policy = QueuePolicy::kFcfs;
  double conservativeness = 1.0;  // scales the reserve for tokens not yet drawn

  bool mixed_batches = true;        // prefill chunks and decoding sequences share a step
  bool overlap = true;              // plan the next step while one runs
  int32_t prefills_per_decode = 1;  // without mixed batches: prefill steps between decode steps; 0:
                                    // always prefill first
  int32_t max_prefill_tokens = 16384;  // new prompt tokens admitted per step
  double target_itl_ms = 0;  // target for the time between tokens of streams: prompt chunks are cut
                             // accordingly, based on measured step times; 0: none

  bool enable_priority = false;
  bool low_values_first = false;               // smaller priority values are more urgent
  std::optional<int64_t> default_priority;     // none: least urgent
  bool reject_priority_when_disabled = false;  // else the field is ignored
  bool preemption = true;                      // running requests give way to more urgent ones
  int64_t preemption_threshold = 10;           // minimum difference in priority
  int32_t max_preemptions = 3;                 // per request; then it is not preempted again
  double preemption_min_run_seconds = 0.2;
  double aging_seconds = 0;  // time in which a waiting request becomes one class more urgent; 0:
                             // never

  double cache_aware_max_wait_seconds = 5;  // lpm and dfs-weight: older requests go first
  int64_t max_queued_tokens = 0;            // waiting prompt tokens; 0: no limit
  double queue_timeout_seconds = 0;         // 0: none
  double running_timeout_seconds = 0;

  // fair: virtual token counters per tenant.
  double fair_cost_input = 1;
  double fair_cost_output = 2;
  double fair_cost_cached = 0.1;
  int32_t tenant_max_running = 0;  // 0: no limit
  int32_t tenant_max_queued = 0;
};

// The rule for keeping snapshots of recurrent states.
enum class SnapshotPolicy {
  kMulti,        // at forks, tails, message boundaries and ends
  kExtraBuffer,  // one per step, at a multiple of the grid, as in other servers
  kNoBuffer,     // at the end of every step, as in other servers; needs page_size 1
};

// "multi", "extra_buffer", "no_buffer".
[[nodiscard]] std::string_view to_string(SnapshotPolicy policy);

// Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<SnapshotPolicy> parse_snapshot_policy(std::string_view name);

// The format of stored snapshots.
enum class StateDtype { kFloat32, kBfloat16, kInt8 };

// "float32", "bfloat16", "int8".
[[nodiscard]] std::string_view to_string(StateDtype dtype);

// Also accepts "fp32" and "bf16". Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<StateDtype> parse_state_dtype(std::string_view name);

// The order in which cached data is evicted.
enum class EvictionPolicy {
  kFlops,  // by the work a state saves per byte, and the time of its last use
  kLru,    // least recently used
};

// "flops", "lru".
[[nodiscard]] std::string_view to_string(EvictionPolicy policy);

// Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<EvictionPolicy> parse_eviction_policy(std::string_view name);

// The prefix cache: data of requests that later ones with the same prefix reuse
// (docs/hybrid-cache.md).
struct CacheOptions {
  bool enabled = true;
  SnapshotPolicy state_snapshots = SnapshotPolicy::kMulti;
  int32_t snapshot_interval = 256;  // tokens, while decoding; a multiple of the grid
  StateDtype state_dtype = StateDtype::kFloat32;
  EvictionPolicy eviction = EvictionPolicy::kFlops;
};

// The source of draft tokens (docs/speculation.md).
enum class DraftAlgorithm {
  kNone,
  kAuto,        // kMtp if the checkpoint has a usable head, else kNone
  kNgram,       // continuations of the same tokens in the request's text or in others
  kMtp,         // the multi-token-prediction head inside the checkpoint
  kEagle,       // a network trained for the model, in a separate folder
  kEagle3,      // like kEagle, reading more of the model's layers
  kStandalone,  // a small model with the same tokenizer, in a separate folder
};

// "none", "auto", "ngram", "mtp", "eagle", "eagle3", "standalone".
[[nodiscard]] std::string_view to_string(DraftAlgorithm algorithm);

// Ignores case; "nextn" is "mtp". Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<DraftAlgorithm> parse_draft_algorithm(std::string_view name);

// Speculative decoding: a step verifies drafts along with the next token and accepts those that the
// model draws. The text stays the same, only the number of steps changes (docs/speculation.md).
struct SpeculativeOptions {
  DraftAlgorithm algorithm = DraftAlgorithm::kAuto;

  // The folder of the network that drafts: needed with kEagle, kEagle3 and kStandalone, may stand
  // in for the checkpoint with kMtp (`heddle export-nextn`).
  std::filesystem::path draft_model_dir;

  // Tokens of one sequence that a step computes, including the next one, 2 to 64. 0: at most 8, and
  // only as many as measured steps show to pay off, possibly none.
  int32_t num_draft_tokens = 0;

  // Consecutive drafts of a network, 1 to 63: num_draft_tokens - 1. 0: derived from that. For
  // trees: their levels; then required.
  int32_t num_steps = 0;

  // Branches, 1 to 16: with more than one, drafts are a tree of at most num_draft_tokens - 1
  // tokens, which must be set. A network extends this many branches per step and computes their
  // most likely tokens; kNgram drafts this many continuations of earlier occurrences. 1 with
  // kStandalone.
  int32_t eagle_topk = 1;

  // For measurements with weights that draft nothing well, as random ones: the tokens that a
  // sequence gets from a step on average, from 1 (no draft holds) to num_draft_tokens, whatever the
  // model draws. Texts mean nothing then. Chains only. 0: drafts hold that the model draws.
  double simulated_acceptance = 0;

  // As many drafts as pay, not always the same number.
  [[nodiscard]] bool adapts() const { return num_draft_tokens == 0 && num_steps == 0; }
};

// Names of metrics: Heddle's, or those that dashboards for SGLang expect.
enum class MetricNames { kHeddle, kSglang };

// "heddle", "sglang".
[[nodiscard]] std::string_view to_string(MetricNames names);

// Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<MetricNames> parse_metric_names(std::string_view text);

// Counters for Prometheus (docs/metrics.md).
struct MetricsOptions {
  bool enabled = true;
  MetricNames names = MetricNames::kHeddle;
  std::string model_name;   // the label of every metric; empty: the folder's name
  int32_t max_tenants = 0;  // tenants with separate counters, 0 to 64; all others share one
};

// The source of the weights.
enum class LoadFormat {
  kAuto,         // kSafetensors
  kSafetensors,  // the files of the folder
  kDummy,        // seeded random weights; needs only config.json
};

// "auto", "safetensors", "dummy".
[[nodiscard]] std::string_view to_string(LoadFormat format);

// Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<LoadFormat> parse_load_format(std::string_view name);

// The dtype of unquantised weights and, on a GPU, of activations.
enum class RunDtype { kAuto /* as stored */, kFloat32, kBfloat16, kFloat16 };

// "auto", "float32", "bfloat16", "float16".
[[nodiscard]] std::string_view to_string(RunDtype dtype);

// Also accepts "fp32", "bf16", "fp16" and "half". Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<RunDtype> parse_run_dtype(std::string_view name);

// The format of stored keys and values.
enum class KvCacheDtype {
  kAuto,  // FP8 if the checkpoint was calibrated for it and the run is not in float32; else the
          // weights' dtype
  kFloat32,
  kBfloat16,
  kFloat16,
  kFp8E4m3,  // with the checkpoint's scales
};

// "auto", "float32", "bfloat16", "float16", "fp8_e4m3".
[[nodiscard]] std::string_view to_string(KvCacheDtype dtype);

// Also accepts "fp32", "bf16", "fp16", "half" and "fp8". Error: kInvalidArgument, listing the
// names.
[[nodiscard]] Result<KvCacheDtype> parse_kv_cache_dtype(std::string_view name);

// Quantises unquantised weights while loading, where that is worth it (docs/quantization.md). Or
// names the checkpoint's format, which is served as stored; loading fails if it has another one.
// kFp8 and kInt8 are both.
enum class Quantization {
  kNone,      // as stored in the checkpoint
  kFp8,       // one scale per row
  kFp8Block,  // one scale per block of 128 x 128
  kInt8,
  kInt4,         // groups of 128
  kInt4Group64,  // groups of 64
  kInt4Group32,  // groups of 32
  kMxfp4,
  kAwq,  // from here on: formats of checkpoints
  kGptq,
  kCompressedTensors,
  kModelOpt,
};

// "none", "fp8", "fp8-block", "int8", "int4", "int4-g64", "int4-g32", "mxfp4", "awq", "gptq",
// "compressed-tensors", "modelopt".
[[nodiscard]] std::string_view to_string(Quantization quantization);

// Also accepts vLLM's and SGLang's kernel names ("awq_marlin", "gptq_marlin"). Error:
// kInvalidArgument, listing the names.
[[nodiscard]] Result<Quantization> parse_quantization(std::string_view name);

// Attention kernels of a GPU. The CPU has one kind.
enum class AttentionBackend {
  kAuto,   // the fastest for the GPU, number formats and widths
  kPlain,  // kernels of exact mode, for all GPUs, formats and widths
};

// "auto", "plain".
[[nodiscard]] std::string_view to_string(AttentionBackend backend);

// SGLang's backend names mean "auto", except "torch_native", which means "plain". Error:
// kInvalidArgument, listing the names.
[[nodiscard]] Result<AttentionBackend> parse_attention_backend(std::string_view name);

struct EngineOptions {
  std::filesystem::path
      model_dir;  // a folder in hub layout: config.json, *.safetensors, tokenizer.json
  LoadFormat load_format = LoadFormat::kAuto;
  RunDtype dtype = RunDtype::kAuto;
  KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto;
  Quantization quantization = Quantization::kNone;

  // Slow and independent of chunking: fp32, recurrent delta rule for every token, fixed-order sums.
  // Any two ways to compute a token give the same bits (docs/numerics.md). Implies dtype float32.
  bool exact = false;

  // Device for the model: "cpu"; "cuda" or "cuda:N", a GPU; "auto": the first GPU if program and
  // driver support CUDA, its kernels pass a test and the model fits, else the CPU.
  std::string device = "auto";

  // True: launch kernels one by one. Otherwise a GPU captures decode steps as CUDA graphs, and
  // steps with prompts of up to piecewise_cuda_graph_max_tokens rows in pieces.
  bool disable_cuda_graph = false;
  int64_t piecewise_cuda_graph_max_tokens = 512;

  // To find errors in ops and captured steps, on any device: checks what the ops of every step read
  // and write, and fails naming the first wrong op. Slow.
  bool cuda_graph_debug = false;

  AttentionBackend attention_backend = AttentionBackend::kAuto;

  int32_t num_threads = 0;  // compute threads of the CPU; 0: the machine's physical cores

  int32_t num_ranks = 1;  // ranks that share the model, and the threads: on the CPU only, without a
                          // network that drafts
  // A rank that waits longer for another one in a step ends the engine; 0: never.
  double collective_timeout_seconds = 20;

  int64_t context_length = 0;  // most tokens of a sequence; 0: the model's limit
  int32_t max_running_requests =
      0;  // sequences in one step; 0: as many as the pools allow, at most 64, on a GPU 256
  std::optional<int64_t> chunked_prefill_tokens;  // prompt tokens of one step; none: 512, on a GPU
                                                  // 8192
  int32_t page_size = 16;                 // tokens of a KV page: a power of two from 1 to 128
  int64_t max_total_tokens = 0;           // size of the KV pool in tokens; 0: from memory_fraction
  int32_t max_queued_requests = 1024;     // waiting requests; further ones are refused
  std::optional<double> memory_fraction;  // share of the memory free after loading that the pools
                                          // get; none: 0.5, on a GPU 0.9
  std::optional<double> static_memory_fraction;  // replaces memory_fraction: share of the device's
                                                 // memory for weights and pools together
  uint64_t random_seed = 0;       // seed for requests without one; 0: from the system
  double watchdog_seconds = 300;  // aborts the process, after logging the engine's state, if
                                  // requests wait and no step has ended for this long, or longer if
                                  // earlier steps were slow; 0: never

  SchedulingOptions scheduling;
  CacheOptions cache;
  SpeculativeOptions speculative;
  MetricsOptions metrics;

  bool skip_tokenizer = false;  // token ids in and out only

  // Called on the engine's thread after a permanent failure (Engine::health()), when every request
  // has its last event; must not block. May be empty.
  std::function<void()> on_failure;

  // Called from time to time while weights load; may be empty.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_load_progress;
};

}  // namespace heddle
