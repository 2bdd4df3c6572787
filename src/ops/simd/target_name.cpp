// SPDX-License-Identifier: Apache-2.0
#include "ops/simd/target_name.h"

#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/simd/target_name.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::HWY_NAMESPACE {

const char* CompiledTargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace heddle::ops::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

HWY_EXPORT(CompiledTargetName);

std::string_view simd_target_name() { return HWY_DYNAMIC_DISPATCH(CompiledTargetName)(); }

}  // namespace heddle::ops

#endif
