// SPDX-License-Identifier: Apache-2.0
// Engine: one loaded model that answers requests. Start here.
//
//   HEDDLE_ASSIGN_OR_RETURN(auto engine, Engine::create({.model_dir = "models/heddle-tiny"}));
//   HEDDLE_RETURN_IF_ERROR(engine->submit(std::move(request), [](const RequestEvent& event) { ...
//   }));
//
// Threading: submit(), cancel() and the accessors are thread-safe. Events arrive on the engine's
//            own thread, in order, and the last one carries `finish`; the callback must not block
//            and must not call into the engine, other than submit() and cancel(). Lifetime: the
//            destructor aborts what still runs (each request gets its final event) and joins.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/adapter.h>
#include <heddle/inspection.h>
#include <heddle/options.h>
#include <heddle/request.h>
#include <heddle/status.h>

namespace heddle {

namespace tokenizer {
class Tokenizer;
}  // namespace tokenizer

// Properties of the loaded model.
struct ModelInfo {
  std::string name;          // name of the model's folder
  std::string architecture;  // architecture in config.json, as "Qwen3NextForCausalLM"
  std::string dtype;         // dtype of the large weights, as "bfloat16"
  std::string file_format = "safetensors";  // format of the weight files, "safetensors" or "gguf"
  std::string family = {};        // architecture name in a GGUF file; empty: as `architecture`
  std::string quantization = {};  // weight format of a GGUF file, as "Q4_K_M"; empty: as `dtype`
  std::string device;             // device in words, as "cpu, 2 threads, AVX3"
  std::string device_reason;  // why this device was chosen: "asked for", "CUDA is not used: ..."
  int64_t num_parameters = 0;
  int64_t vocab_size = 0;
  int64_t context_length = 0;  // most tokens of a sequence, prompt and output together
  std::vector<TokenId> eos_token_ids;
  SamplingParams default_sampling;  // sampling defaults of generation_config.json
};

// The use of memory, in bytes; printed when the engine starts.
struct MemoryPlan {
  int64_t weights_bytes =
      0;  // resident weights; weights used in place from the mapped file are not counted
  int64_t mapped_weights_bytes = 0;
  int64_t kv_pool_bytes = 0;
  int64_t window_pool_bytes = 0;  // KV of sliding-window layers; 0: all layers use the KV pool
  int64_t state_pool_bytes = 0;
  int64_t snapshot_pool_bytes = 0;  // snapshot pool if snapshots and states differ in format
  int64_t adapter_bytes = 0;        // memory for AdapterOptions::num_slots adapters
  int64_t draft_state_bytes = 0;    // states after drafts: one for each draft that a step verifies
  int64_t shared_pool_bytes = 0;    // limit for the KV, state and snapshot pools together when they
                                    // have more ids than memory; 0: no shared limit
  int64_t activation_bytes = 0;     // memory for the activations of a step and for workspaces
  int64_t device_bytes = 0;  // GPU: drop in free memory during all these allocations, as the driver
                             // reports it; includes the CUDA context and other programs
  int64_t kv_tokens = 0;     // capacity of the KV pool in tokens
  int64_t window_tokens = 0;   // capacity of the window pool in tokens
  std::string kv_dtype;        // dtype of keys and values
  int64_t state_slots = 0;     // number of sequences whose recurrent state fits
  int64_t snapshot_slots = 0;  // number of snapshots that fit; 0: snapshots share the state slots
  std::string snapshot_dtype;  // format of snapshots (CacheOptions::state_dtype)
  int32_t page_size = 0;
  int32_t max_running_requests = 0;

