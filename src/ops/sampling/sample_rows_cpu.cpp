// SPDX-License-Identifier: Apache-2.0
// The passes of sample_rows on the CPU, executed by one thread of the pool for each row.
#include <algorithm>
#include <limits>

#include "ops/cpu/row_tasks.h"
#include "ops/sampling/host_team.h"
#include "ops/sampling/row_finisher.h"
#include "ops/sampling/sample_row_steps.h"

namespace heddle::ops {

namespace {

// A team of one thread, which executes the parts of all threads in turn: a phase ends when the last
// part is done.
class SerialTeam : public sampling_steps::HostTeam<SerialTeam> {
 public:
  [[nodiscard]] static int size() { return 64; }

  template <typename Body>
  void each(int n, const Body& body) {
    for (int i = 0; i < n; ++i) body(i);
  }

  template <typename Body>
  void few(int n, const Body& body) {
    each(n, body);
  }

  template <typename Value, typename Map>
  Value reduce(int n, const Map& map) {
    Value all;
    for (int i = 0; i < n; ++i) {
      Value one;
      map(one, i);
      all.join(one);
    }
    return all;
  }

  template <typename Value, typename Visit, typename Map, typename Store>
  void tiles(int first, int last, const float* logits, int V, const Visit& visit, const Map& map,
             const Store& store) {
    for (int tile = first; tile < last; ++tile) {
      Value value;
      const int end = std::min(V, (tile + 1) * kTileTokens);
      if (visit(tile)) {
        for (int token = tile * kTileTokens; token < end; ++token) map(value, token, logits[token]);
      }
      store(tile, value);
    }
  }

  template <typename Value, typename Other, typename Map, typename Again, typename Store>
  void tiles_twice(int first, int last, const float* logits, int V, const Map& map,
                   const Again& again, const Store& store) {
    for (int tile = first; tile < last; ++tile) {
      Value value;
      Other other;
      const int begin = tile * kTileTokens;
      const int end = std::min(V, begin + kTileTokens);
      for (int token = begin; token < end; ++token) map(value, token, logits[token]);
      for (int token = begin; token < end; ++token) again(other, value, logits[token]);
      store(tile, value, other);
    }
  }

  template <typename Value, typename TileAt, typename Map, typename End>
  void tokens(int n, const TileAt& tile_at, const float* logits, int V, const Map& map,
              const End& end) {
    Value value;
    for (int i = 0; i < n; ++i) {
      const int tile = tile_at(i);
      if (tile < 0) continue;
      const int last = std::min(V, (tile + 1) * kTileTokens);
      for (int token = tile * kTileTokens; token < last; ++token) map(value, token, logits[token]);
    }
    end(value);
  }

  template <typename At>
  uint64_t scan(int n, const At& at) {
    uint64_t sum = 0;
    for (int i = 0; i < n; ++i) {
      const uint64_t value = at(i);
      at(i) = sum;
      sum += value;
    }
    return sum;
  }

  template <typename Number>
  Number add(Number* sum, Number value) {
    const Number before = *sum;
    *sum += value;
    return before;
  }

  void raise(int32_t* most, int32_t value) { *most = std::max(*most, value); }

  [[nodiscard]] static int share() { return 0; }

  [[nodiscard]] static int shares() { return 1; }

  template <typename Value>
  [[nodiscard]] static Value* of_share(Value* value, int) {
    return value;
  }

  void meet() {}

  [[nodiscard]] static bool stays_alone() { return true; }
};

}  // namespace

Status sample_rows_cpu(CpuContext& context, const SampleRowsArgs& args) {
  using namespace sampling_steps;
  constexpr int kTilesAtOnce = 16;
  const Tables tables = Tables::of(args);
  const int64_t num_rows = args.logits.shape[0];
  for_row_ranges(context.pool, num_rows, 16 * tables.V, [&](int64_t begin, int64_t end) {
    SerialTeam team;
    LevelSums levels;
    FinishShared shared;
    for (int64_t r = begin; r < end; ++r) {
      const RowRequest own = tables.request(r);
      if (args.kind == DrawKind::kFew) {
        begin_search(team, shared);
        find_tile_shares(team, tables, r, own, 0, tables.tiles());
        finish_row<DrawKind::kFew>(team, shared, tables, r, own);
        continue;
      }
      for (int tile = 0; tile < tables.tiles(); tile += kTilesAtOnce) {
        find_tile_maxima(team, tables, r, own, tile, std::min(tables.tiles(), tile + kTilesAtOnce));
      }
      for (int tile = 0; tile < tables.tiles(); tile += kTilesAtOnce) {
        sum_tiles(team, levels, tables, r, own, tile,
                  std::min(tables.tiles(), tile + kTilesAtOnce));
      }
      finish_row<DrawKind::kAny>(team, shared, tables, r, own);
    }
  });
  return {};
}

}  // namespace heddle::ops
