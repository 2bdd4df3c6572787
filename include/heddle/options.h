// SPDX-License-Identifier: Apache-2.0
// EngineOptions: the options of an engine. Every field has a default that suits most machines.
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
  kDfsWeight,             // requests that share a part of the prefix tree run together
  kLof,                   // longest output first, by max_new_tokens
  kRandom,                // random order, shuffled again in every scheduling pass
  kRoutingKey,            // by Request::routing_key: the key with the most running requests first
  kHrrn,                  // highest response ratio first: (waited work) over (the request's work)
  kShortestPrefillFirst,  // fewest uncached prompt tokens first
  kFair,                  // the least served tenant first
  kPriority,              // kFcfs with SchedulingOptions::enable_priority switched on
};

// Names of the policies: "fcfs", "lpm", "dfs-weight", "lof", "random", "routing-key", "hrrn",
// "shortest-prefill-first", "fair", "priority".
[[nodiscard]] std::string_view to_string(QueuePolicy policy);

// Reads the name of a policy. Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<QueuePolicy> parse_queue_policy(std::string_view name);

// The order of requests, and what happens if not all fit (docs/scheduling.md).
struct SchedulingOptions {
  QueuePolicy policy = QueuePolicy::kFcfs;
  double conservativeness = 1.0;  // scales the KV memory reserved for tokens not yet drawn

  bool mixed_batches = true;           // prefill chunks and decoding sequences share a step
  bool overlap = true;                 // the host plans the next step while the device computes one
  int32_t prefills_per_decode = 1;     // without mixed batches: prefill steps between two decode
                                       // steps; 0: prefill always goes first
  int32_t max_prefill_tokens = 16384;  // most new prompt tokens that one step admits
  // Target for the time between two tokens of a stream, ms: prompt chunks are cut to meet it, based
  // on measured step times; 0: no target.
  double target_itl_ms = 0;

  bool enable_priority = false;
  bool low_values_first = false;  // true: smaller priority values are more urgent
  // Priority of requests that name none; none: least urgent.
  std::optional<int64_t> default_priority;
  // Without priorities, true: refuse requests that name one; false: ignore it.
  bool reject_priority_when_disabled = false;
  bool preemption = true;             // true: a more urgent request may retract running ones
  int64_t preemption_threshold = 10;  // least difference in priority for preemption
  int32_t max_preemptions = 3;  // a request that was preempted this often is not preempted again
  double preemption_min_run_seconds = 0.2;
  // Waiting time, in seconds, after which a request becomes one class more urgent; 0: never.
  double aging_seconds = 0;

  // Policies lpm and dfs-weight: seconds after which a waiting request goes first.
  double cache_aware_max_wait_seconds = 5;
  int64_t max_queued_tokens = 0;     // most prompt tokens of all waiting requests; 0: no limit
  double queue_timeout_seconds = 0;  // most seconds that a request may wait; 0: no limit
  double running_timeout_seconds = 0;

  // Policy fair: cost of a computed prompt token, an output token and a cached prompt token in the
  // virtual token counter of a tenant.
  double fair_cost_input = 1;
  double fair_cost_output = 2;
  double fair_cost_cached = 0.1;
  int32_t tenant_max_running = 0;  // most running requests of a tenant; 0: no limit
  int32_t tenant_max_queued = 0;
};

// The rule for keeping snapshots of recurrent states.
enum class SnapshotPolicy {
  kMulti,  // snapshots at forks, at the last grid points of prompts, at message boundaries and at
           // ends
  kExtraBuffer,  // one snapshot per step, at a multiple of the grid, as in other servers
  kNoBuffer,     // a snapshot at the end of every step, as in other servers; needs page_size 1
};

// Names of the policies: "multi", "extra_buffer", "no_buffer".
[[nodiscard]] std::string_view to_string(SnapshotPolicy policy);

// Reads the name of a policy. Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<SnapshotPolicy> parse_snapshot_policy(std::string_view name);

