// SPDX-License-Identifier: Apache-2.0
// What the values of a config.json may be: far above any published model, and low enough that no
// product of a few of them leaves 63 bits.
#pragma once

#include <cstdint>

#include "checkpoint/config_reader.h"

namespace heddle::checkpoint {

inline constexpr ConfigReader::IntegerRange kVocabulary{1, int64_t{1} << 24};
inline constexpr ConfigReader::IntegerRange kWidth{1, int64_t{1} << 20};
inline constexpr ConfigReader::IntegerRange kLayers{1, 1024};
inline constexpr ConfigReader::IntegerRange kHeads{1, 4096};
inline constexpr ConfigReader::IntegerRange kHeadDim{1, 4096};
inline constexpr ConfigReader::IntegerRange kConvolution{1, 64};
inline constexpr ConfigReader::IntegerRange kExperts{1, 16384};
inline constexpr ConfigReader::IntegerRange kPositions{1, (int64_t{1} << 31) - 1};
inline constexpr ConfigReader::IntegerRange kTokenIds{0, int64_t{1} << 24};

}  // namespace heddle::checkpoint
