// SPDX-License-Identifier: Apache-2.0
// ForwardPass: a loaded model ready to compute on a device: weights, compiled program, arena. It
// computes logits from rows of tokens. The pages and states of sequences are passed to every run.
//
// Ranks that share a model have a pass each: the slices of the weights, a program of the same
// collectives, a device with threads of its own. That of rank 0 owns the others. All of them carry
// out the same calls in the same order (on_every_rank()), and all have the logits.
//
// Threading: confined to one thread at a time, which calls device().make_current() first, but for
// read_constants(). Cost: run() allocates nothing on the CPU; elsewhere only where a step has more
// rows, pages or logits than any before.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <heddle/adapter.h>
#include <heddle/options.h>

#include "checkpoint/kv_scales.h"
#include "checkpoint/weight_slice.h"
#include "distributed/rank_threads.h"
#include "graph/program.h"
#include "models/count_prefill_flops.h"
#include "models/model.h"
#include "models/registry.h"
#include "ops/context.h"
#include "runner/program/adapter_pool.h"
#include "runner/program/batch_program.h"
#include "runner/program/compute_device.h"
#include "runner/program/host_rows.h"
#include "runner/program/model_constants.h"

namespace heddle::runner {

// ForwardOptions::collective_timeout for a time in seconds, at least 0. It is rounded up, so that
// only 0 means "for ever".
[[nodiscard]] inline std::chrono::milliseconds collective_timeout_of(double seconds) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

struct ForwardOptions {
  std::filesystem::path model_dir;
  bool dummy_weights = false;
  std::optional<DType> dtype;                    // dtype of the run; none: as the weights are
                                                 // stored
  std::optional<DType> kv_dtype;                 // dtype of keys and values; none: see
                                                 // choose_kv_dtype()
  bool exact = false;                            // exact mode; implies fp32
  std::optional<checkpoint::Rounding> rounding;  // quantises the weights at load
  int num_threads = 0;                           // CPU threads, for computing and for loading
  Captures captures;
  int64_t max_step_tokens = 512;
  int64_t max_logit_rows = 64;              // most rows of a step with logits
  int64_t max_sequences = 0;                // most sequences of a step; 0: as many as tokens
  bool collect_hidden_states = false;       // copy the hidden states of all layers to the host
  std::vector<int64_t> hidden_states = {};  // hidden states to keep on the device, for
                                            // device_hidden_state()
  bool head_alone = false;                  // run_head() will be used
  int64_t num_adapter_slots = 0;            // LoRA adapters at once; 0: no adapter can be loaded
  int64_t max_adapter_rank = 0;             // highest rank of an adapter
  int64_t feature_width = 0;                // width of a row of StepPictures::features; 0: the
                                            // program accepts no pictures
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_load_progress;

  int64_t num_ranks = 1;  // that share the model; on the CPU alone
  // A rank waits so long for the others in a step; 0: for ever.
  std::chrono::milliseconds collective_timeout =
      collective_timeout_of(EngineOptions().collective_timeout_seconds);

  // Creates the model of config.json; tests replace it.
  std::unique_ptr<const models::Model> (*create_model)(const checkpoint::ModelConfig& config) =
      models::create_model;
};

// The pictures of a step of T rows.
struct StepPictures {
  std::span<const int32_t>
      positions;  // [T, 3]: a position for each axis of checkpoint::rope_axes()
  // [T]: for each token of a picture its features, feature_width floats; null for text.
  std::span<const float* const> features;
};

// Inputs of a step that most steps do without.
struct StepExtras {
  std::span<const int32_t> adapters = {};  // the slot of each sequence's adapter, -1 for none;
                                           // empty: no sequence has one
  const StepPictures* pictures = nullptr;  // null: only text; else ForwardOptions::feature_width
                                           // must be set
};

class ForwardPass {
 public:
  // Reads config.json and weights and compiles the graph for the device, whose context is exact as
  // the options are. Passes that share a device take turns. Errors name the file, key or tensor;
  // those of models::check_ranks() and, for ranks on a GPU, kUnimplemented. With ranks, `device` is
  // that of rank 0, and each of the others gets one with as many threads.
  static Result<std::unique_ptr<ForwardPass>> create(const ForwardOptions& options,
                                                     std::shared_ptr<ComputeDevice> device);

  // Creates a pass on the CPU, with options.num_threads.
  static Result<std::unique_ptr<ForwardPass>> create(const ForwardOptions& options);

  [[nodiscard]] int64_t num_ranks() const { return rank_.ranks.count; }

  // The pass of a rank; that of rank 0 is *this.
  [[nodiscard]] ForwardPass& of_rank(int64_t rank) {
    return rank == 0 ? *this : *others_[static_cast<size_t>(rank - 1)];
  }

  [[nodiscard]] const ForwardPass& of_rank(int64_t rank) const {
    return rank == 0 ? *this : *others_[static_cast<size_t>(rank - 1)];
  }