// The format of stored snapshots.
enum class StateDtype { kFloat32, kBfloat16, kInt8 };

// Names of the formats: "float32", "bfloat16", "int8".
[[nodiscard]] std::string_view to_string(StateDtype dtype);

// Reads the name of a format; "fp32" and "bf16" also count. Error: kInvalidArgument, listing the
// names.
[[nodiscard]] Result<StateDtype> parse_state_dtype(std::string_view name);

// The order in which cached data is evicted.
enum class EvictionPolicy {
  kFlops,  // by the work that a state saves per byte, and by the time of its last use
  kLru,    // the least recently used first
};

// Names of the policies: "flops", "lru".
[[nodiscard]] std::string_view to_string(EvictionPolicy policy);

// Reads the name of a policy. Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<EvictionPolicy> parse_eviction_policy(std::string_view name);

// The prefix cache: data of requests that later ones with the same prefix reuse
// (docs/hybrid-cache.md).
struct CacheOptions {
  bool enabled = true;
  SnapshotPolicy state_snapshots = SnapshotPolicy::kMulti;
  // Distance of snapshots while decoding, in tokens; a multiple of the grid.
  int32_t snapshot_interval = 256;
  StateDtype state_dtype = StateDtype::kFloat32;
  EvictionPolicy eviction = EvictionPolicy::kFlops;
};

// The source of draft tokens (docs/speculation.md).
enum class DraftAlgorithm {
  kNone,
  kAuto,   // kMtp if the checkpoint has a usable prediction head, else kNone
  kNgram,  // drafts copied from where the same tokens occurred before, in this request's text or in
           // others
  kMtp,    // the multi-token-prediction head inside the checkpoint
  kEagle,  // a network trained to draft for the model, in a folder of its own
  kEagle3,      // like kEagle, but reads hidden vectors of more of the model's layers
  kStandalone,  // a small model with the same tokenizer, in a folder of its own
};

// Names of the algorithms: "none", "auto", "ngram", "mtp", "eagle", "eagle3", "standalone".
[[nodiscard]] std::string_view to_string(DraftAlgorithm algorithm);

// Reads the name of an algorithm in any case; "nextn" is "mtp". Error: kInvalidArgument, listing
// the names.
[[nodiscard]] Result<DraftAlgorithm> parse_draft_algorithm(std::string_view name);

// Speculative decoding: a step verifies drafts together with the next token and accepts the drafts
// that equal the model's draws. Only the number of steps changes, not the text
// (docs/speculation.md).
struct SpeculativeOptions {
  DraftAlgorithm algorithm = DraftAlgorithm::kAuto;

  // The folder of the draft network. kEagle, kEagle3 and kStandalone need it; with kMtp it may
  // replace the prediction head of the checkpoint (`heddle export-nextn`).
  std::filesystem::path draft_model_dir;

  // Tokens of one sequence that a step computes, including the next one, 2 to 64. 0: at most 8, and
  // only as many as measured steps show to pay off, possibly none.
  int32_t num_draft_tokens = 0;

  // Consecutive drafts of a draft network, 1 to 63: num_draft_tokens - 1. 0: derived from
  // num_draft_tokens. For trees: the number of levels, which must be set.
  int32_t num_steps = 0;

  // Branches of draft trees, 1 to 16. 1: drafts are a chain. More: they are a tree of at most
  // num_draft_tokens - 1 tokens, which must be set. A network extends this many branches per step
  // and computes their most likely tokens; kNgram drafts this many continuations of earlier
  // occurrences. kStandalone needs 1.
  int32_t eagle_topk = 1;

  // For measurements with draft weights that predict nothing, such as random ones: the average
  // number of tokens that a sequence gets from a step, from 1 (no draft is accepted) to
  // num_draft_tokens, whatever the model draws. The texts are then meaningless. Chains only. 0:
  // drafts are accepted if they equal the model's draws.
  double simulated_acceptance = 0;

  // Whether the number of drafts adapts to what pays off, instead of being constant.
  [[nodiscard]] bool adapts() const { return num_draft_tokens == 0 && num_steps == 0; }
};

