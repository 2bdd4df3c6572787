// SPDX-License-Identifier: Apache-2.0
// FinishShared: the memory that the threads of a team share while they finish a row
// (row_finisher.h), and the partial sums that they join.
#pragma once

#include <cstdint>

#include "ops/sampling/sample_row_steps.h"

namespace heddle::ops::sampling_steps {

constexpr uint64_t kNoLimit = ~uint64_t{0};
constexpr int32_t kNone = 0x7fffffff;
constexpr int kMostCandidates = 2048;
constexpr int kMostTiles = 4096;  // number of tiles of the largest vocabulary
constexpr int kBins = 256;
constexpr int kOneWarp = 32;
constexpr int kMostCompared = kBins;  // most candidates that are ranked by comparing all with all

struct MassSum {
  uint64_t mass = 0;

  HEDDLE_TEAM void join(const MassSum& other) { mass += other.mass; }
};

// Number and mass of the candidates that are better than a given one.
struct BetterOnes {
  uint64_t count = 0;
  uint64_t mass = 0;

  HEDDLE_TEAM void join(const BetterOnes& other) {
    count += other.count;
    mass += other.mass;
  }
};

// Masses of the candidates that are kept by top_k, top_p and min_p.
struct KeptMass {
  uint64_t all = 0;
  uint64_t before = 0;  // mass of the kept candidates with lower ids than a given one

  HEDDLE_TEAM void join(const KeptMass& other) {
    all += other.all;
    before += other.before;
  }
};

struct LowestIndex {
  int32_t index = kNone;

  HEDDLE_TEAM void take(int32_t other) {
    if (other < index) index = other;
  }

  HEDDLE_TEAM void join(const LowestIndex& other) { take(other.index); }
};

// A candidate token. Its rank is distance << 32 | token, and the token alone once it is known that
// it is kept.
struct Candidate {
  uint64_t rank;
  uint64_t weight;  // weight of the token; later the sum of the weights before it
};

struct FinishShared {
  union {
    Candidate candidates[kMostCandidates];
    uint64_t tile_masses[kMostTiles];
  };

  uint64_t first[kBins];
  uint64_t second[kBins];
  SplitSum bin_masses[kBins];
  uint32_t bin_counts[kBins];
  // Tiles that hold candidates; later how many tokens at the cut's distance each tile keeps.
  uint16_t tiles[kMostTiles];
  uint32_t num_tiles;
  uint32_t num_candidates;
  int32_t found;
  int32_t is_unsure;
  uint64_t rest;
};

}  // namespace heddle::ops::sampling_steps
