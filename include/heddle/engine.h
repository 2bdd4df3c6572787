// SPDX-License-Identifier: Apache-2.0
// Engine: one loaded model that answers requests. Start here.
//
//   HEDDLE_ASSIGN_OR_RETURN(auto engine, Engine::create({.model_dir = "models/heddle-tiny"}));
//   HEDDLE_RETURN_IF_ERROR(engine->submit(std::move(request), [](const RequestEvent& event) { ...
//   }));
//
// Threading: submit(), cancel() and the accessors are thread-safe. Events arrive on the engine's
// own thread, in order, and the last one carries `finish`; the callback must not block and must not
// call into the engine, other than submit() and cancel(). Lifetime: the destructor aborts what
// still runs (each request gets its final event) and joins.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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
  std::string name;                         // the folder's name
  std::string architecture;                 // "Qwen3NextForCausalLM"
  std::string dtype;                        // of the large weights
  std::string file_format = "safetensors";  // or "gguf"
  std::string family = {};        // as a GGUF file names its architecture; empty: `architecture`
  std::string quantization = {};  // of a GGUF file's weights, "Q4_K_M"; empty: `dtype`
  std::string device;             // "cpu, 2 threads, AVX3"
  std::string device_reason;      // why this one: "asked for", "CUDA is not used: ..."
  int64_t num_parameters = 0;
  int64_t vocab_size = 0;
  int64_t context_length = 0;  // prompt and output together
  std::vector<TokenId> eos_token_ids;
  SamplingParams default_sampling;  // from generation_config.json
};

// The use of memory, in bytes; printed when the engine starts.
struct MemoryPlan {
  int64_t weights_bytes =
      0;  // resident copies; weights used in place from the file are not counted
  int64_t mapped_weights_bytes = 0;
  int64_t kv_pool_bytes = 0;
  int64_t window_pool_bytes =
      0;  // of layers that slide where others do not; 0: all are in the KV pool
  int64_t state_pool_bytes = 0;
  int64_t snapshot_pool_bytes = 0;  // cached states that are stored otherwise than running ones
  int64_t draft_state_bytes = 0;    // a state for each draft that a step verifies
  int64_t shared_pool_bytes = 0;    // what the pools may use at once, where they have more ids than
                                    // memory; 0: all may be full
  int64_t activation_bytes = 0;     // the step arena and workspaces
  int64_t device_bytes = 0;         // of a GPU: free memory that went while all this was allocated,
                                    // as its driver counts, context and other programs included
  int64_t kv_tokens = 0;            // capacity of the KV pool
  int64_t window_tokens = 0;        // of the window pool
  std::string kv_dtype;             // what it stores keys and values in
  int64_t state_slots = 0;          // sequences whose recurrent state fits
  int64_t snapshot_slots = 0;       // likewise, cached ones apart; 0: they share the state slots
  std::string snapshot_dtype;       // CacheOptions::state_dtype
  int32_t page_size = 0;
  int32_t max_running_requests = 0;

  [[nodiscard]] std::string to_string() const;
};

// A moment's counters.
struct EngineStats {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  int64_t waiting_tokens = 0;  // of those that wait, as far as they are not known to be cached
  int64_t kv_tokens_used = 0;
  int64_t state_slots_used = 0;
  int64_t steps = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t decode_steps = 0;     // of all sequences, each step counted for each that decoded in it
  int64_t draft_tokens = 0;     // that steps verified
  int64_t accepted_drafts = 0;  // of these
  double decode_tokens_per_second = 0;   // of the last 40 steps that decoded; 0 until there were
  double prefill_tokens_per_second = 0;  // of late; 0 until it is known
  double last_step_seconds_ago = 0;  // time since a step ended; 0 while nothing waits or runs, or
                                     // the engine is paused
  double stuck_after_seconds = 0;    // more than this is a sign of something wrong, judged by the
                                     // steps in flight and the pace of those that have ended
  bool paused = false;
};

