// SPDX-License-Identifier: Apache-2.0
// The options that say who runs next and what is kept for those who come after, with the spellings
// of SGLang as aliases. The engine checks the values.
#pragma once

#include <heddle/options.h>

#include "options.h"

namespace heddle::tools {

void declare_scheduling_options(Options& options, SchedulingOptions& scheduling);

void declare_cache_options(Options& options, CacheOptions& cache);

}  // namespace heddle::tools