  [[nodiscard]] std::string to_string() const;
};

// Counters and gauges at one moment.
struct EngineStats {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  int64_t waiting_tokens = 0;  // tokens of waiting requests that are not known to be cached
  int64_t kv_tokens_used = 0;
  int64_t state_slots_used = 0;
  int64_t steps = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  // Number of decode steps of all sequences: sequences that decoded, summed over all steps.
  int64_t decode_steps = 0;
  int64_t draft_tokens = 0;              // drafts that steps verified, since the start
  int64_t accepted_drafts = 0;           // drafts that were accepted, since the start
  double decode_tokens_per_second = 0;   // rate over the last 40 decode steps; 0: there were fewer
  double prefill_tokens_per_second = 0;  // recent average rate; 0: not known yet
  double last_step_seconds_ago = 0;      // time since the last step ended; 0: idle or paused
  double stuck_after_seconds = 0;  // a longer last_step_seconds_ago suggests a hang; derived from
                                   // the steps in flight and recent step times
  bool paused = false;
};

// One step of the engine, for profiles. Times come from the engine's clock; only differences
// between them are meaningful.
struct StepRecord {
  int64_t number = 0;           // number of the step, counted from the engine's start
  double plan_seconds = 0;      // time that the host needed to plan the step
  double launched_seconds = 0;  // when the step was launched
  double seconds = 0;           // duration of the step's computation
  double end_seconds = 0;       // when the step ended
  int64_t prefill_tokens = 0;   // prompt tokens that the step computed
  int64_t cached_tokens = 0;    // cached prompt tokens of the sequences that start with the step
  int64_t new_sequences = 0;
  int64_t decode_sequences = 0;  // sequences that decode in the step
  int64_t num_running = 0;       // sequences that run after the step
  int64_t num_waiting = 0;
};

inline constexpr int64_t kMaxRecordedSteps = 100000;

// How a pause treats the requests that run or wait.
enum class PauseMode {
  kAbort,    // requests end with FinishReason::kAbort
  kRetract,  // requests return to the queue and release their memory, so that the cache can be
             // cleared
  kInPlace,  // requests stay in the batch and keep their memory
};

// New weights for the loaded model, and what happens to requests and the cache.
struct WeightUpdate {
  std::filesystem::path model_dir;  // folder of another checkpoint of the same model, in the same
                                    // format
  LoadFormat load_format = LoadFormat::kAuto;
  bool abort_all_requests = false;  // true: abort all requests with FinishReason::kAbort; false:
                                    // wait for them
  bool flush_cache = true;   // false: keep the KV and states that the old weights computed; new and
                             // paused requests continue from them
  bool pause_after = false;  // true: after the update, pause(PauseMode::kInPlace)
};

// The outcome of an update of the weights.
struct WeightsUpdated {
  int64_t num_paused_requests = 0;  // paused requests that continue with the new weights
  int64_t num_weight_updates = 0;   // updates since the start, including this one
};

class Engine {
 public:
  // The callback owns the event and may move out of it. Callbacks that only read take a const
  // reference.
  using EventCallback = std::function<void(RequestEvent&&)>;

  // Loads the model and starts the engine thread. Errors name the file, tensor or option at fault.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options);

  virtual ~Engine() = default;

  // Queues a request. Errors (nothing is queued, `on_event` is not called): kInvalidArgument for a
  // bad field or a prompt that does not fit the context, kResourceExhausted when the queue is full,
  // kUnavailable while shutting down. Some limits can only be checked by the engine thread; their
  // kResourceExhausted arrives as the final event instead. These are the limits of waiting tokens
  // and of a tenant's requests, and, with priorities, a queue full of requests that are at least as
  // urgent.
  virtual Status submit(Request request, EventCallback on_event) = 0;

  using BatchCallback = std::function<void(size_t index, RequestEvent&&)>;

  // Queues several requests or none: if one is refused, here or in its final event, all are refused
  // before any of them runs. Events carry the index of their request. Errors: those of submit(),
  // and kInvalidArgument for more requests than an idle engine accepts. With priorities, a more
  // urgent request may still displace a queued one.
  virtual Status submit_all(std::vector<Request> requests, BatchCallback on_event) = 0;

  // The error with which submit_all() refuses this number of requests regardless of load; callers
  // check it before they build the requests.
  [[nodiscard]] virtual Status check_call_size(size_t num_requests) const = 0;

  // Ends a request with FinishReason::kAbort; an unknown or finished id is ignored.
  virtual void cancel(const std::string& request_id) = 0;

  // Refuses new requests and waits for the running and queued ones, at most `timeout_seconds`; then
  // aborts the rest. Returns the number of aborted requests.
  virtual int64_t drain(double timeout_seconds) = 0;

  // The options in effect: every "auto" and every 0 that means "choose" is replaced by the choice,
  // and max_total_tokens is the capacity of the KV pool. on_load_progress is empty.
  [[nodiscard]] virtual const EngineOptions& options() const = 0;

  [[nodiscard]] virtual const ModelInfo& model_info() const = 0;
  [[nodiscard]] virtual const MemoryPlan& memory_plan() const = 0;
  [[nodiscard]] virtual EngineStats stats() const = 0;