// One step of the engine, for profiles. Times are of the engine's clock, which only differences of
// are meant.
struct StepRecord {
  int64_t number = 0;           // since the start
  double plan_seconds = 0;      // how long the host took to plan it
  double launched_seconds = 0;  // when it was launched
  double seconds = 0;           // how long it was computed
  double end_seconds = 0;       // when it had ended
  int64_t prefill_tokens = 0;   // prompt tokens computed
  int64_t cached_tokens = 0;    // prompt tokens that its new sequences found in the cache
  int64_t new_sequences = 0;
  int64_t decode_sequences = 0;  // a token each
  int64_t num_running = 0;       // sequences after it
  int64_t num_waiting = 0;
};

inline constexpr int64_t kMaxRecordedSteps = 100000;

// How a pause treats the requests that run or wait.
enum class PauseMode {
  kAbort,    // they end with FinishReason::kAbort
  kRetract,  // they wait and own no memory: the cache can be cleared
  kInPlace,  // they stay where they are and keep their memory
};

// The weights that take the place of those in use, and what becomes of requests.
struct WeightUpdate {
  std::filesystem::path model_dir;  // of another checkpoint of the same model, stored alike
  LoadFormat load_format = LoadFormat::kAuto;
  bool abort_all_requests = false;  // what runs or waits ends with FinishReason::kAbort; otherwise
                                    // it is waited for
  bool flush_cache = true;   // false: the cache keeps what the old weights computed, and requests
                             // that find it there, or that a pause has kept, continue from it
  bool pause_after = false;  // as pause(PauseMode::kInPlace)
};

// The outcome of an update.
struct WeightsUpdated {
  int64_t num_paused_requests = 0;  // that a pause has kept, and that continue with the new weights
  int64_t num_weight_updates = 0;   // since the start, this one included
};

class Engine {
 public:
  // The event is the callback's: it may move out of it. Callbacks that only read take a const
  // reference.
  using EventCallback = std::function<void(RequestEvent&&)>;

  // Loads the model and starts the engine thread. Errors name the file, tensor or option at fault.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options);

  virtual ~Engine() = default;

  // Queues a request. Errors (nothing is queued, `on_event` is not called): kInvalidArgument for a
  // bad field or a prompt that does not fit the context, kResourceExhausted when the queue is full,
  // kUnavailable while shutting down. Limits that only the engine thread can check arrive as the
  // final event instead, with the same kResourceExhausted: the queue is full by its tokens, by the
  // tenant's share or, with priorities, of requests that are as urgent.
  virtual Status submit(Request request, EventCallback on_event) = 0;

  using BatchCallback = std::function<void(size_t index, RequestEvent&&)>;

  // Queues several requests or none of them: when one is refused, here or as its final event, all
  // are, before any of them runs. Events come with the index of their request. Errors as
  // submit(); kInvalidArgument also when they are more than the engine takes when it is idle. With
  // priorities, one that was queued may still lose its place to a more urgent request.
  virtual Status submit_all(std::vector<Request> requests, BatchCallback on_event) = 0;

  // The error with which submit_all() refuses so many requests at once whatever else goes on,
  // before they are made.
  [[nodiscard]] virtual Status check_call_size(size_t num_requests) const = 0;

  // Ends a request with FinishReason::kAbort; an unknown or finished id is ignored.
  virtual void cancel(const std::string& request_id) = 0;

  // Stops taking requests and waits until the running and queued ones have finished, or until
  // `timeout_seconds` passed; what is left then is aborted. Returns how many were aborted.
  virtual int64_t drain(double timeout_seconds) = 0;

  // The options the engine runs with, every choice made: nothing here is "auto" or a 0 that stands
  // for a choice, and max_total_tokens is the capacity of the KV pool. on_load_progress is empty.
  [[nodiscard]] virtual const EngineOptions& options() const = 0;

