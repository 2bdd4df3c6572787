// SPDX-License-Identifier: Apache-2.0
// The third pass of sample_rows over a row, executed by a team (sample_row_steps.h): draws the
// token from all tokens, from few ranked candidates or from a cut through many, and lists the best
// tokens.
#pragma once

#include <cstdint>

#include "ops/sampling/finish_shared.h"
#include "ops/sampling/logit_edits.h"
#include "ops/sampling/row_scratch.h"
#include "ops/sampling/sample_row_steps.h"
#include "ops/sampling/sample_rows.h"
#include "ops/sampling/token_weight.h"
#include "ops/sampling/uniform_draw.h"

namespace heddle::ops::sampling_steps {

// Bounds of the tokens that may be drawn, known before ranks and masses are computed.
struct Bounds {
  // Deepest level that is kept; tokens of deeper levels weigh nothing.
  int level = kWeightlessLevel - 1;
  float lowest = -INFINITY;

  [[nodiscard]] HEDDLE_TEAM bool hold(const RowScale& scale, float logit) const {
    return logit >= lowest && scale.level(logit) <= level;
  }
};

// Lower and upper bound of the mass that tokens better than a kept one may have at most.
struct MassLimit {
  uint64_t low = kNoLimit;
  uint64_t high = kNoLimit;
};

// The tokens, best first, that top_k and top_p keep: all with a distance below `distance`, and a
// given number of those at that distance, lowest ids first.
struct Cut {
  uint32_t distance = ~uint32_t{0};
  uint64_t equals = 0;
};

// Writes the row's result. One thread calls it, after everything else of the row was written.
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

// Writes the drawn token and the row's result. One thread calls it.
HEDDLE_TEAM inline void publish(const Tables& t, int64_t r, const RowRequest& own,
                                const SampledRow& sampled) {
  if (own.row.publish != 0 && t.drawn != nullptr) t.drawn[own.row.slot] = sampled.token;
  tell(t, r, own.slot, sampled);
}

// Clears the counts that gather() and count_levels() add to.
template <typename Team>
HEDDLE_TEAM void begin_search(Team& team, FinishShared& shared) {
  team.each(kBins, [&](int i) {
    shared.bin_counts[i] = 0;
    if (i != 0) return;
    shared.num_tiles = 0;
    shared.num_candidates = 0;
    shared.is_unsure = 0;
  });
}

// Draws the token of a row and writes its results. The kind of draw says which passes were executed
// before.
template <DrawKind kKind, typename Team>
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
    if (!has_levels() && !team_.stays_alone()) return;
    const BestLogit best = best_of_row<kEstimates>(team_, scratch_, t_.tiles());
    SampledRow sampled;
    sampled.outcome = outcome_of(best);
    if (sampled.outcome == SampleOutcome::kDrawn) {
      scale_ = RowScale::of(best.max, slot_);
      if (!kEstimates && needs_sums(slot_)) mass_ = sum_of_tiles();
      if (slot_.greedy != 0) {
        sampled.token = best_token();
      } else if (kKind == DrawKind::kAny && is_open(slot_)) {
        sampled.token = draw_open();
      } else {
        sampled.token = draw_bounded();
      }
    }
    if (team_.share() != 0) return;
    if (kKind == DrawKind::kAny && sampled.token >= 0 && slot_.top_logprobs >= 0) {
      sampled.logit = logits_[sampled.token];
      sampled.max = scale_.max;
      sampled.total = mass_;
      sampled.num_top_logits = list_top_logits();
    }
    team_.each(1, [&](int) { publish(t_, r_, {.row = row_, .slot = slot_}, sampled); });
  }

 private:
  static constexpr bool kEstimates = kKind == DrawKind::kFew;

  [[nodiscard]] HEDDLE_TEAM bool has_levels() const {
    return kKind == DrawKind::kAny && needs_levels(slot_);
  }

  HEDDLE_TEAM uint64_t sum_of_tiles() {
    return team_
        .template reduce<MassSum>(
            t_.tiles(), [&](MassSum& sum, int tile) { sum.mass += scratch_.tile_sums[tile]; })
        .mass;
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

  // Sets `found` to the index i whose mass contains the target, and `rest` to the target's offset
  // in it. at(i) is the sum of the masses before i, `all` the sum of all masses.
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
    if (!kEstimates) begin_search(team_, shared_);
    TotalEstimate estimate;
    if (slot_.top_k > 0) {
      estimate = count_levels();
      tighten(level_of_count(slot_.top_k));
    }
    if (has_levels()) {
      const uint64_t limit = mass_limit();
      tighten(level_of_mass(limit));
      if (count_within(bounds.level) > kMostCandidates) return draw_cut(bounds, most, limit);
    }
    if (!team_.stays_alone()) return -1;
    const int n = gather(bounds);
    if (kEstimates && slot_.top_p < 1 && n <= kMostCompared) {
      const int32_t token = draw_counted(n, most,
                                         {.low = share_of_mass(slot_.top_p, estimate.low()),
                                          .high = share_of_mass(slot_.top_p, estimate.high())});
      if (token >= 0) return token;
    }
    if (kEstimates && slot_.top_p < 1) {
      store_tile_sums(team_, t_, r_, scale_, 0, t_.tiles());
      mass_ = sum_of_tiles();
    }
    const uint64_t limit = mass_limit();
    if (n <= kMostCompared) return draw_counted(n, most, {.low = limit, .high = limit});
    return n <= kMostCandidates ? draw_sorted(n, most, limit) : draw_cut(bounds, most, limit);
  }

  // The mass that top_p keeps. Requires that the mass of all tokens is known.
  [[nodiscard]] HEDDLE_TEAM uint64_t mass_limit() const {
    return slot_.top_p < 1 ? share_of_mass(slot_.top_p, mass_) : kNoLimit;
  }

  // Number of tokens at levels up to `level`; kNoLimit if `level` is at least kMassLevels, whose
  // tokens were not counted. Always synchronises the team, because the bins that locate() reads are
  // reused afterwards.
  HEDDLE_TEAM uint64_t count_within(int level) {
    const int end = level < kMassLevels ? level + 1 : kMassLevels;
    const MassSum count = team_.template reduce<MassSum>(
        end, [&](MassSum& sum, int i) { sum.mass += scratch_.level_counts[i]; });
    return level < kMassLevels ? count.mass : kNoLimit;
  }

  // Counts tiles by the level of their best token, in bin_counts, and estimates their mass.
  HEDDLE_TEAM TotalEstimate count_levels() {
    return team_.template reduce<TotalEstimate>(t_.tiles(), [&](TotalEstimate& total, int tile) {
      const float best = scratch_.tile_max[tile];
      team_.add(&shared_.bin_counts[scale_.level(best)], 1u);
      if (kEstimates) total.add(scale_, best, scratch_.tile_shares[tile]);
    });
  }

  // A level that contains at least `count` tokens together with the better levels: the one by
  // which `count` tiles have their best token. kWeightlessLevel if there are not enough tiles.
  HEDDLE_TEAM int level_of_count(int count) {
    const int level = team_.template locate<kBins>([&](int i) { return shared_.bin_counts[i]; },
                                                   static_cast<uint64_t>(count) - 1);
    return level < kWeightlessLevel ? level : kWeightlessLevel;
  }

  // The first level at which the sum of the weights exceeds `limit`: no deeper token is kept.
  HEDDLE_TEAM int level_of_mass(uint64_t limit) {
    const int level =
        team_.template locate<kMassLevels>([&](int i) { return scratch_.level_masses[i]; }, limit);
    return level < kMassLevels ? level : kWeightlessLevel;
  }

  // Collects the candidates in no particular order and returns their number, which may exceed
  // kMostCandidates; the candidates beyond that are not stored.
  HEDDLE_TEAM int gather(const Bounds& bounds) {
    const float deepest = scale_.deepest_of(bounds.level);
    team_.each(t_.tiles(), [&](int tile) {
      if (!(scratch_.tile_max[tile] >= deepest)) return;
      shared_.tiles[team_.add(&shared_.num_tiles, 1u)] = static_cast<uint16_t>(tile);
    });
    team_.few_tokens(
        static_cast<int>(shared_.num_tiles), [&](int i) { return int{shared_.tiles[i]}; }, logits_,
        t_.V, [&](float logit) { return logit >= deepest; },
        [&](int token, float logit) {
          if (!bounds.hold(scale_, logit)) return;
          const uint32_t at = team_.add(&shared_.num_candidates, 1u);
          if (at >= kMostCandidates) return;
          shared_.candidates[at] = {.rank = static_cast<uint32_t>(token), .weight = bits_of(logit)};
        });
    const auto n = static_cast<int>(shared_.num_candidates);
    team_.each(n < kMostCandidates ? n : kMostCandidates, [&](int i) {
      Candidate& candidate = shared_.candidates[i];
      const float logit = float_of(static_cast<uint32_t>(candidate.weight));
      candidate.rank |= uint64_t{scale_.distance(logit)} << 32;
      candidate.weight = scale_.weight(logit);
    });
    return n;
  }

  // Sorts the candidates by ascending rank with Batcher's bitonic network.
  HEDDLE_TEAM void sort(int n) {
    int width = 1;
    while (width < n) width *= 2;
    Candidate* x = shared_.candidates;
    team_.each(width - n, [&](int i) { x[n + i] = {.rank = kNoLimit, .weight = 0}; });
    const auto step = [&](int size, int stride, int i) {
      const int low = 2 * i - (i & (stride - 1));  // `stride` is a power of two
      const int high = low + stride;
      const bool ascends = (low & size) == 0;
      if ((x[low].rank > x[high].rank) != ascends) return;
      const Candidate kept = x[low];
      x[low] = x[high];
      x[high] = kept;
    };
    const bool is_small = width <= 2 * kOneWarp;
    HEDDLE_ROLLED
    for (int size = 2; size <= width; size *= 2) {
      HEDDLE_ROLLED
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

  // Each candidate is compared with all others twice: with the better ones, to find out whether it
  // is kept, and with the kept ones of lower ids, to find out where its share of the mass begins.
  // Sums are exact, so that the result is that of sorting. Returns -1 if the result depends on
  // where between the bounds of `limit` the true limit is.
  HEDDLE_TEAM int32_t draw_counted(int n, uint64_t most, const MassLimit& limit) {
    const Candidate* x = shared_.candidates;
    uint64_t* kept_weights = shared_.first;
    team_.template each_sum<BetterOnes>(
        n, n,
        [&](BetterOnes& better, int i, int j) {
          if (x[j].rank >= x[i].rank) return;
          ++better.count;
          better.mass += x[j].weight;
        },
        [&](int i, const BetterOnes& better) {
          const bool is_kept = better.count < most && better.mass <= limit.low;
          kept_weights[i] = is_kept ? x[i].weight : 0;
          if (!is_kept && better.count < most && better.mass <= limit.high) {
            team_.raise(&shared_.is_unsure, 1);
          }
        });
    if (limit.low != limit.high && shared_.is_unsure != 0) return -1;
    team_.template each_sum<KeptMass>(
        n, n,
        [&](KeptMass& kept, int i, int j) {
          kept.all += kept_weights[j];
          if (static_cast<uint32_t>(x[j].rank) < static_cast<uint32_t>(x[i].rank)) {
            kept.before += kept_weights[j];
          }
        },
        [&](int i, const KeptMass& kept) {
          const uint64_t target = target_of(kept.all);
          if (kept.before <= target && target < kept.before + kept_weights[i]) {
            shared_.found = static_cast<int32_t>(x[i].rank);
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

  // First tile of the row that a team of the group processes.
  [[nodiscard]] HEDDLE_TEAM int first_tile_of(int share) const {
    return t_.tiles() * share / team_.shares();
  }

  // Calls tiles() for the whole row, divided among the teams; every team gets the sums.
  template <typename Visit, typename Map>
  HEDDLE_TEAM void sum_row(const Visit& visit, const Map& map) {
    team_.meet();  // all teams have read the sums of the previous call
    team_.template tiles<MassSum>(first_tile_of(team_.share()), first_tile_of(team_.share() + 1),
                                  logits_, t_.V, visit, map, [&](int tile, const MassSum& sum) {
                                    HEDDLE_ROLLED
                                    for (int share = 0; share < team_.shares(); ++share) {
                                      *team_.of_share(&shared_.tile_masses[tile], share) = sum.mass;
                                    }
                                  });
    team_.meet();
  }

  // As draw_sorted(), for too many candidates to sort.
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
    // Counts how many tokens at the cut's distance each tile keeps.
    sum_row(visit,
            [&](MassSum& count, int, float logit) { count.mass += is_equal(logit) ? 1 : 0; });
    const uint64_t num_equals = team_.scan(t_.tiles(), at);
    team_.each(t_.tiles(), [&](int tile) {
      const uint64_t before = at(tile);
      const uint64_t next = tile + 1 < t_.tiles() ? at(tile + 1) : num_equals;
      const uint64_t end = next < cut.equals ? next : cut.equals;
      shared_.tiles[tile] = static_cast<uint16_t>(end > before ? end - before : 0);
    });
    // Sums the weight of the tokens that each tile keeps.
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

  // Finds the cut digit by digit of the distances, most significant first: it is in the last bin
  // whose first token is kept.
  HEDDLE_TEAM Cut find_cut(const Bounds& bounds, uint64_t most, uint64_t limit) {
    constexpr int kDigitBits = 8;
    const auto count_at = [&](int i) -> uint64_t& { return shared_.first[i]; };
    const auto mass_at = [&](int i) -> uint64_t& { return shared_.second[i]; };
    Cut cut{.distance = 0};
    uint64_t count_before = 0;
    uint64_t mass_before = 0;
    HEDDLE_ROLLED
    for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
      count_bins(bounds, cut.distance, shift);
      team_.meet();
      team_.each(kBins, [&](int i) {
        count_at(i) = 0;
        mass_at(i) = 0;
        HEDDLE_ROLLED
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
      team_.meet();  // all threads have read the bins, which are cleared next
    }
    if (cut.equals > most - count_before) cut.equals = most - count_before;
    const uint64_t weight = scale_.weight(scale_.logit_at(cut.distance));
    if (weight > 0) {
      // Tokens that are kept in addition to the first.
      const uint64_t fit = (limit - mass_before) / weight;
      if (fit < cut.equals - 1) cut.equals = fit + 1;
    }
    return cut;
  }

  // Counts and masses by the digit at `shift`, for this team's candidates whose higher digits are
  // those of `prefix`. A thread first adds up consecutive tokens of the same bin by itself: with
  // equal logits all threads would otherwise wait for the same atomic sum.
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

  // Writes the best tokens of the row and returns their number.
  HEDDLE_TEAM int list_top_logits() {
    TopLogit* const top = t_.top_logits + r_ * kMostTopLogits;
    int wanted = slot_.top_logprobs < kMostTopLogits ? slot_.top_logprobs : kMostTopLogits;
    if (wanted > t_.V) wanted = t_.V;
    if (wanted == 0) return 0;
    begin_search(team_, shared_);
    (void)count_levels();
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
        HEDDLE_ROLLED
        for (int j = 0; j < n; ++j) num_better += x[j].rank < x[i].rank ? 1 : 0;
        if (num_better < wanted) top[num_better] = top_logit(x[i].rank);
      });
      return wanted;
    }
    // Too many candidates are near the best to rank them: finds the best tokens one after the
    // other.
    NextRank last{.rank = 0};
    HEDDLE_ROLLED
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
  uint64_t mass_ = 0;  // mass of all tokens
};

// Finishes a row after find_tile_maxima() and sum_tiles(), or for DrawKind::kFew after
// begin_search() and find_tile_shares().
template <DrawKind kKind, typename Team>
HEDDLE_TEAM void finish_row(Team& team, FinishShared& shared, const Tables& t, int64_t r,
                            const RowRequest& own) {
  if (own.row.slot >= 0) {
    RowFinisher<kKind, Team>(team, shared, t, r, own).run();
  } else if (team.share() == 0) {
    team.each(1, [&](int) { tell(t, r, own.slot, SampledRow()); });
  }
}

}  // namespace heddle::ops::sampling_steps
