// SPDX-License-Identifier: Apache-2.0
// The engine as the product makes it, over any runner, for a scenario's settings. Its drafts,
// unless the toy device makes them, are right, wrong or both by turns.
#pragma once

#include <memory>

#include "core/clock.h"
#include "engine/engine_loop.h"
#include "scenario.h"

namespace heddle::oracle {

// Driven by hand. The clock outlives the engine.
std::unique_ptr<engine::EngineLoop> make_engine(const Scenario& scenario,
                                                std::unique_ptr<runner::Runner> runner,
                                                const Clock& clock);

}  // namespace heddle::oracle