  // The counters since the start, as Prometheus reads them; "" when metrics are off.
  [[nodiscard]] virtual std::string metrics_text() const { return {}; }

  // Drops every cached token as soon as nothing runs or waits, or nothing runs and the engine is
  // paused. Calls `on_done` exactly once, on the engine's thread or before this returns; it must
  // not block. Errors: kDeadlineExceeded, naming the requests left, after `timeout_seconds`;
  // kResourceExhausted when too many callers wait already; kUnavailable when the engine ends first.
  virtual void clear_cache(double timeout_seconds, std::function<void(Status)> on_done) = 0;

  // Stops computing once the steps in flight are done. New requests wait; limits on the queue and
  // on time still apply. If the engine is already paused, its requests are treated as `mode` says.
  // `on_done`: see clear_cache(), but without a timeout.
  virtual void pause(PauseMode mode, std::function<void(Status)> on_done) = 0;

  // Continues after pause(), as drain() does. Does nothing if the engine is not paused.
  virtual void resume(std::function<void(Status)> on_done) = 0;

  // Replaces the weights with those of another folder. They are loaded next to the weights in use
  // while requests run. New requests then wait until all earlier ones have ended with the old
  // weights. A paused engine swaps at once; requests that it kept continue with the new weights,
  // recomputed from their first token unless the cache is kept. Only weights are read: tokenizer,
  // sampling and stop tokens stay. `on_done` is called once, as in clear_cache(). Errors, after
  // which nothing has changed: kInvalidArgument, kNotFound, kDataLoss, kResourceExhausted and
  // kUnimplemented, naming the folder and the problem; kInvalidArgument if the engine is exact and
  // the cache is to be kept; kResourceExhausted during another update; kUnavailable when the engine
  // ends first.
  virtual void update_weights(WeightUpdate update,
                              std::function<void(Result<WeightsUpdated>)> on_done) = 0;

  // Reads a LoRA adapter in the form of PEFT for requests to name (Request::adapter). Takes as long
  // as reading the files; requests run meanwhile. Errors, naming the folder, module or tensor:
  // kNotFound, kDataLoss; kInvalidArgument if the adapter does not fit the model or has too high a
  // rank; kUnimplemented, with the remedy, for kinds of adapters that can only be merged into the
  // weights, and for engines that take none; kResourceExhausted if no slot is free.
  virtual Result<std::shared_ptr<const Adapter>> load_adapter(const std::filesystem::path& folder) {
    (void)folder;
    return unimplemented("this engine takes no adapters");
  }

  using StepsCallback = std::function<void(std::vector<StepRecord> steps)>;

  // Records the steps that end from now on. `on_done` is called once with the records: after
  // `max_steps`, on the engine's thread, where it must not block, or from stop_recording(). It is
  // not called if the engine ends first. Error: kInvalidArgument during a recording, or for a
  // number outside 1 to kMaxRecordedSteps.
  virtual Status record_steps(int64_t max_steps, StepsCallback on_done) = 0;

  // Ends a recording. Error: kInvalidArgument when there is none.
  virtual Status stop_recording() = 0;

  // Test aid: delays each step's launch by 0 to 60 s. Messages that arrive during the delay,
  // including cancellations, take effect after it.
  virtual void set_step_delay(double seconds) = 0;

  // Copies the state of the engine between two steps, without stopping it. Calls `on_done` exactly
  // once, on the engine's thread or before this returns; it must not block. Errors:
  // kResourceExhausted when too many callers wait already or memory for the copy is short;
  // kUnavailable when the engine ends first.
  virtual void inspect(InspectionOptions options,
                       std::function<void(Result<Inspection>)> on_done) = 0;

  // OK, or why the engine stopped (a step failed, the device is lost). Then submit() is refused.
  [[nodiscard]] virtual Status health() const { return {}; }

  // Null when the engine was created with skip_tokenizer.
  [[nodiscard]] virtual const tokenizer::Tokenizer* tokenizer() const = 0;

  // Converts a text to token ids for Request::prompt, with the tokens that the model puts before
  // every text; marks like <|im_end|> become tokens. Thread-safe. Error: kInvalidArgument without a
  // tokenizer, or for a text of more than 1 GiB.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text) const;
};

}  // namespace heddle
