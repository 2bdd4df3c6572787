// SPDX-License-Identifier: Apache-2.0
// ForwardPass: a loaded model ready to compute on a device: weights, compiled program, arena. It
// takes token rows and gives logits; where sequences keep their pages and states is handed in with
// every run.
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

#include "checkpoint/kv_scales.h"
#include "checkpoint/weight_slice.h"
#include "distributed/rank_threads.h"
#include "graph/program.h"
#include "models/count_prefill_flops.h"
#include "models/model.h"
#include "models/registry.h"
#include "ops/context.h"
#include "runner/program/batch_program.h"
#include "runner/program/compute_device.h"
#include "runner/program/host_rows.h"
#include "runner/program/model_constants.h"

namespace heddle::runner {

struct ForwardOptions {
  std::filesystem::path model_dir;
  bool dummy_weights = false;
  std::optional<DType> dtype;                    // dtype of the run; none: as stored
  std::optional<DType> kv_dtype;                 // none: as choose_kv_dtype() says
  bool exact = false;                            // implies fp32
  std::optional<checkpoint::Rounding> rounding;  // quantise at load
  int num_threads = 0;                           // CPU threads, also for loading
  Captures captures;
  int64_t max_step_tokens = 512;
  int64_t max_logit_rows = 64;              // per step
  int64_t max_sequences = 0;                // per step; 0: as many as tokens
  bool collect_hidden_states = false;       // copies those of all layers to the host
  std::vector<int64_t> hidden_states = {};  // or these, for device_hidden_state()
  bool head_alone = false;                  // run_head() is wanted
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_load_progress;

  int64_t num_ranks = 1;                                 // that share the model; on the CPU alone
  std::chrono::milliseconds collective_timeout{20'000};  // a rank waits so long; 0: for ever

  // Creates the model of config.json; tests replace it.
  std::unique_ptr<const models::Model> (*create_model)(const checkpoint::ModelConfig& config) =
      models::create_model;
};

class ForwardPass {
 public:
  // Reads config.json and weights and compiles the graph for the device, whose context is exact as
  // the options are. Passes that share a device take turns. Errors name the file, key or tensor;
  // those of models::check_ranks() and, for ranks on a GPU, kUnimplemented. With ranks, `device` is
  // that of rank 0, and each of the others gets one with as many threads.
  static Result<std::unique_ptr<ForwardPass>> create(const ForwardOptions& options,
                                                     std::shared_ptr<ComputeDevice> device);

  // On the CPU, with options.num_threads.
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

  // Computes a step of ids.size() rows and waits for it; forward.logit_rows says whose logits are
  // wanted. The context's layer spans must match cache_needs(). Token ids, pages and slots are
  // checked here, once for all ops of the step. Error: kInvalidArgument, naming the row or sequence
  // and the id; nothing is computed then.
  Status run(std::span<const int32_t> ids, std::span<const int32_t> positions,
             const ops::ForwardContext& batch);

  // As run(), but without waiting or copying logits: device_logits() are valid when the stream gets
  // there. Except on the CPU, `feed` may supply some ids.
  Status enqueue(std::span<const int32_t> ids, std::span<const int32_t> positions,
                 const ops::ForwardContext& batch, DrawnFeed* feed = nullptr);

  // The weights of another folder, whose config.json `config` is, as create() would have loaded
  // them, on the host beside those in use. Thread-safe. Errors: those of loading, kCancelled, and
  // kInvalidArgument, naming what differs, where they cannot take the place of those in use.
  [[nodiscard]] Result<ModelConstants> read_constants(const std::filesystem::path& model_dir,
                                                      const checkpoint::ModelConfig& config,
                                                      bool dummy_weights,
                                                      const std::atomic<bool>* cancelled) const;

  // Puts what read_constants() gave in the place of those in use, where programs and captured steps
  // find it. Waits for the copies. Error: kDeviceLost.
  Status use_constants(const ModelConstants& constants) {
    return constants_.replace(constants, *compute_);
  }

  // [R, V] f32 in memory of the device, of the last run() or enqueue(); valid until the next.
  [[nodiscard]] MutableTensorView device_logits() const { return main_->output(0); }

