// SPDX-License-Identifier: Apache-2.0
// FinishShared: the memory that a team shares while it finishes a row (row_finisher.h), and the
// sums that its threads form.
#pragma once

#include <cstdint>

#include "ops/sampling/sample_row_steps.h"

namespace heddle::ops::sampling_steps {

constexpr uint64_t kNoLimit = ~uint64_t{0};
constexpr int32_t kNone = 0x7fffffff;
constexpr int kMostCandidates = 2048;
constexpr int kMostTiles = 4096;  // tiles of the largest vocabulary
constexpr int kBins = 256;
constexpr int kOneWarp = 32;
constexpr int kMostCompared = kBins;  // candidates that are placed by comparing all with all

struct MassSum {
  uint64_t mass = 0;

  HEDDLE_TEAM void join(const MassSum& other) { mass += other.mass; }
};

// The candidates better than one.
struct BetterOnes {
  uint64_t count = 0;
  uint64_t mass = 0;

  HEDDLE_TEAM void join(const BetterOnes& other) {
    count += other.count;
    mass += other.mass;
  }
};

// Masses of the candidates that are kept.
struct KeptMass {
  uint64_t all = 0;
  uint64_t before = 0;  // mass of those with lower ids than a given one

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

// A candidate: distance << 32 | token, the token alone once it is known to be kept.
struct Candidate {
  uint64_t rank;
  uint64_t weight;  // later the sum of the weights before it
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
  uint16_t tiles[kMostTiles];  // tiles that hold candidates; later how many equals each tile keeps
  uint32_t num_tiles;
  uint32_t num_candidates;
  int32_t found;
  int32_t is_unsure;
  uint64_t rest;
};

}  // namespace heddle::ops::sampling_steps