  // Calls task(pass, rank) for every rank at once, each on its thread: of rank 0, the caller's. All
  // parts make the same runs. Error: as distributed::RankThreads::run(); no rank computes again,
  // but one that hangs may use a copy of the task until wait_for_ranks() returns.
  template <typename Task>
  Status on_every_rank(const Task& task) {
    if (threads_ == nullptr) return task(*this, int64_t{0});
    return threads_->run([this, task](int64_t rank) { return task(of_rank(rank), rank); });
  }

  // For destructors of what a task refers to: waits until no rank carries out a task.
  void wait_for_ranks() {
    if (threads_ != nullptr) threads_->wait_until_idle();
  }

  // No rank computes again, because of `cause`.
  Status end_ranks(Status cause) {
    threads_->group().abort(cause);
    return cause;
  }

  // Reads the LoRA adapter in `folder` into a slot below ForwardOptions::num_adapter_slots
  // (checked). run() then adds its products to the rows of sequences with this slot. Any thread,
  // one at a time; no running step may use the slot. Error, and the slot changes nothing: those of
  // AdapterFiles::open(), checkpoint::adapter_linears() and AdapterPool::load(), after the folder's
  // name.
  [[nodiscard]] Result<Adapter> load_adapter(int32_t slot, const std::filesystem::path& folder);

  // Computes a step of ids.size() rows and waits for it; forward.logit_rows says whose logits are
  // wanted. The context's layer spans must match cache_needs(). Token ids, pages and slots are
  // checked here, once for all ops of the step. Error: kInvalidArgument, naming the row or sequence
  // and the id; nothing is computed then.
  Status run(std::span<const int32_t> ids, std::span<const int32_t> positions,
             const ops::ForwardContext& batch, const StepExtras& extras = {});

  // As run(), but without waiting and without copying logits: device_logits() are valid once the
  // stream has executed the step. Except on the CPU, `feed` may supply some ids.
  Status enqueue(std::span<const int32_t> ids, std::span<const int32_t> positions,
                 const ops::ForwardContext& batch, DrawnFeed* feed = nullptr,
                 const StepExtras& extras = {});

  // Loads the weights of another folder, whose config.json is `config`, as create() would, into
  // host memory next to the weights in use. Thread-safe. Errors: those of loading, kCancelled, and
  // kInvalidArgument, with the difference, if they cannot replace the weights in use.
  [[nodiscard]] Result<ModelConstants> read_constants(const std::filesystem::path& model_dir,
                                                      const checkpoint::ModelConfig& config,
                                                      bool dummy_weights,
                                                      const std::atomic<bool>* cancelled) const;

  // Replaces the weights in use by those of read_constants(), at the addresses that programs and
  // captured steps use. Waits for the copies. Error: kDeviceLost.
  Status use_constants(const ModelConstants& constants) {
    return constants_.replace(constants, *compute_);
  }

  // [R, V] f32 in device memory, of the last run() or enqueue(). Valid until the next.
  [[nodiscard]] MutableTensorView device_logits() const { return last_->output(0); }

  // [T] ids of the last enqueue() in device memory, including those that `feed` supplied.
  [[nodiscard]] const int32_t* device_ids() const { return last_->device_ids(); }

  // [R, V] f32 on the host, one row per logit row of the last run(). Valid until the next.
  [[nodiscard]] MutableTensorView logits() const { return logits_.view(); }

  // [R, H] of type activations() in device memory: the inputs of the LM head for logits(). Valid
  // until the next run.
  [[nodiscard]] TensorView head_rows() const { return last_->output(1); }

  // Runs the LM head alone on rows [R, H] in device memory, in the form of head_rows(). In exact
  // mode a row's logits equal those of the full pass, bit for bit. Only with
  // ForwardOptions::head_alone. `adapters`: the adapter slot of each row, -1 for none; empty: no
  // row has one.
  Status run_head(const TensorView& rows, std::span<const int32_t> adapters = {});

  // [R, V] f32 on the host, of the last run_head(). Valid until its next call; run() does not
  // change them.
  [[nodiscard]] MutableTensorView head_logits() const { return head_logits_.view(); }

  // [T, H] of type activations() in device memory: entry `index` of ForwardOptions::hidden_states.
  // Valid until the next run.
  [[nodiscard]] MutableTensorView device_hidden_state(size_t index) const;

  // [T, H] f32 on the host, see models::ForwardOutputs. Only with collect_hidden_states.
  [[nodiscard]] TensorView hidden_state(size_t index) const;

  [[nodiscard]] size_t num_hidden_states() const { return hidden_states_.size(); }

  // A constant of the model's graph in device memory, by Heddle's name for it; null: there is none.
  [[nodiscard]] const TensorView* find_constant(std::string_view name) const {
    return constants_.find(name);
  }

  [[nodiscard]] const checkpoint::ModelConfig& config() const { return config_; }

  // Of the whole model.
  [[nodiscard]] int64_t num_parameters() const;

  // Of this rank.
  [[nodiscard]] models::CacheNeeds cache_needs() const { return model_->cache_needs(rank_); }

  [[nodiscard]] request::PrefillFlops prefill_flops() const {
    return models::count_prefill_flops(config_, *model_);
  }