  // [T] the ids of the last enqueue() in memory of the device, those of `feed` included.
  [[nodiscard]] const int32_t* device_ids() const { return main_->device_ids(); }

  // [R, V] f32 on the host, one row per wanted row, of the last run(); valid until the next.
  [[nodiscard]] MutableTensorView logits() const { return logits_.view(); }

  // [R, H] activations() in memory of the device: what the LM head read for logits(); valid until
  // the next run.
  [[nodiscard]] TensorView head_rows() const { return main_->output(1); }

  // The LM head alone, on rows [R, H] as head_rows() had them, in memory of the device. In exact
  // mode a row's logits are those of the full pass, bit for bit. Only with head_alone.
  Status run_head(const TensorView& rows);

  // [R, V] f32 on the host, of run_head(); valid until its next run, whatever run() does.
  [[nodiscard]] MutableTensorView head_logits() const { return head_logits_.view(); }

  // [T, H] activations() in memory of the device, of the index-th of ForwardOptions::hidden_states;
  // valid until the next run.
  [[nodiscard]] MutableTensorView device_hidden_state(size_t index) const;

  // [T, H] f32 on the host, see models::ForwardOutputs. Only with collect_hidden_states.
  [[nodiscard]] TensorView hidden_state(size_t index) const;

  [[nodiscard]] size_t num_hidden_states() const { return hidden_states_.size(); }

  // A constant of the model's graph in memory of the device, by our name; null: there is none.
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

  // For the last run() or enqueue(), see BatchProgram.
  [[nodiscard]] bool warmed_up() const { return main_->warmed_up(); }

  // Steps that were captured and can be launched again.
  [[nodiscard]] int64_t num_captured() const { return main_->num_captured(); }

  [[nodiscard]] const graph::Program& program() const { return main_->program(); }

  [[nodiscard]] graph::Executor& executor() { return main_->executor(); }

  // Arena of both programs.
  [[nodiscard]] int64_t arena_bytes() const;

  [[nodiscard]] const checkpoint::LoadedWeights& weights() const { return constants_.weights(); }

  [[nodiscard]] device::Device& device() { return compute_->device(); }

  [[nodiscard]] const ComputeDevice& compute() const { return *compute_; }

  [[nodiscard]] const std::shared_ptr<ComputeDevice>& shared_compute() const { return compute_; }

  // The stream of this pass's work; the owner of its pools enqueues copies there too.
  [[nodiscard]] device::Stream& stream() { return compute_->stream(); }

  // For ops on its pools between runs.
  [[nodiscard]] ops::Context& context() { return compute_->context(); }

  // The dtype of activations: fp32 on the CPU, dtype() elsewhere.
  [[nodiscard]] DType activations() const { return activations_; }

  // The dtype of large weights, after --dtype.
  [[nodiscard]] DType dtype() const { return dtype_; }

  // The dtype of keys and values, and the factors of stored ones: [num_kv_layers()], or
  // empty for 1.
  [[nodiscard]] DType kv_dtype() const { return kv_dtype_; }

  [[nodiscard]] const std::vector<checkpoint::KvScales>& kv_scales() const { return kv_scales_; }

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

  Status load();
  Status compile();

  const ForwardOptions options_;
  std::shared_ptr<ComputeDevice> compute_;
  const checkpoint::Rank rank_;
  checkpoint::ModelConfig config_;
  std::unique_ptr<const models::Model> model_;
  ModelConstants constants_;
  std::unique_ptr<BatchProgram> main_;
  std::optional<graph::Executor> head_executor_;
  HostRows logits_;
  HostRows head_logits_;
  std::vector<HostRows> hidden_states_;
  DType dtype_ = DType::kF32;
  DType activations_ = DType::kF32;
  DType kv_dtype_ = DType::kF32;
  std::vector<checkpoint::KvScales> kv_scales_;
  std::vector<std::unique_ptr<ForwardPass>> others_;   // of rank 0: those of ranks 1 and above
  std::unique_ptr<distributed::RankThreads> threads_;  // of rank 0, if there are others
};

}  // namespace heddle::runner
