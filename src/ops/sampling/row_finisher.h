// SPDX-License-Identifier: Apache-2.0
// The third pass of sample_rows over a row, by the team of sample_row_steps.h: draws the token,
// from all tokens, from few candidates or from a cut through many, and lists the best.
#pragma once

#include <cstdint>

#include "ops/sampling/logit_edits.h"
#include "ops/sampling/row_scratch.h"
#include "ops/sampling/sample_row_steps.h"
#include "ops/sampling/sample_rows.h"
#include "ops/sampling/token_weight.h"
#include "ops/sampling/uniform_draw.h"

namespace heddle::ops::sampling_steps {

constexpr uint64_t kNoLimit = ~uint64_t{0};
constexpr int32_t kNone = 0x7fffffff;
constexpr int kMostCandidates = 2048;
constexpr int kMostTiles = 4096;  // of the largest vocabulary
constexpr int kBins = 256;
constexpr int kFew = 32;              // a warp
constexpr int kMostCompared = kBins;  // candidates that are placed by comparing all with all

struct MassSum {
  uint64_t mass = 0;

  HEDDLE_TEAM void join(const MassSum& other) { mass += other.mass; }
};

struct RowTotals {
  BestLogit best;
  MassSum sum;

  HEDDLE_TEAM void join(const RowTotals& other) {
    best.join(other.best);
    sum.join(other.sum);
  }
};

struct LowestIndex {
  int32_t index = kNone;

  HEDDLE_TEAM void take(int32_t other) {
    if (other < index) index = other;
  }

  HEDDLE_TEAM void join(const LowestIndex& other) { take(other.index); }
};

// A candidate: distance << 32 | token at first, the token alone once it is known to be kept.
struct Candidate {
  uint64_t rank;
  uint64_t weight;  // or the sum of those before it
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
  uint16_t tiles[kMostTiles];  // those with candidates; later the equals that each tile keeps
  uint32_t num_tiles;
  uint32_t num_candidates;
  int32_t found;
  uint64_t rest;
};

// Bounds of the tokens that may be drawn, before ranks and masses are looked at.
struct Bounds {
  int level = kWeightlessLevel - 1;  // deeper tokens weigh nothing
  float lowest = -INFINITY;

  [[nodiscard]] HEDDLE_TEAM bool hold(const RowScale& scale, float logit) const {
    return logit >= lowest && scale.level(logit) <= level;
  }
};

// The prefix of the tokens, best first, that top_k and top_p keep: those nearer than `distance`,
// and so many at that distance, lowest ids first.
struct Cut {
  uint32_t distance = ~uint32_t{0};
  uint64_t equals = 0;
};

// By one thread, behind all that others wrote of the row.
HEDDLE_TEAM inline void tell(const Tables& t, int64_t r, [[maybe_unused]] const SamplingSlot& slot,
                             const SampledRow& sampled) {
  SampledRow& told = t.sampled[r];
  told.logit = sampled.logit;
  told.max = sampled.max;
  told.total = sampled.total;
  told.num_top_logits = sampled.num_top_logits;
#ifdef __CUDA_ARCH__
  if (t.tells_all || (t.is_watched && slot.top_logprobs >= 0)) __threadfence_system();
  const uint64_t both =
      uint64_t{static_cast<uint32_t>(sampled.outcome)} << 32 | static_cast<uint32_t>(sampled.token);
  *reinterpret_cast<volatile uint64_t*>(&told) = both;
#else
  told.token = sampled.token;
  told.outcome = sampled.outcome;
#endif
}

// By one thread.
HEDDLE_TEAM inline void publish(const Tables& t, int64_t r, const RowRequest& own,
                                const SampledRow& sampled) {
  if (own.row.publish != 0 && t.drawn != nullptr) t.drawn[own.row.slot] = sampled.token;
  tell(t, r, own.slot, sampled);
}

template <typename Team>
class RowFinisher {
 public:
  HEDDLE_TEAM RowFinisher(Team& team, FinishShared& shared, const Tables& tables, int64_t r,
                          const RowRequest& own)
      : team_(team),
        shared_(shared),
        t_(tables),
        row_(own.row),
        slot_(own.slot),
        scratch_(tables.scratch_of(r)),
        logits_(tables.logits_of(r)),
        r_(r) {}

