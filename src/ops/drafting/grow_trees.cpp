// SPDX-License-Identifier: Apache-2.0
#include "ops/drafting/grow_trees.h"

#include <vector>

#include "ops/drafting/grow_tree_steps.h"

namespace heddle::ops {

namespace {

// A team of one thread, which executes all indices in order.
struct SerialTeam {
  template <typename Body>
  void each(int n, const Body& body) {
    for (int i = 0; i < n; ++i) body(i);
  }
};

}  // namespace

int64_t grown_tree_bytes(const GrownShape& shape) {
  return sampling_steps::GrownTreeMemory::bytes(shape);
}

Status grow_trees(Context& context, const GrowTreesArgs& args) {
  if (args.num_trees == 0) return {};
  return HEDDLE_DISPATCH_DEVICE(context, grow_trees, args);
}

Status select_drafts(Context& context, const SelectDraftsArgs& args) {
  if (args.num_trees == 0) return {};
  return HEDDLE_DISPATCH_DEVICE(context, select_drafts, args);
}

Status grow_trees_cpu(CpuContext& /*context*/, const GrowTreesArgs& args) {
  SerialTeam team;
  sampling_steps::GrowScratch scratch{};
  for (int64_t i = 0; i < args.num_trees; ++i) {
    sampling_steps::grow_tree(team, scratch, args, args.trees[i]);
  }
  return {};
}

Status select_drafts_cpu(CpuContext& /*context*/, const SelectDraftsArgs& args) {
  SerialTeam team;
  std::vector<int32_t> kept(static_cast<size_t>(args.shape.num_candidates(args.shape.num_steps)));
  for (int64_t i = 0; i < args.num_trees; ++i) {
    sampling_steps::select_of_tree(team, kept.data(), args, args.trees[i], args.selected[i]);
  }
  return {};
}

}  // namespace heddle::ops