// Names of metrics: Heddle's, or those that dashboards for SGLang expect.
enum class MetricNames { kHeddle, kSglang };

// Names of the naming schemes: "heddle", "sglang".
[[nodiscard]] std::string_view to_string(MetricNames names);

// Reads the name of a naming scheme. Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<MetricNames> parse_metric_names(std::string_view text);

// Counters for Prometheus (docs/metrics.md).
struct MetricsOptions {
  bool enabled = true;
  MetricNames names = MetricNames::kHeddle;
  // Value of the label model_name of every metric; empty: the folder's name.
  std::string model_name;
  // Number of tenants with counters of their own, 0 to 64; all others share one set.
  int32_t max_tenants = 0;
};

// The source of the weights.
enum class LoadFormat {
  kAuto,         // as kSafetensors
  kSafetensors,  // the weight files of the folder
  kDummy,        // seeded random weights; needs only config.json
};

// Names of the sources: "auto", "safetensors", "dummy".
[[nodiscard]] std::string_view to_string(LoadFormat format);

// Reads the name of a source. Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<LoadFormat> parse_load_format(std::string_view name);

// The dtype of unquantised weights and, on a GPU, of activations.
enum class RunDtype { kAuto /* as stored */, kFloat32, kBfloat16, kFloat16 };

// Names of the dtypes: "auto", "float32", "bfloat16", "float16".
[[nodiscard]] std::string_view to_string(RunDtype dtype);

// Reads the name of a dtype; "fp32", "bf16", "fp16" and "half" also count. Error: kInvalidArgument,
// listing the names.
[[nodiscard]] Result<RunDtype> parse_run_dtype(std::string_view name);

// The format of stored keys and values.
enum class KvCacheDtype {
  kAuto,  // FP8 if the checkpoint was calibrated for it and the run is not in float32; else the
          // dtype of the weights
  kFloat32,
  kBfloat16,
  kFloat16,
  kFp8E4m3,  // FP8 E4M3 with the scales of the checkpoint
};

// Names of the dtypes: "auto", "float32", "bfloat16", "float16", "fp8_e4m3".
[[nodiscard]] std::string_view to_string(KvCacheDtype dtype);

// Reads the name of a dtype; "fp32", "bf16", "fp16", "half" and "fp8" also count. Error:
// kInvalidArgument, listing the names.
[[nodiscard]] Result<KvCacheDtype> parse_kv_cache_dtype(std::string_view name);

// How weights are quantised. The first names quantise unquantised weights while loading, where that
// is worth it (docs/quantization.md). The last ones name the checkpoint's format, which is served
// as stored; loading fails if it has another one. kFp8 and kInt8 can mean either.
enum class Quantization {
  kNone,      // weights are served as stored in the checkpoint
  kFp8,       // FP8, one scale per row
  kFp8Block,  // FP8, one scale per block of 128 x 128
  kInt8,
  kInt4,         // 4 bits, one scale per 128 weights
  kInt4Group64,  // 4 bits, one scale per 64 weights
  kInt4Group32,  // 4 bits, one scale per 32 weights
  kMxfp4,
  kAwq,  // from here on the names are formats of checkpoints
  kGptq,
  kCompressedTensors,
  kModelOpt,
};

// Names of the formats: "none", "fp8", "fp8-block", "int8", "int4", "int4-g64", "int4-g32",
// "mxfp4", "awq", "gptq", "compressed-tensors", "modelopt".
[[nodiscard]] std::string_view to_string(Quantization quantization);

// Reads the name of a format; vLLM's and SGLang's kernel names ("awq_marlin", "gptq_marlin") also
// count. Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<Quantization> parse_quantization(std::string_view name);

// Attention kernels of a GPU. The CPU has one kind.
enum class AttentionBackend {
  kAuto,   // the fastest kernels for the GPU, the number formats and the widths
  kPlain,  // the kernels of exact mode, which serve all GPUs, formats and widths
};