  HEDDLE_TEAM void run() {
    if (!needs_levels(slot_) && !team_.stays_alone()) return;
    const RowTotals totals = totals_of_row();
    SampledRow sampled;
    sampled.outcome = outcome_of(totals.best);
    if (sampled.outcome == SampleOutcome::kDrawn) {
      scale_ = RowScale::of(totals.best.max, slot_);
      mass_ = totals.sum.mass;
      if (slot_.greedy != 0) {
        sampled.token = best_token();
      } else if (is_open(slot_)) {
        sampled.token = draw_open();
      } else {
        sampled.token = draw_bounded();
      }
    }
    if (team_.share() != 0) return;
    if (sampled.token >= 0 && slot_.top_logprobs >= 0) {
      sampled.logit = logits_[sampled.token];
      sampled.max = scale_.max;
      sampled.total = mass_;
      sampled.num_top_logits = list_top_logits();
    }
    team_.each(1, [&](int) { publish(t_, r_, {.row = row_, .slot = slot_}, sampled); });
  }

 private:
  // The mass is that of all tokens where it was summed, else 0.
  HEDDLE_TEAM RowTotals totals_of_row() {
    const bool has_sums = needs_sums(slot_);
    return team_.template reduce<RowTotals>(t_.tiles(), [&](RowTotals& totals, int tile) {
      totals.best.take(scratch_.tile_max[tile]);
      if (has_sums) totals.sum.mass += scratch_.tile_sums[tile];
    });
  }

  [[nodiscard]] HEDDLE_TEAM int tokens_of(int tile) const {
    const int left = t_.V - tile * kTileTokens;
    return left < kTileTokens ? left : kTileTokens;
  }

  [[nodiscard]] HEDDLE_TEAM uint64_t target_of(uint64_t mass) const {
    return draw_target(slot_.seed, row_.position, slot_.choice_index, mass);
  }

  HEDDLE_TEAM int32_t best_token() {
    const int tile = team_
                         .template reduce<LowestIndex>(t_.tiles(),
                                                       [&](LowestIndex& low, int i) {
                                                         if (scratch_.tile_max[i] == scale_.max)
                                                           low.take(i);
                                                       })
                         .index;
    const int begin = tile * kTileTokens;
    return begin + team_
                       .template reduce<LowestIndex>(tokens_of(tile),
                                                     [&](LowestIndex& low, int i) {
                                                       if (logits_[begin + i] == scale_.max)
                                                         low.take(i);
                                                     })
                       .index;
  }

  // Sets found to the i whose mass holds the target, and rest to where in it. at(i) are sums of the
  // masses before i, all(): with those after the last.
  template <typename At>
  HEDDLE_TEAM int find(int n, const At& at, uint64_t all, uint64_t target) {
    team_.each(n, [&](int i) {
      const uint64_t next = i + 1 < n ? at(i + 1) : all;
      if (at(i) <= target && target < next) {
        shared_.found = i;
        shared_.rest = target - at(i);
      }
    });
    return shared_.found;
  }

  HEDDLE_TEAM int32_t draw_open() {
    const auto at = [&](int i) -> uint64_t& { return shared_.tile_masses[i]; };
    team_.each(t_.tiles(), [&](int i) { at(i) = scratch_.tile_sums[i]; });
    const uint64_t mass = team_.scan(t_.tiles(), at);
    const int tile = find(t_.tiles(), at, mass, target_of(mass));
    return draw_in_tile(tile, shared_.rest,
                        [&](int token) { return scale_.weight(logits_[token]); });
  }

  template <typename Weight>
  HEDDLE_TEAM int32_t draw_in_tile(int tile, uint64_t target, const Weight& weight) {
    const int begin = tile * kTileTokens;
    const int n = tokens_of(tile);
    const auto at = [&](int i) -> uint64_t& { return shared_.first[i]; };
    team_.each(n, [&](int i) { at(i) = weight(begin + i); });
    const uint64_t mass = team_.scan(n, at);
    return begin + find(n, at, mass, target);
  }

  HEDDLE_TEAM int32_t draw_bounded() {
    Bounds bounds{.lowest = lowest_within(scale_.max, slot_.min_p_reach)};
    const auto tighten = [&](int level) {
      if (level < bounds.level) bounds.level = level;
    };
    tighten(scale_.level(bounds.lowest));
    const uint64_t most = slot_.top_k > 0 ? static_cast<uint64_t>(slot_.top_k) : kNoLimit;
    const uint64_t limit = slot_.top_p < 1 ? share_of_mass(slot_.top_p, mass_) : kNoLimit;
    if (slot_.top_k > 0) tighten(level_of_count(slot_.top_k));
    if (needs_levels(slot_)) {
      tighten(level_of_mass(limit));
      if (count_within(bounds.level) > kMostCandidates) return draw_cut(bounds, most, limit);
    }
    if (!team_.stays_alone()) return -1;
    const int n = gather(bounds);
    return n <= kMostCandidates ? draw_candidate(n, most, limit) : draw_cut(bounds, most, limit);
  }

