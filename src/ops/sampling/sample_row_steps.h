// SPDX-License-Identifier: Apache-2.0
// The passes of sample_rows over a row, shared by the CUDA kernels and the CPU; the last pass is in
// row_finisher.h. A team of threads executes them in phases; each phase may read what earlier
// phases wrote. A team has these operations:
//
//   size()                      number of threads
//   each(n, f)                  calls f(i) for every i in [0, n), divided among threads; a phase
//   few(n, f)                   as each() for n <= 32, but without waiting: until each() ends, only
//                               the next few() may read what it wrote
//   reduce<T>(n, map)           calls map(T&, i) for every i and joins the T; every thread gets the
//                               result; a phase
//   tiles<T>(first, last, logits, V, visit, map, store)
//                               calls map(T&, token, logit) for the tokens of every tile for which
//                               visit(tile) is true, then store(tile, joined); a phase
//   tiles_twice<T, U>(first, last, logits, V, map, again, store)
//                               calls map as above, then again(U&, T, logit) for the same tokens
//                               with the tile's T, then store(tile, T, joined U); at the end of the
//                               last tile it may call them for extra tokens of -infinity; a phase
//   tokens<T>(n, tile_at, logits, V, map, end)
//                               calls map(T&, token, logit) for the tokens of the tiles tile_at(i),
//                               i in [0, n), skipping tiles of -1; every thread has its own T and
//                               calls end(T&) at the end; a phase
//   each_sum<T>(n, m, map, store)
//                               calls map(T&, i, j) for every j in [0, m), joins the T and calls
//                               store(i, T), for every i in [0, n); a phase
//   few_tokens(n, tile_at, logits, V, holds, take)
//                               calls take(token, logit) for the tokens of these tiles for which
//                               holds(logit) is true, which must be few; a phase
//   scan(n, at)                 replaces at(i) by the sum of those before i; returns the sum of all
//   locate<n>(at, target)       the first i for which the sum of at(0) to at(i) exceeds the target;
//                               n, a multiple of 32, if there is none. Every thread gets it without
//                               waiting: what at() reads may be written only after the next phase
//   add(p, x), raise(p, x)      atomic addition and maximum; add returns the old value
//
//   share(), shares()           index of this team and number of teams that finish a row together.
//                               Each team has its own shared memory, executes the same steps and
//                               gets the same results, except that the tokens of a row that is cut
//                               (draw_cut) are divided among the teams
//   of_share(p, s)              the address in team s's shared memory that corresponds to p
//   meet()                      all teams of the row wait for each other; a phase
//   stays_alone()               whether this team continues alone; true for the first team
//
// Here T has a function join(T) that may be called in any order, and T() is its neutral element.
//
// On the CPU one thread executes the parts of all threads in turn (sample_rows_cpu.cpp).
#pragma once

#include <cmath>
#include <cstdint>

#include "core/compiler.h"
#include "ops/sampling/logit_edits.h"
#include "ops/sampling/row_scratch.h"
#include "ops/sampling/sample_rows.h"
#include "ops/sampling/token_weight.h"

#ifdef __CUDACC__
#define HEDDLE_TEAM __device__
// Marks a loop that must not be unrolled. A kernel of some microseconds spends most of its time on
// loading code, because the steps of a large model evict it from all caches.
#define HEDDLE_ROLLED _Pragma("unroll 1")
#else
#define HEDDLE_TEAM
#define HEDDLE_ROLLED
#endif

namespace heddle::ops::sampling_steps {

// A row's sampling parameters, together with those of its batch slot, if any.
struct RowRequest {
  SamplingRow row;
  SamplingSlot slot;
};

// The fields of SampleRowsArgs as kernels read them.
struct Tables {
  float* logits;
  int64_t logits_stride;
  int V;
  const SamplingRow* rows;
  int64_t position_shift;
  const SamplingSlot* slots;
  const TokenCount* counts;
  const int32_t* forbidden;
  const TokenBias* biases;
  const int32_t* path_tokens;
  const uint32_t* masks;
  const int32_t* ended;
  int32_t* drawn;
  SampledRow* sampled;
  bool is_watched;
  bool tells_all;
  TopLogit* top_logits;
  std::byte* workspace;

