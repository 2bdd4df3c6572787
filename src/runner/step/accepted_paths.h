// SPDX-License-Identifier: Apache-2.0
// AcceptedPaths: the nodes of their drafts (speculative/draft_tree.h) that the sequences of a step
// drew from, in the order of the plan.
//
// Threading: confined. Cost: allocates nothing once its sizes have been seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace heddle::runner {

class AcceptedPaths {
 public:
  void clear() { count_ = 0; }

  // An empty path for the next sequence that draws, to be filled: node 0 first, then every accepted
  // draft.
  [[nodiscard]] std::vector<int32_t>& add(int64_t sequence_id) {
    if (count_ == paths_.size()) paths_.emplace_back();
    Path& path = paths_[count_++];
    path.sequence_id = sequence_id;
    path.nodes.clear();
    return path.nodes;
  }

  // The one added last.
  [[nodiscard]] std::span<const int32_t> last() const { return paths_[count_ - 1].nodes; }

  // Of the sequence, if it is the one at `index`, which is then moved on; else empty.
  [[nodiscard]] std::span<const int32_t> next(int64_t sequence_id, size_t& index) const {
    if (index == count_ || paths_[index].sequence_id != sequence_id) return {};
    return paths_[index++].nodes;
  }

 private:
  struct Path {
    int64_t sequence_id = 0;
    std::vector<int32_t> nodes;
  };

  std::vector<Path> paths_;  // the first count_
  size_t count_ = 0;
};

}  // namespace heddle::runner