  // Tokens of levels up to this one; deep ones were not counted, and are taken for many.
  HEDDLE_TEAM uint64_t count_within(int level) {
    if (level >= kMassLevels) return kNoLimit;
    return team_
        .template reduce<MassSum>(
            level + 1, [&](MassSum& count, int i) { count.mass += scratch_.level_counts[i]; })
        .mass;
  }

  // A level that at least `count` tokens reach, as every tile has one that is as good as its best;
  // kWeightlessLevel if the tiles do not tell.
  HEDDLE_TEAM int level_of_count(int count) {
    team_.each(kBins, [&](int i) { shared_.bin_counts[i] = 0; });
    team_.each(t_.tiles(), [&](int i) {
      team_.add(&shared_.bin_counts[scale_.level(scratch_.tile_max[i])], 1u);
    });
    const auto at = [&](int i) -> uint64_t& { return shared_.first[i]; };
    team_.each(kBins, [&](int i) {
      at(i) = shared_.bin_counts[i];
      if (i == 0) shared_.found = kWeightlessLevel;
    });
    const uint64_t all = team_.scan(kBins, at);
    return find(kBins, at, all, static_cast<uint64_t>(count) - 1);
  }

  // The first level with which the weights exceed `limit`: nothing deeper is kept.
  HEDDLE_TEAM int level_of_mass(uint64_t limit) {
    const auto at = [&](int i) -> uint64_t& { return shared_.first[i]; };
    team_.each(kMassLevels, [&](int i) { at(i) = scratch_.level_masses[i]; });
    team_.each(1, [&](int) { shared_.found = kWeightlessLevel; });
    const uint64_t all = team_.scan(kMassLevels, at);
    return find(kMassLevels, at, all, limit);
  }

  // Collects the candidates, in no order, and says how many there are: what does not fit is lost.
  HEDDLE_TEAM int gather(const Bounds& bounds) {
    team_.each(1, [&](int) {
      shared_.num_tiles = 0;
      shared_.num_candidates = 0;
    });
    team_.each(t_.tiles(), [&](int tile) {
      if (!bounds.hold(scale_, scratch_.tile_max[tile])) return;
      shared_.tiles[team_.add(&shared_.num_tiles, 1u)] = static_cast<uint16_t>(tile);
    });

    struct Nothing {};

    team_.template tokens<Nothing>(
        static_cast<int>(shared_.num_tiles), [&](int i) { return int{shared_.tiles[i]}; }, logits_,
        t_.V,
        [&](Nothing&, int token, float logit) {
          if (!bounds.hold(scale_, logit)) return;
          const uint32_t at = team_.add(&shared_.num_candidates, 1u);
          if (at >= kMostCandidates) return;
          shared_.candidates[at] = {
              .rank = uint64_t{scale_.distance(logit)} << 32 | static_cast<uint32_t>(token),
              .weight = scale_.weight(logit)};
        },
        [](Nothing&) {});
    return static_cast<int>(shared_.num_candidates);
  }

  // By ascending rank: Batcher's bitonic network.
  HEDDLE_TEAM void sort(int n) {
    int width = 1;
    while (width < n) width *= 2;
    Candidate* x = shared_.candidates;
    team_.each(width - n, [&](int i) { x[n + i] = {.rank = kNoLimit, .weight = 0}; });
    const auto step = [&](int size, int stride, int i) {
      const int low = i / stride * 2 * stride + i % stride;
      const int high = low + stride;
      const bool ascends = (low & size) == 0;
      if ((x[low].rank > x[high].rank) != ascends) return;
      const Candidate kept = x[low];
      x[low] = x[high];
      x[high] = kept;
    };
    const bool is_small = width <= 2 * kFew;
    for (int size = 2; size <= width; size *= 2) {
      for (int stride = size / 2; stride > 0; stride /= 2) {
        const auto exchange = [&](int i) { step(size, stride, i); };
        if (is_small) {
          team_.few(width / 2, exchange);
        } else {
          team_.each(width / 2, exchange);
        }
      }
    }
    if (is_small) team_.each(0, [](int) {});
  }