  [[nodiscard]] virtual const ModelInfo& model_info() const = 0;
  [[nodiscard]] virtual const MemoryPlan& memory_plan() const = 0;
  [[nodiscard]] virtual EngineStats stats() const = 0;

  // The counters since the start, as Prometheus reads them; "" when metrics are off.
  [[nodiscard]] virtual std::string metrics_text() const { return {}; }

  // Drops every cached token once nothing runs or waits, or the engine is paused and nothing runs,
  // which may be at once. `on_done` is called exactly once, on the engine's thread or before this
  // returns, and must not block:
  // kDeadlineExceeded, naming what is left, when that was not so within `timeout_seconds`;
  // kResourceExhausted when too many callers wait already; kUnavailable when the engine ends
  // before.
  virtual void clear_cache(double timeout_seconds, std::function<void(Status)> on_done) = 0;

  // Stops computing once the steps in flight are done. Requests that come from now on wait; limits
  // of the queue and of time still hold. An engine that is paused already treats its requests as
  // `mode` says. `on_done`: as that of clear_cache(), without its timeout.
  virtual void pause(PauseMode mode, std::function<void(Status)> on_done) = 0;

  // Continues where pause() stopped; so does drain(). Harmless when nothing is paused.
  virtual void resume(std::function<void(Status)> on_done) = 0;

  // Exchanges the weights for those of another folder. They are read beside the ones in use, while
  // requests run as ever. Then requests that come wait, until those that came before have ended,
  // all with the old weights; an engine that is paused exchanges at once, and what its pause has
  // kept continues with the new ones, computed from its first token unless the cache is kept. Only
  // weights are read: tokenizer, sampling and ends of text stay. `on_done`, once, as that of
  // clear_cache(). Errors, with which everything stays as it was: kInvalidArgument, kNotFound,
  // kDataLoss, kResourceExhausted and kUnimplemented, naming the folder and what is wrong with it,
  // or differs; kInvalidArgument where the engine is exact and the cache is to be kept;
  // kResourceExhausted while another update goes on; kUnavailable when the engine ends before.
  virtual void update_weights(WeightUpdate update,
                              std::function<void(Result<WeightsUpdated>)> on_done) = 0;

  using StepsCallback = std::function<void(std::vector<StepRecord> steps)>;

  // Keeps a record of the steps that end from now on. `on_done` gets them once, after `max_steps`
  // on the engine's thread, where it must not block, or from stop_recording(); not at all when the
  // engine ends before. Error: kInvalidArgument when steps are recorded already, or for a number
  // that is not from 1 to kMaxRecordedSteps.
  virtual Status record_steps(int64_t max_steps, StepsCallback on_done) = 0;

  // Ends a recording. Error: kInvalidArgument when there is none.
  virtual Status stop_recording() = 0;

  // Waits so long before each step is launched, 0 to 60 s: a test aid that makes a fast engine
  // slow. Messages that arrive meanwhile, cancellations too, take effect after the wait.
  virtual void set_step_delay(double seconds) = 0;

  // Copies a moment of the engine between two steps, without stopping it. `on_done` is called
  // exactly once, on the engine's thread or before this returns, and must not block. Errors:
  // kResourceExhausted when too many callers wait already or there is no memory for the copy;
  // kUnavailable when the engine ends before.
  virtual void inspect(InspectionOptions options,
                       std::function<void(Result<Inspection>)> on_done) = 0;

  // OK, or why the engine stopped (a step failed, the device is lost). Then submit() is refused.
  [[nodiscard]] virtual Status health() const { return {}; }

  // Null when the engine was created with skip_tokenizer.
  [[nodiscard]] virtual const tokenizer::Tokenizer* tokenizer() const = 0;

  // A text as the model's token ids, for Request::prompt, with what the model puts before every
  // text; marks like <|im_end|> are tokens. Thread-safe. Error: kInvalidArgument without a
  // tokenizer, or for a text of more than a GiB.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text) const;
};

}  // namespace heddle
