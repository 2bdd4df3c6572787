// SPDX-License-Identifier: Apache-2.0
// make_drafter: the drafter of an algorithm by name (heddle/options.h).
#pragma once

#include <memory>

#include <heddle/options.h>

#include "speculative/drafter.h"

namespace heddle::speculative {

// Null: there is none, or the runner makes the drafts.
[[nodiscard]] std::unique_ptr<Drafter> make_drafter(DraftAlgorithm algorithm);

}  // namespace heddle::speculative