  HEDDLE_TEAM int32_t draw_candidate(int n, uint64_t most, uint64_t limit) {
    return n <= kMostCompared ? draw_counted(n, most, limit) : draw_sorted(n, most, limit);
  }

  // Every candidate looks at all others twice: at the better ones, to know whether it is kept, and
  // at those that are kept and have lower ids, to know where its share of the mass begins. Sums are
  // exact, so that this is what sorting gives.
  HEDDLE_TEAM int32_t draw_counted(int n, uint64_t most, uint64_t limit) {
    const Candidate* x = shared_.candidates;
    uint64_t* kept_weights = shared_.first;
    team_.each(n, [&](int i) {
      uint64_t num_better = 0;
      uint64_t mass_before = 0;
      for (int j = 0; j < n; ++j) {
        const bool is_better = x[j].rank < x[i].rank;
        num_better += is_better ? 1 : 0;
        mass_before += is_better ? x[j].weight : 0;
      }
      kept_weights[i] = num_better < most && mass_before <= limit ? x[i].weight : 0;
    });
    const uint64_t mass =
        team_.template reduce<MassSum>(n, [&](MassSum& sum, int i) { sum.mass += kept_weights[i]; })
            .mass;
    const uint64_t target = target_of(mass);
    team_.each(n, [&](int i) {
      const auto token = static_cast<uint32_t>(x[i].rank);
      uint64_t mass_before = 0;
      for (int j = 0; j < n; ++j) {
        mass_before += static_cast<uint32_t>(x[j].rank) < token ? kept_weights[j] : 0;
      }
      if (mass_before <= target && target < mass_before + kept_weights[i]) {
        shared_.found = static_cast<int32_t>(token);
      }
    });
    return shared_.found;
  }

  HEDDLE_TEAM int32_t draw_sorted(int n, uint64_t most, uint64_t limit) {
    Candidate* x = shared_.candidates;
    const auto at = [&](int i) -> uint64_t& { return x[i].weight; };
    int kept = n;
    if (static_cast<uint64_t>(n) > most || limit != kNoLimit) {
      sort(n);
      team_.scan(n, at);
      team_.each(1, [&](int) { shared_.found = 0; });
      team_.each(n, [&](int i) {
        if (static_cast<uint64_t>(i) < most && at(i) <= limit) team_.raise(&shared_.found, i + 1);
      });
      kept = shared_.found;
    }
    team_.each(kept, [&](int i) {
      const uint64_t rank = x[i].rank;
      x[i] = {.rank = rank & 0xffffffffu,
              .weight = scale_.weight(scale_.logit_at(static_cast<uint32_t>(rank >> 32)))};
    });
    sort(kept);
    const uint64_t mass = team_.scan(kept, at);
    return static_cast<int32_t>(x[find(kept, at, mass, target_of(mass))].rank);
  }

  // The tiles of the row that are this team's, from the first of a share on.
  [[nodiscard]] HEDDLE_TEAM int first_tile_of(int share) const {
    return t_.tiles() * share / team_.shares();
  }

  // tiles() over the row, shared out; every team gets the values.
  template <typename Visit, typename Map>
  HEDDLE_TEAM void sum_row(const Visit& visit, const Map& map) {
    team_.meet();  // none reads the sums of before
    team_.template tiles<MassSum>(first_tile_of(team_.share()), first_tile_of(team_.share() + 1),
                                  logits_, t_.V, visit, map, [&](int tile, const MassSum& sum) {
                                    for (int share = 0; share < team_.shares(); ++share) {
                                      *team_.of_share(&shared_.tile_masses[tile], share) = sum.mass;
                                    }
                                  });
    team_.meet();
  }