  static Tables of(const SampleRowsArgs& args) {
    return {.logits = args.logits.as<float>(),
            .logits_stride = args.logits.row_stride,
            .V = static_cast<int>(args.logits.shape[1]),
            .rows = args.rows,
            .position_shift = args.position_shift,
            .slots = args.slots,
            .counts = args.counts,
            .forbidden = args.forbidden,
            .biases = args.biases,
            .path_tokens = args.path_tokens,
            .masks = args.masks,
            .ended = args.ended,
            .drawn = args.drawn,
            .sampled = args.sampled,
            .is_watched = args.is_watched,
            .tells_all = args.tells_all,
            .top_logits = args.top_logits,
            .workspace = args.workspace.data()};
  }

  [[nodiscard]] HEDDLE_TEAM RowRequest request(int64_t r) const {
    RowRequest own{.row = rows[r], .slot = {}};
    own.row.position += position_shift;
    if (ended != nullptr && ended[r] != 0) own.row.slot = -1;
    if (own.row.slot >= 0) own.slot = slots[own.row.slot];
    return own;
  }

  [[nodiscard]] HEDDLE_TEAM int tiles() const { return static_cast<int>(RowScratch::tiles_of(V)); }

  [[nodiscard]] HEDDLE_TEAM float* logits_of(int64_t r) const { return logits + r * logits_stride; }