// Names of the backends: "auto", "plain".
[[nodiscard]] std::string_view to_string(AttentionBackend backend);

// Reads the name of a backend. SGLang's names mean "auto", except "torch_native", which means
// "plain". Error: kInvalidArgument, listing the names.
[[nodiscard]] Result<AttentionBackend> parse_attention_backend(std::string_view name);

// LoRA adapters next to the model's weights (docs/adapters.md): on the CPU only, without ranks.
struct AdapterOptions {
  int32_t num_slots = 0;  // adapters in memory at once; 0: none can be loaded
  int32_t max_rank = 16;  // highest rank of an adapter
};

struct EngineOptions {
  std::filesystem::path
      model_dir;  // the model's folder in hub layout: config.json, *.safetensors, tokenizer.json
  LoadFormat load_format = LoadFormat::kAuto;
  RunDtype dtype = RunDtype::kAuto;
  KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto;
  Quantization quantization = Quantization::kNone;

  // Exact mode, slow: float32 throughout, the recurrent delta rule for every token, sums in a fixed
  // order. Any two ways to compute a token then give the same bits (docs/numerics.md), however
  // prompts are cut into chunks. Implies dtype float32.
  bool exact = false;

  // The model's device. "cpu"; "cuda" or "cuda:N", a GPU; "auto": the first GPU if program and
  // driver support CUDA, its kernels pass a test and the model fits, else the CPU.
  std::string device = "auto";

  // True: launch kernels one by one. False: a GPU captures decode steps as CUDA graphs, and steps
  // with prompts of up to piecewise_cuda_graph_max_tokens rows as one graph per segment.
  bool disable_cuda_graph = false;
  int64_t piecewise_cuda_graph_max_tokens = 512;

  // Debug aid for ops and captured steps, on any device: checks what the ops of every step read and
  // write, and fails naming the first wrong op. Slow.
  bool cuda_graph_debug = false;

  AttentionBackend attention_backend = AttentionBackend::kAuto;

  int32_t num_threads = 0;  // compute threads of the CPU; 0: one per physical core

  int32_t num_ranks = 1;  // ranks that share the model, and the threads: on the CPU only, without a
                          // network that drafts
  // A rank that waits longer for another one in a step ends the engine; 0: never.
  double collective_timeout_seconds = 20;

  int64_t context_length = 0;  // most tokens of a sequence; 0: the model's limit
  int32_t max_running_requests =
      0;  // most sequences in one step; 0: as many as the pools allow, at most 64, on a GPU 256
  // Most prompt tokens of one step; none: 512, on a GPU 8192.
  std::optional<int64_t> chunked_prefill_tokens;
  int32_t page_size = 16;                 // tokens per KV page: a power of two from 1 to 128
  int64_t max_total_tokens = 0;           // size of the KV pool in tokens; 0: from memory_fraction
  int32_t max_queued_requests = 1024;     // most waiting requests; further ones are refused
  std::optional<double> memory_fraction;  // share of the memory that is free after loading that the
                                          // pools may use; none: 0.5, on a GPU 0.9
  std::optional<double> static_memory_fraction;  // share of the device's memory for weights and
                                                 // pools together, instead of memory_fraction
  uint64_t random_seed = 0;       // seed for requests without one; 0: from the system
  double watchdog_seconds = 300;  // aborts the process, after logging the engine's state, if
                                  // requests wait and no step has ended for this long, or longer if
                                  // earlier steps were slow; 0: never

  SchedulingOptions scheduling;
  CacheOptions cache;
  SpeculativeOptions speculative;
  AdapterOptions adapters;
  MetricsOptions metrics;

  bool skip_tokenizer = false;  // no tokenizer is loaded: requests and answers are token ids only

  // Called on the engine's thread after a permanent failure (Engine::health()), when every request
  // has had its last event. Must not block. May be empty.
  std::function<void()> on_failure;

  // Called from time to time while weights load; may be empty.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_load_progress;
};

}  // namespace heddle