  // The same where there are too many candidates to rank.
  HEDDLE_TEAM int32_t draw_cut(const Bounds& bounds, uint64_t most, uint64_t limit) {
    const Cut cut = most == kNoLimit && limit == kNoLimit ? Cut() : find_cut(bounds, most, limit);
    const auto visit = [&](int tile) { return bounds.hold(scale_, scratch_.tile_max[tile]); };
    const auto at = [&](int i) -> uint64_t& { return shared_.tile_masses[i]; };
    const auto is_equal = [&](float logit) {
      return bounds.hold(scale_, logit) && scale_.distance(logit) == cut.distance;
    };
    const auto mass_of_better = [&](float logit) {
      const bool better = bounds.hold(scale_, logit) && scale_.distance(logit) < cut.distance;
      return better ? scale_.weight(logit) : 0;
    };
    // How many equals each tile keeps.
    sum_row(visit,
            [&](MassSum& count, int, float logit) { count.mass += is_equal(logit) ? 1 : 0; });
    const uint64_t num_equals = team_.scan(t_.tiles(), at);
    team_.each(t_.tiles(), [&](int tile) {
      const uint64_t before = at(tile);
      const uint64_t next = tile + 1 < t_.tiles() ? at(tile + 1) : num_equals;
      const uint64_t end = next < cut.equals ? next : cut.equals;
      shared_.tiles[tile] = static_cast<uint16_t>(end > before ? end - before : 0);
    });
    // Then what each tile keeps weighs.
    const uint64_t weight_of_equal = scale_.weight(scale_.logit_at(cut.distance));
    sum_row(visit, [&](MassSum& sum, int, float logit) { sum.mass += mass_of_better(logit); });
    team_.each(t_.tiles(), [&](int tile) { at(tile) += shared_.tiles[tile] * weight_of_equal; });
    const uint64_t mass = team_.scan(t_.tiles(), at);
    const int tile = find(t_.tiles(), at, mass, target_of(mass));
    const uint64_t target = shared_.rest;

    const int begin = tile * kTileTokens;
    const auto rank = [&](int i) -> uint64_t& { return shared_.second[i]; };
    team_.each(tokens_of(tile), [&](int i) { rank(i) = is_equal(logits_[begin + i]) ? 1 : 0; });
    team_.scan(tokens_of(tile), rank);
    return draw_in_tile(tile, target, [&](int token) {
      const float logit = logits_[token];
      const bool kept = is_equal(logit) && rank(token - begin) < shared_.tiles[tile];
      return kept ? weight_of_equal : mass_of_better(logit);
    });
  }

  // Digit by digit of the distances, most significant first: the cut lies in the last bin whose
  // first token is kept.
  HEDDLE_TEAM Cut find_cut(const Bounds& bounds, uint64_t most, uint64_t limit) {
    constexpr int kDigitBits = 8;
    const auto count_at = [&](int i) -> uint64_t& { return shared_.first[i]; };
    const auto mass_at = [&](int i) -> uint64_t& { return shared_.second[i]; };
    Cut cut{.distance = 0};
    uint64_t count_before = 0;
    uint64_t mass_before = 0;
    for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
      count_bins(bounds, cut.distance, shift);
      team_.meet();
      team_.each(kBins, [&](int i) {
        count_at(i) = 0;
        mass_at(i) = 0;
        for (int share = 0; share < team_.shares(); ++share) {
          count_at(i) += *team_.of_share(&shared_.bin_counts[i], share);
          mass_at(i) += team_.of_share(&shared_.bin_masses[i], share)->value();
        }
      });
      const uint64_t count = team_.scan(kBins, count_at);
      const auto count_in = [&](int i) {
        return (i + 1 < kBins ? count_at(i + 1) : count) - count_at(i);
      };
      team_.scan(kBins, mass_at);
      team_.each(1, [&](int) { shared_.found = 0; });
      team_.each(kBins, [&](int i) {
        if (count_in(i) == 0) return;
        if (count_before + count_at(i) < most && mass_before + mass_at(i) <= limit) {
          team_.raise(&shared_.found, i);
        }
      });
      const int bin = shared_.found;
      count_before += count_at(bin);
      mass_before += mass_at(bin);
      cut.distance |= static_cast<uint32_t>(bin) << shift;
      cut.equals = count_in(bin);
      team_.meet();  // all have read the bins
    }
    if (cut.equals > most - count_before) cut.equals = most - count_before;
    const uint64_t weight = scale_.weight(scale_.logit_at(cut.distance));
    if (weight > 0) {
      const uint64_t fit = (limit - mass_before) / weight;  // after the first
      if (fit < cut.equals - 1) cut.equals = fit + 1;
    }
    return cut;
  }

