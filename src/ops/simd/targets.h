// SPDX-License-Identifier: Apache-2.0
// The instruction sets our Highway kernels are compiled for: AVX-512 (AVX3), AVX2 with FMA and
// F16C, and plain scalar code where neither exists. Each further target costs build time in every
// kernel file and would serve no machine we know of. Include before <hwy/...> in every file that
// uses foreach_target.
//
// The macro is an expression over Highway's own target names, which need not be defined yet.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#endif