  [[nodiscard]] HEDDLE_TEAM RowScratch scratch_of(int64_t r) const {
    return RowScratch::of(workspace, r, V);
  }
};

// ---- Parameters of a slot -----------------------------------------------------------------------

[[nodiscard]] HEDDLE_TEAM inline bool is_open(const SamplingSlot& slot) {
  return slot.top_k == 0 && slot.top_p >= 1 && slot.min_p_reach == -INFINITY;
}

[[nodiscard]] HEDDLE_TEAM inline bool needs_sums(const SamplingSlot& slot) {
  return slot.top_logprobs >= 0 || (slot.greedy == 0 && (is_open(slot) || slot.top_p < 1));
}

// Whether top_p needs masses by level; a small top_k leaves few candidates without them.
[[nodiscard]] HEDDLE_TEAM inline bool needs_levels(const SamplingSlot& slot) {
  return slot.greedy == 0 && slot.top_p < 1 && (slot.top_k == 0 || slot.top_k > 256);
}

// ---- Order and distance -------------------------------------------------------------------------

// Maps floats to integers in ascending order; both zeros are equal.
[[nodiscard]] HEDDLE_TEAM inline uint32_t ordered(float x) {
  const uint32_t bits = bits_of(x + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// Computes the levels and weights of a row from its best logit and its temperature.
struct RowScale {
  float max = 0;
  float inverse_temperature = 1;
  uint32_t ordered_max = 0;

  HEDDLE_TEAM static RowScale of(float max, const SamplingSlot& slot) {
    return {max, slot.inverse_temperature, ordered(max)};
  }

  [[nodiscard]] HEDDLE_TEAM float exponent(float logit) const {
    return rounded_product(logit - max, inverse_temperature);
  }

  [[nodiscard]] HEDDLE_TEAM uint64_t weight(float logit) const {
    return token_weight(logit, max, inverse_temperature);
  }

  // The level of a logit; lower logits never have a smaller level. kWeightlessLevel for all deeper
  // ones.
  [[nodiscard]] HEDDLE_TEAM int level(float logit) const { return level_of(exponent(logit)); }

  [[nodiscard]] HEDDLE_TEAM static int level_of(float exponent) {
    const float levels = rounded_product(exponent, -static_cast<float>(kLevelsPerLog));
    return levels < static_cast<float>(kWeightlessLevel) ? static_cast<int>(levels)
                                                         : kWeightlessLevel;
  }

  // A lower bound of the logits of this level; not always the largest one.
  [[nodiscard]] HEDDLE_TEAM float deepest_of(int level) const {
    if (level >= kWeightlessLevel) return -INFINITY;
    const float reach = static_cast<float>(level + 1) / (kLevelsPerLog * inverse_temperature);
    return max - reach * (1 + 0x1p-20f) - std::fabs(max) * 0x1p-22f;
  }

  // Number of floats between this logit and the best one; grows as tokens get worse.
  [[nodiscard]] HEDDLE_TEAM uint32_t distance(float logit) const {
    return ordered_max - ordered(logit);
  }

  [[nodiscard]] HEDDLE_TEAM float logit_at(uint32_t distance) const {
    const uint32_t bits = ordered_max - distance;
    return float_of((bits >> 31) != 0 ? bits & 0x7fffffffu : ~bits);
  }
};

// The larger of two numbers; NaN if either is NaN.
[[nodiscard]] HEDDLE_TEAM inline float max_or_nan(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#else
  return a > b || a != a ? a : b;
#endif
}

struct BestLogit {
  float max = -INFINITY;  // largest logit; NaN if a logit is NaN

  HEDDLE_TEAM void take(float x) { max = max_or_nan(max, x); }

  HEDDLE_TEAM void join(const BestLogit& other) { take(other.max); }
};

// ---- First pass: edits, and the best logit of every tile ----------------------------------------

// Steps 0 to 4 of the sampler's order of operations on the tokens in [begin, end), in place.
template <typename Team>
HEDDLE_TEAM void edit_logits(Team& team, const Tables& t, const RowRequest& own, float* logits,
                             int begin, int end) {
  const SamplingRow& row = own.row;
  const SamplingSlot& slot = own.slot;
  if (row.mask_row >= 0) {
    const uint32_t* mask = t.masks + row.mask_row * ((static_cast<int64_t>(t.V) + 31) / 32);
    team.each(end - begin, [&](int i) {
      const int token = begin + i;
      if ((mask[token / 32] >> (token % 32) & 1u) == 0) logits[token] = -INFINITY;
    });
  }
  if (slot.num_forbidden > 0 && row.position < slot.min_length) {
    team.each(slot.num_forbidden, [&](int i) {
      const int token = t.forbidden[slot.forbidden_begin + i];
      if (token >= begin && token < end) logits[token] = -INFINITY;
    });
  }
  if (slot.num_biases > 0) {
    team.each(slot.num_biases, [&](int i) {
      const TokenBias bias = t.biases[slot.biases_begin + i];
      if (bias.token >= begin && bias.token < end) logits[bias.token] += bias.bias;
    });
  }
  if (slot.counts_row < 0) return;
  const Penalties penalties{slot.repetition_penalty, slot.frequency_penalty, slot.presence_penalty};
  const TokenCount* counts = t.counts + static_cast<int64_t>(slot.counts_row) * t.V;
  const int32_t* path = t.path_tokens + row.path_begin;
  const auto is_drawn = [&](int i) { return (row.path >> i & 1) != 0; };
  const auto on_path = [&](int token, int from) {
    int32_t count = 0;
    HEDDLE_ROLLED
    for (int i = from; i < kMostOnPath && row.path >> i != 0; ++i) {
      count += is_drawn(i) && path[i] == token ? 1 : 0;
    }
    return count;
  };
  team.each(end - begin, [&](int i) {
    const int token = begin + i;
    if (counts[token] == 0) return;
    logits[token] = penalties.apply(logits[token], counts[token] + on_path(token, 0));
  });
  if (row.path == 0) return;
  team.each(kMostOnPath, [&](int i) {
    if (!is_drawn(i)) return;
    const int token = path[i];
    if (token < begin || token >= end || counts[token] != 0) return;
    const int32_t from_here = on_path(token, i);
    if (from_here == on_path(token, 0)) logits[token] = penalties.apply(logits[token], from_here);
  });
}

// Edits the logits of tiles [first, last) of row r and finds the best logit of each.
template <typename Team>
HEDDLE_TEAM void find_tile_maxima(Team& team, const Tables& t, int64_t r, const RowRequest& own,
                                  int first, int last) {
  if (own.row.slot < 0) return;
  const RowScratch scratch = t.scratch_of(r);
  float* logits = t.logits_of(r);
  const int end = last * kTileTokens < t.V ? last * kTileTokens : t.V;
  edit_logits(team, t, own, logits, first * kTileTokens, end);
  if (first == 0 && needs_levels(own.slot)) {
    team.each(kMassLevels, [&](int i) {
      scratch.level_counts[i] = 0;
      scratch.level_masses[i] = 0;
    });
  }
  team.template tiles<BestLogit>(
      first, last, logits, t.V, [](int) { return true; },
      [](BestLogit& best, int, float logit) { best.take(logit); },
      [&](int tile, const BestLogit& best) { scratch.tile_max[tile] = best.max; });
}

// ---- First pass with estimates of the weight of every tile --------------------------------------

// 2^x for x <= 0, error at most 2^-21; results below 2^-126 may be 0.
[[nodiscard]] HEDDLE_TEAM inline float rough_exp2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

constexpr float kLog2OfE = 1.44269504f;

// Sum of the weights of a tile's tokens, in units of the weight of its best token.
struct TileShare {
  float sum = 0;

  HEDDLE_TEAM void join(const TileShare& other) { sum += other.sum; }
};

// Estimates the mass of all tokens from the tiles' shares, within 2^-15 of the exact sum of their
// weights. The errors are: an exponent, at most 31.3 before a token weighs nothing, comes from some
// six rounded operations (31.3 * 6 * 2^-24), exponentials are approximate (2^-20), the floats of a
// tile are summed (256 * 2^-24), and weights are rounded (2^-25). Together they are at most 0.9 of
// the bound.
struct TotalEstimate {
  double in_best = 0;  // in units of the best token's weight

  HEDDLE_TEAM void add(const RowScale& scale, float tile_max, float tile_share) {
    in_best += tile_share * rough_exp2(scale.exponent(tile_max) * kLog2OfE);
  }

  HEDDLE_TEAM void join(const TotalEstimate& other) { in_best += other.in_best; }

  [[nodiscard]] HEDDLE_TEAM uint64_t low() const { return mass(1 - 0x1p-15); }

  [[nodiscard]] HEDDLE_TEAM uint64_t high() const { return mass(1 + 0x1p-15); }

 private:
  [[nodiscard]] HEDDLE_TEAM uint64_t mass(double factor) const {
    const double mass = in_best * factor * static_cast<double>(kUnitWeight);
    return mass < 0x1p64 ? static_cast<uint64_t>(mass) : ~uint64_t{0};
  }
};

// As find_tile_maxima() for tiles [first, last) of row r, with the tiles' shares of the mass.
template <typename Team>
HEDDLE_TEAM void find_tile_shares(Team& team, const Tables& t, int64_t r, const RowRequest& own,
                                  int first, int last) {
  if (own.row.slot < 0) return;
  const RowScratch scratch = t.scratch_of(r);
  float* logits = t.logits_of(r);
  const int end = last * kTileTokens < t.V ? last * kTileTokens : t.V;
  edit_logits(team, t, own, logits, first * kTileTokens, end);
  const float scale = own.slot.inverse_temperature * kLog2OfE;
  const bool weighs = own.slot.top_p < 1;  // without top_p the estimate is not needed
  team.template tiles_twice<BestLogit, TileShare>(
      first, last, logits, t.V, [](BestLogit& best, int, float logit) { best.take(logit); },
      [&](TileShare& share, const BestLogit& best, float logit) {
        if (weighs) share.sum += rough_exp2((logit - best.max) * scale);
      },
      [&](int tile, const BestLogit& best, const TileShare& share) {
        scratch.tile_max[tile] = best.max;
        scratch.tile_shares[tile] = best.max > -INFINITY ? share.sum : 0;
      });
}

// Prefetches a value that will be read soon.
HEDDLE_TEAM inline void prefetch([[maybe_unused]] const float* value) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L1 [%0];" ::"l"(value));
#endif
}

template <bool kReadsShares = false, typename Team>
HEDDLE_TEAM BestLogit best_of_row(Team& team, const RowScratch& scratch, int tiles) {
  return team.template reduce<BestLogit>(tiles, [&](BestLogit& best, int tile) {
    if constexpr (kReadsShares) prefetch(&scratch.tile_shares[tile]);
    best.take(scratch.tile_max[tile]);
  });
}

[[nodiscard]] HEDDLE_TEAM inline SampleOutcome outcome_of(const BestLogit& best) {
  if (best.max != best.max) return SampleOutcome::kNotANumber;
  if (best.max == INFINITY) return SampleOutcome::kInfinite;
  return best.max == -INFINITY ? SampleOutcome::kAllMasked : SampleOutcome::kDrawn;
}

// ---- Second pass: the weights of every tile -----------------------------------------------------

// A 64-bit sum that threads add to with 32-bit atomics; shared memory has no 64-bit atomic addition
// without a loop.
struct SplitSum {
  uint32_t low;
  uint32_t high;

  template <typename Team>
  HEDDLE_TEAM void add(Team& team, uint64_t x) {
    const auto x_low = static_cast<uint32_t>(x);
    const uint32_t before = team.add(&low, x_low);
    const uint32_t carry = before + x_low < before ? 1 : 0;
    const uint32_t x_high = static_cast<uint32_t>(x >> 32) + carry;
    if (x_high != 0) team.add(&high, x_high);
  }

  [[nodiscard]] HEDDLE_TEAM uint64_t value() const { return uint64_t{high} << 32 | low; }
};

struct LevelSums {
  SplitSum masses[kMassLevels];
  uint32_t counts[kMassLevels];
};

// Sums the weights of tiles [first, last), skipping those whose best token weighs nothing.
template <typename Team>
HEDDLE_TEAM void store_tile_sums(Team& team, const Tables& t, int64_t r, const RowScale& scale,
                                 int first, int last) {
  const RowScratch scratch = t.scratch_of(r);
  team.template tiles<ShortWeightSum>(
      first, last, t.logits_of(r), t.V,
      [&](int tile) { return scale.level(scratch.tile_max[tile]) < kWeightlessLevel; },
      [&](ShortWeightSum& sum, int, float logit) {
        sum.add(exp_of_negative(scale.exponent(logit)));
      },
      [&](int tile, const ShortWeightSum& sum) { scratch.tile_sums[tile] = sum.total(); });
}

// `shared` is the shared memory of the team.
template <typename Team>
HEDDLE_TEAM void sum_tiles(Team& team, LevelSums& shared, const Tables& t, int64_t r,
                           const RowRequest& own, int first, int last) {
  const SamplingSlot& slot = own.slot;
  if (own.row.slot < 0 || !needs_sums(slot)) return;
  const RowScratch scratch = t.scratch_of(r);
  const BestLogit best = best_of_row(team, scratch, t.tiles());
  if (outcome_of(best) != SampleOutcome::kDrawn) return;
  const RowScale scale = RowScale::of(best.max, slot);
  if (!needs_levels(slot)) return store_tile_sums(team, t, r, scale, first, last);
  team.each(kMassLevels, [&](int i) {
    shared.masses[i] = {.low = 0, .high = 0};
    shared.counts[i] = 0;
  });
  team.template tiles<ShortWeightSum>(
      first, last, t.logits_of(r), t.V,
      [&](int tile) { return scale.level(scratch.tile_max[tile]) < kWeightlessLevel; },
      [&](ShortWeightSum& sum, int, float logit) {
        const float exponent = scale.exponent(logit);
        const float exponential = exp_of_negative(exponent);
        sum.add(exponential);
        const int level = RowScale::level_of(exponent);
        if (level < kMassLevels) {
          shared.masses[level].add(team, fixed_weight(exponential));
          team.add(&shared.counts[level], 1u);
        }
      },
      [&](int tile, const ShortWeightSum& sum) { scratch.tile_sums[tile] = sum.total(); });
  team.each(kMassLevels, [&](int i) {
    if (shared.counts[i] == 0) return;
    team.add(&scratch.level_counts[i], shared.counts[i]);
    team.add(&scratch.level_masses[i], shared.masses[i].value());
  });
}

}  // namespace heddle::ops::sampling_steps