  // Counts and masses, by the digit at `shift`, of this team's candidates whose higher digits are
  // those of `prefix`. A thread adds up what falls into one bin in a row: equal logits would all
  // wait for the same sum.
  HEDDLE_TEAM void count_bins(const Bounds& bounds, uint32_t prefix, int shift) {
    struct Run {
      uint32_t bin = 0;
      uint32_t count = 0;
      uint64_t mass = 0;
    };

    team_.each(kBins, [&](int i) {
      shared_.bin_counts[i] = 0;
      shared_.bin_masses[i] = {.low = 0, .high = 0};
    });
    const auto flush = [&](Run& run) {
      if (run.count == 0) return;
      team_.add(&shared_.bin_counts[run.bin], run.count);
      shared_.bin_masses[run.bin].add(team_, run.mass);
    };
    const int first = first_tile_of(team_.share());
    team_.template tokens<Run>(
        first_tile_of(team_.share() + 1) - first,
        [&](int i) { return bounds.hold(scale_, scratch_.tile_max[first + i]) ? first + i : -1; },
        logits_, t_.V,
        [&](Run& run, int, float logit) {
          if (!bounds.hold(scale_, logit)) return;
          const uint32_t distance = scale_.distance(logit);
          if ((uint64_t{distance} ^ prefix) >> (shift + 8) != 0) return;
          const uint32_t digit = distance >> shift & (kBins - 1);
          if (digit != run.bin) {
            flush(run);
            run = {.bin = digit, .count = 0, .mass = 0};
          }
          ++run.count;
          run.mass += scale_.weight(logit);
        },
        flush);
  }

  // Writes the alternatives and says how many there are.
  HEDDLE_TEAM int list_top_logits() {
    TopLogit* const top = t_.top_logits + r_ * kMostTopLogits;
    int wanted = slot_.top_logprobs < kMostTopLogits ? slot_.top_logprobs : kMostTopLogits;
    if (wanted > t_.V) wanted = t_.V;
    if (wanted == 0) return 0;
    const Bounds bounds{.level = level_of_count(wanted), .lowest = -kLargestFloat};
    const int n = gather(bounds);
    if (n <= kMostCandidates) {
      const Candidate* x = shared_.candidates;
      if (wanted > n) wanted = n;
      if (n > kMostCompared) {
        sort(n);
        team_.each(wanted, [&](int i) { top[i] = top_logit(x[i].rank); });
        return wanted;
      }
      team_.each(n, [&](int i) {
        int num_better = 0;
        for (int j = 0; j < n; ++j) num_better += x[j].rank < x[i].rank ? 1 : 0;
        if (num_better < wanted) top[num_better] = top_logit(x[i].rank);
      });
      return wanted;
    }
    // So many near the best that they are taken one after the other.
    NextRank last{.rank = 0};
    for (int i = 0; i < wanted; ++i) {
      const NextRank next = team_.template reduce<NextRank>(t_.V, [&](NextRank& best, int token) {
        if (!bounds.hold(scale_, scratch_.tile_max[token / kTileTokens])) return;
        if (!bounds.hold(scale_, logits_[token])) return;
        const NextRank other{.rank = uint64_t{scale_.distance(logits_[token])} << 32 |
                                     static_cast<uint32_t>(token)};
        if (i == 0 || other.rank > last.rank) best.join(other);
      });
      team_.each(1, [&](int) { top[i] = top_logit(next.rank); });
      last = next;
    }
    return wanted;
  }

  struct NextRank {
    uint64_t rank = kNoLimit;

    HEDDLE_TEAM void join(const NextRank& other) {
      if (other.rank < rank) rank = other.rank;
    }
  };

  [[nodiscard]] HEDDLE_TEAM TopLogit top_logit(uint64_t rank) const {
    const auto token = static_cast<int32_t>(rank & 0xffffffffu);
    return {.token = token, .logit = logits_[token]};
  }

  static constexpr float kLargestFloat = 3.40282347e38f;

  Team& team_;
  FinishShared& shared_;
  const Tables& t_;
  const SamplingRow row_;
  const SamplingSlot slot_;
  RowScratch scratch_;
  float* logits_;
  int64_t r_;
  RowScale scale_;
  uint64_t mass_ = 0;  // of all tokens
};

template <typename Team>
HEDDLE_TEAM void finish_row(Team& team, FinishShared& shared, const Tables& t, int64_t r,
                            const RowRequest& own) {
  if (own.row.slot >= 0) {
    RowFinisher<Team>(team, shared, t, r, own).run();
  } else if (team.share() == 0) {
    team.each(1, [&](int) { tell(t, r, own.slot, SampledRow()); });
  }
}

}  // namespace heddle::ops::sampling_steps
