// SPDX-License-Identifier: Apache-2.0
#include "runner/load/step_runner.h"

#include <utility>

#include "checkpoint/same_model.h"
#include "models/registry.h"

namespace heddle::runner {

namespace {

class NewModelWeights final : public NewWeights {
 public:
  std::vector<ModelConstants> model;    // by rank
  std::optional<ModelConstants> draft;  // of a network whose weights are in the model's folder
};

}  // namespace

StepRunner::StepRunner(std::unique_ptr<ForwardPass> pass, std::vector<Pools> pools,
                       const PoolSizes& sizes, const request::StepLimits& limits,
                       int64_t context_length, LoadedDrafts drafts, double simulated_acceptance)
    : sizes_(sizes),
      limits_(limits),
      pass_(std::move(pass)),
      draft_pass_(drafts.pass),
      executor_(*pass_, std::move(pools.front()), sizes, limits, context_length,
                LogitRows::kSampled, std::move(drafts.of_steps)),
      others_(*pass_, std::move(pools), sizes, limits, context_length, LogitRows::kSampled,
              simulated_acceptance) {}

Result<std::unique_ptr<Runner>> StepRunner::create(std::unique_ptr<ForwardPass> pass,
                                                   std::vector<Pools> pools, const PoolSizes& sizes,
                                                   const request::StepLimits& limits,
                                                   int64_t context_length, LoadedDrafts drafts) {
  const double acceptance = drafts.of_steps.simulated_acceptance;
  std::unique_ptr<StepRunner> runner(new StepRunner(std::move(pass), std::move(pools), sizes,
                                                    limits, context_length, std::move(drafts),
                                                    acceptance));
  HEDDLE_RETURN_IF_ERROR(runner->executor_.prepare());
  HEDDLE_RETURN_IF_ERROR(runner->others_.prepare());
  if (runner->pass_->device().kind() != device::DeviceKind::kCpu) {
    runner->device_steps_.emplace(runner->executor_);
    return std::unique_ptr<Runner>(std::move(runner));
  }
  HEDDLE_ASSIGN_OR_RETURN(runner->thread_,
                          StepThread::start([own = runner.get()](const request::BatchPlan& plan,
                                                                 request::StepOutput& output) {
                            return own->others_.run(own->executor_, plan, output);
                          }));
  return std::unique_ptr<Runner>(std::move(runner));
}

Status StepRunner::submit(const request::BatchPlan& plan) {
  if (device_steps_) {
    device_steps_->submit(plan);
  } else {
    thread_->submit(plan);
  }
  return {};
}

Result<request::StepOutput> StepRunner::wait() {
  return device_steps_ ? device_steps_->wait() : thread_->wait();
}

Result<std::unique_ptr<NewWeights>> StepRunner::read_weights(
    const WeightFolder& folder, const std::atomic<bool>& cancelled) const {
  HEDDLE_ASSIGN_OR_RETURN(const checkpoint::ModelConfig config,
                          models::load_config(folder.model_dir));
  if (const Status status = checkpoint::check_same_model(pass_->config(), config); !status.ok()) {
    return status.with_context((folder.model_dir / "config.json").string());
  }
  auto weights = std::make_unique<NewModelWeights>();
  for (int64_t rank = 0; rank < pass_->num_ranks(); ++rank) {
    HEDDLE_ASSIGN_OR_RETURN(
        ModelConstants own,
        pass_->of_rank(rank).read_constants(folder.model_dir, config, folder.dummy, &cancelled));
    weights->model.push_back(std::move(own));
  }
  if (draft_pass_ != nullptr && draft_pass_->in_models_folder()) {
    HEDDLE_ASSIGN_OR_RETURN(weights->draft, draft_pass_->read_constants(folder.model_dir, config,
                                                                        folder.dummy, &cancelled));
  }
  return std::unique_ptr<NewWeights>(std::move(weights));
}

Status StepRunner::use_weights(const NewWeights& weights) {
  const auto& own = static_cast<const NewModelWeights&>(weights);
  HEDDLE_RETURN_IF_ERROR(pass_->device().make_current());
  for (int64_t rank = 0; rank < pass_->num_ranks(); ++rank) {
    HEDDLE_RETURN_IF_ERROR(
        pass_->of_rank(rank).use_constants(own.model[static_cast<size_t>(rank)]));
  }
  return own.draft ? draft_pass_->use_constants(*own.draft) : ok_status();
}

void StepRunner::recycle(request::StepOutput output) {
  if (device_steps_) {
    device_steps_->recycle(std::move(output));
  } else {
    thread_->recycle(std::move(output));
  }
}

}  // namespace heddle::runner
