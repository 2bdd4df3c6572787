// SPDX-License-Identifier: Apache-2.0
// ForwardPass: a loaded model ready to compute: weights, compiled program, arena. It takes token
// rows and gives logits; where sequences keep their pages and states is handed in with every run.
//
// Threading: confined to one thread at a time. Cost: run() allocates nothing.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/kv_scales.h"
#include "device/cpu_device.h"
#include "graph/program.h"
#include "models/model.h"
#include "models/prefill_flops.h"
#include "ops/context.h"

namespace heddle::runner {

struct ForwardOptions {
  std::filesystem::path model_dir;
  bool dummy_weights = false;
  std::optional<DType> dtype;                    // of the run; none: as stored
  std::optional<DType> kv_dtype;                 // none: as choose_kv_dtype() says
  bool exact = false;                            // implies fp32
  std::optional<checkpoint::Rounding> rounding;  // quantise at load
  int num_threads = 0;
  int64_t max_step_tokens = 512;
  int64_t max_logit_rows = 64;  // of one step
  bool collect_hidden_states = false;
  bool head_alone = false;  // run_head() is wanted
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_load_progress;
};

class ForwardPass {
 public:
  // Reads config.json and weights and compiles the graph. Errors name the file, key or tensor.
  static Result<std::unique_ptr<ForwardPass>> create(const ForwardOptions& options);

  // Computes a step of ids.size() rows and waits for it; forward.logit_rows says whose logits are
  // wanted. The context's layer spans must match cache_needs(). Token ids, pages and slots are
  // checked here, once for all ops of the step. Error: kInvalidArgument, naming the row or sequence
  // and the id; nothing is computed then.
  Status run(std::span<const int32_t> ids, std::span<const int32_t> positions,
             const ops::ForwardContext& forward);

  // [R, V] f32, one row per wanted row; valid until the next run.
  [[nodiscard]] MutableTensorView logits() const;

  // [R, H] f32: what the LM head read for logits(); valid until the next run.
  [[nodiscard]] TensorView head_rows() const;

  // The LM head alone, on rows [R, H] f32 as head_rows() had them. In exact mode a row's logits are
  // those of the full pass, bit for bit. Only with head_alone.
  Status run_head(const TensorView& rows);

  // [R, V] f32, of run_head(); valid until its next run, whatever run() does.
  [[nodiscard]] MutableTensorView head_logits() const;

  // [T, H] f32, see models::ForwardOutputs. Only with collect_hidden_states.
  [[nodiscard]] TensorView hidden_state(size_t index) const;

  [[nodiscard]] size_t num_hidden_states() const { return num_hidden_states_; }

  [[nodiscard]] const checkpoint::ModelConfig& config() const { return config_; }

  [[nodiscard]] models::CacheNeeds cache_needs() const { return model_->cache_needs(); }

  [[nodiscard]] request::PrefillFlops prefill_flops() const {
    return models::prefill_flops(config_, *model_);
  }

  [[nodiscard]] const graph::Program& program() const { return executor_->program(); }

  [[nodiscard]] graph::Executor& executor() { return *executor_; }

  // Of both programs.
  [[nodiscard]] int64_t arena_bytes() const;

  [[nodiscard]] const checkpoint::LoadedWeights& weights() const { return weights_; }

  [[nodiscard]] device::CpuDevice& device() { return device_; }

  // The stream of this pass's work; the owner of its pools enqueues copies there too.
  [[nodiscard]] device::Stream& stream() { return *stream_; }

  // For ops on its pools between runs.
  [[nodiscard]] ops::Context& context() { return context_; }

  // The dtype of large weights, after --dtype.
  [[nodiscard]] DType dtype() const { return dtype_; }

  // The dtype of keys and values, and the factors of stored ones: [num_kv_layers], or
  // empty for 1.
  [[nodiscard]] DType kv_dtype() const { return kv_dtype_; }

  [[nodiscard]] const std::vector<checkpoint::KvScales>& kv_scales() const { return kv_scales_; }

  [[nodiscard]] bool exact() const { return context_.exact; }

  [[nodiscard]] int64_t max_step_tokens() const { return executor_->program().largest.tokens; }

  [[nodiscard]] int64_t max_logit_rows() const { return executor_->program().largest.logits; }

 private:
  ForwardPass(int num_threads, bool exact)
      : device_(num_threads), context_(device_.pool(), exact) {}

  device::CpuDevice device_;
  std::unique_ptr<device::Stream> stream_;
  ops::CpuContext context_;
  checkpoint::ModelConfig config_;
  std::unique_ptr<const models::Model> model_;
  checkpoint::LoadedWeights weights_;
  models::DerivedWeights derived_;
  std::optional<graph::Executor> executor_;
  std::optional<graph::Executor> head_executor_;
  size_t num_hidden_states_ = 0;
  DType dtype_ = DType::kF32;
  DType kv_dtype_ = DType::kF32;
  std::vector<checkpoint::KvScales> kv_scales_;
};

}  // namespace heddle::runner
