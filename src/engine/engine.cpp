// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <sys/random.h>

#include <heddle/engine.h>

#include "core/log.h"
#include "engine/engine_loop.h"
#include "engine/scheduler_setup.h"
#include "runner/model_runner.h"
#include "tokenizer/tokenizer.h"

namespace heddle {
namespace {

uint64_t system_seed() {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof(seed), 0) != static_cast<ssize_t>(sizeof(seed))) {
    log_warning("the system gave no random seed; requests without one repeat from start to start");
  }
  return seed;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  HEDDLE_RETURN_IF_ERROR(engine::check_options(options));
  engine::EngineParts parts;
  if (!options.skip_tokenizer) {
    HEDDLE_ASSIGN_OR_RETURN(parts.tokenizer, tokenizer::load_tokenizer(options.model_dir));
  }
  HEDDLE_ASSIGN_OR_RETURN(runner::LoadedModel model, runner::load_model(options));
  log_info(fmt::format("memory: {}", model.plan.to_string()));
  parts.runner = std::move(model.runner);
  parts.info = std::move(model.info);
  parts.plan = model.plan;
  parts.options = std::move(model.options);
  if (parts.options.random_seed == 0) parts.options.random_seed = system_seed();
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> loop,
                          engine::EngineLoop::create(std::move(parts)));
  return loop;
}

}  // namespace heddle