  // BatchProgram::warmed_up() for the last run() or enqueue().
  [[nodiscard]] bool warmed_up() const { return last_->warmed_up(); }

  // Number of captured steps that can be replayed.
  [[nodiscard]] int64_t num_captured() const { return main_->num_captured(); }

  [[nodiscard]] const graph::Program& program() const { return main_->program(); }

  [[nodiscard]] graph::Executor& executor() { return main_->executor(); }

  // Bytes of the arenas of all programs: the model's and the LM head's, with adapters and without.
  [[nodiscard]] int64_t arena_bytes() const;

  // Bytes of all adapter slots together.
  [[nodiscard]] int64_t adapter_bytes() const { return adapters_ ? adapters_->num_bytes() : 0; }

  [[nodiscard]] const checkpoint::LoadedWeights& weights() const { return constants_.weights(); }

  [[nodiscard]] device::Device& device() { return compute_->device(); }

  [[nodiscard]] const ComputeDevice& compute() const { return *compute_; }

  [[nodiscard]] const std::shared_ptr<ComputeDevice>& shared_compute() const { return compute_; }

  // The stream that this pass uses. The owner of its pools enqueues copies on the same stream.
  [[nodiscard]] device::Stream& stream() { return compute_->stream(); }

  // The context for ops on the pools between runs.
  [[nodiscard]] ops::Context& context() { return compute_->context(); }

  // The dtype of activations: fp32 on the CPU, dtype() on other devices.
  [[nodiscard]] DType activations() const { return activations_; }

  // The dtype of large weights, after the option --dtype.
  [[nodiscard]] DType dtype() const { return dtype_; }

  // The dtype of keys and values, and the factors of stored ones: [num_kv_layers()]; empty: all are
  // 1.
  [[nodiscard]] DType kv_dtype() const { return kv_dtype_; }

  [[nodiscard]] const std::vector<checkpoint::KvScales>& kv_scales() const { return kv_scales_; }

  // ForwardOptions::feature_width.
  [[nodiscard]] int64_t feature_width() const { return options_.feature_width; }

  [[nodiscard]] bool exact() const { return compute_->context().exact; }

  [[nodiscard]] int64_t max_step_tokens() const { return main_->program().largest.tokens; }

  [[nodiscard]] int64_t max_logit_rows() const { return main_->program().largest.logits; }

 private:
  ForwardPass(const ForwardOptions& options, std::shared_ptr<ComputeDevice> device, int64_t rank)
      : options_(options),
        compute_(std::move(device)),
        rank_{.index = rank, .ranks = {options.num_ranks, options.exact}} {}

  static Result<std::unique_ptr<ForwardPass>> create_rank(const ForwardOptions& options,
                                                          std::shared_ptr<ComputeDevice> device,
                                                          int64_t rank);

  [[nodiscard]] checkpoint::LoadOptions load_options(const checkpoint::ModelConfig& config,
                                                     bool dummy_weights) const;

  [[nodiscard]] Result<std::vector<checkpoint::WeightSpec>> own_weight_specs() const {
    return checkpoint::sliced(model_->weight_specs(), rank_.index, rank_.ranks);
  }

  // The programs of the model, and of its LM head alone.
  struct Programs {
    std::unique_ptr<BatchProgram> model;
    std::optional<graph::Executor> head;  // only with ForwardOptions::head_alone
  };

  Status load();
  Status compile();
  Status make_adapters();
  Result<Programs> compile_with(const graph::WeightLookup& lookup);
  [[nodiscard]] Status check_pictures() const;
  Result<std::vector<TensorView>> picture_views(std::span<const int32_t> positions,
                                                const StepPictures* pictures);
  void stage_features(std::span<const float* const> features);

  const ForwardOptions options_;
  std::shared_ptr<ComputeDevice> compute_;
  const checkpoint::Rank rank_;
  checkpoint::ModelConfig config_;
  std::unique_ptr<const models::Model> model_;
  ModelConstants constants_;
  std::unique_ptr<AdapterPool> adapters_;  // null: no adapter can be loaded
  std::unique_ptr<BatchProgram> main_;
  std::optional<graph::Executor> head_executor_;
  Programs with_adapters_;  // for steps in which a row has an adapter; empty without adapters_
  BatchProgram* last_ = nullptr;  // the program of the last run() or enqueue()
  HostRows logits_;
  HostRows head_logits_;
  std::vector<HostRows> hidden_states_;
  DType dtype_ = DType::kF32;
  DType activations_ = DType::kF32;
  DType kv_dtype_ = DType::kF32;
  std::vector<checkpoint::KvScales> kv_scales_;
  std::vector<std::unique_ptr<ForwardPass>> others_;   // of rank 0: those of ranks 1 and above
  std::unique_ptr<distributed::RankThreads> threads_;  // of rank 0, if there are others
  // Inputs of programs that accept pictures.
  std::vector<int32_t> text_positions_;  // [T, 3]: positions of a step without pictures
  std::vector<int32_t> picture_rows_;    // [T]: the row of staged_features_ of each token, or -1
  Tensor staged_features_;               // [max_step_tokens, feature_width]
};

}  // namespace heddle::runner
