// SPDX-License-Identifier: Apache-2.0
// DraftPass: a draft network (models/drafts/draft_model.h), loaded and ready to compute on the
// model's device. Two programs share its weights: one reads hidden vectors of the model's last
// step, the other the vectors that the network itself computed.
//
// Threading: as the model's ForwardPass, also read_constants(). Cost: as BatchProgram.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/drafts/draft_model.h"
#include "runner/program/batch_program.h"
#include "runner/program/forward_pass.h"
#include "runner/program/model_constants.h"

namespace heddle::runner {

struct DraftPassOptions {
  std::filesystem::path weights_dir;
  bool dummy_weights = false;
  bool is_models_own = false;     // a head of the model's, quantised as the model's config.json
                                  // says
  bool in_models_folder = false;  // `weights_dir` is the model's folder
  std::optional<checkpoint::Rounding> rounding;  // quantises the weights at load
  int num_threads = 0;                           // CPU threads for loading
  Captures captures;
  int64_t max_rows = 64;  // most rows of a step of the network alone, and most logit rows of any
                          // step
  int64_t max_steps = 1;  // most steps of the network alone that are queued after one of the
                          // model's without waiting
};

class DraftPass {
 public:
  // The dtype of the run is the model's. `target` must have been made with the hidden states that
  // the draft model reads (ForwardOptions::hidden_states), and outlives the pass. Errors: those of
  // loading.
  static Result<std::unique_ptr<DraftPass>> create(std::unique_ptr<const models::DraftModel> model,
                                                   const DraftPassOptions& options,
                                                   ForwardPass& target);

  // Whether its weights are replaced together with the model's.
  [[nodiscard]] bool in_models_folder() const { return options_.in_models_folder; }

  // As in ForwardPass. A folder without a draft network is also an error.
  [[nodiscard]] Result<ModelConstants> read_constants(const std::filesystem::path& folder,
                                                      const checkpoint::ModelConfig& config,
                                                      bool dummy_weights,
                                                      const std::atomic<bool>* cancelled) const;

  Status use_constants(const ModelConstants& constants) {
    return constants_.replace(constants, target_->compute());
  }

  // Enqueues draft slots for the rows of the target's last step. `batch` is the batch of that step
  // except for kv_layers and logit_rows. `ids` are the tokens that follow the rows'. Error:
  // kInvalidArgument. `feed`: as in BatchProgram.
  Status enqueue_first(std::span<const int32_t> ids, std::span<const int32_t> positions,
                       const ops::ForwardContext& batch, DrawnFeed* feed = nullptr);

  // Enqueues one slot for each of ids, at most max_rows: slot i reads the vector of logit row
  // `rows[i]` of the pass's last step. All rows of the batch have logits. `feed`: as in
  // BatchProgram.
  Status enqueue_next(std::span<const int32_t> ids, std::span<const int32_t> positions,
                      const ops::ForwardContext& batch, std::span<const int32_t> rows,
                      DrawnFeed* feed = nullptr);

  // As above, with `rows` in device memory.
  Status enqueue_next(std::span<const int32_t> ids, std::span<const int32_t> positions,
                      const ops::ForwardContext& batch, const int32_t* rows, DrawnFeed* feed);

  // [R, V] f32 in device memory, of the last step.
  [[nodiscard]] MutableTensorView logits() const { return last_->output(0); }

  // BatchProgram::warmed_up() for the last step.
  [[nodiscard]] bool warmed_up() const { return last_->warmed_up(); }

  // Number of logits in a row.
  [[nodiscard]] int64_t vocab_size() const { return vocab_size_; }

  // The model's token id for one of the network's.
  [[nodiscard]] TokenId target_id(TokenId own) const {
    return target_ids_.empty() ? own : target_ids_[static_cast<size_t>(own)];
  }

  // target_id() of all ids, in device memory; null: equal to the model's. Not on the CPU.
  [[nodiscard]] const int32_t* device_target_ids() const {
    return reinterpret_cast<const int32_t*>(device_target_ids_.data());
  }

  [[nodiscard]] int64_t max_rows() const { return vectors_.shape[0]; }

  [[nodiscard]] const checkpoint::LoadedWeights& weights() const { return constants_.weights(); }

  // Bytes of the arenas of its programs and of its vectors.
  [[nodiscard]] int64_t arena_bytes() const;

 private:
  Status enqueue_on_vectors(std::span<const int32_t> ids, std::span<const int32_t> positions,
                            const ops::ForwardContext& batch, DrawnFeed* feed);

  DraftPass(std::unique_ptr<const models::DraftModel> model, const DraftPassOptions& options,
            ForwardPass& target)
      : options_(options), model_(std::move(model)), target_(&target) {}

  // The weight files of a folder, checked to contain weights of the draft model.
  [[nodiscard]] Result<std::unique_ptr<const checkpoint::WeightSource>> open(
      const std::filesystem::path& folder, bool dummy_weights) const;
  [[nodiscard]] checkpoint::LoadOptions load_options(const checkpoint::ModelConfig& config) const;
  Status load();
  Status compile();

  const DraftPassOptions options_;
  std::unique_ptr<const models::DraftModel> model_;
  ForwardPass* target_;
  ModelConstants constants_;
  std::vector<TokenId> target_ids_;
  device::Buffer device_target_ids_;
  int64_t vocab_size_ = 0;
  std::unique_ptr<BatchProgram> first_;
  std::unique_ptr<BatchProgram> next_;
  BatchProgram* last_ = nullptr;  // the program that computed the last step
  device::Buffer memory_;
  MutableTensorView vectors_;  // [max_rows, H]: the vectors that next_ reads
  std::vector<TensorView> target_vectors_;
};

}  // namespace heddle::runner
