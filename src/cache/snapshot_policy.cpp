// SPDX-License-Identifier: Apache-2.0
#include "cache/snapshot_policy.h"

#include <algorithm>

namespace heddle::cache {
namespace {

constexpr int64_t kStride = 256;
constexpr int64_t kRoomyStride = 128;

int64_t round_down(int64_t tokens, int64_t grid) { return tokens - tokens % grid; }

class RequestList {
 public:
  RequestList(const PrefillStep& step, std::vector<SnapshotRequest>& requests)
      : step_(step), snapshot_requests_(requests) {}

  void add(const SnapshotRequest& wanted) {
    if (wanted.tokens <= step_.begin || wanted.tokens > step_.end) return;
    const auto same = [&](const SnapshotRequest& other) { return other.tokens == wanted.tokens; };
    const auto found = std::find_if(snapshot_requests_.begin(), snapshot_requests_.end(), same);
    if (found == snapshot_requests_.end()) {
      snapshot_requests_.push_back(wanted);
    } else {
      found->keeps_hidden |= wanted.keeps_hidden;
    }
  }

 private:
  const PrefillStep& step_;
  std::vector<SnapshotRequest>& snapshot_requests_;
};

void request_many(int64_t grid, const PrefillStep& step, std::vector<SnapshotRequest>& out) {
  RequestList requests(step, out);
  for (const int64_t fork : step.forks) {
    requests.add({.tokens = round_down(fork, grid), .evicts = true});
  }
  requests.add({.tokens = round_down(step.num_tokens - 1, grid), .evicts = true});
  for (const int64_t boundary : step.role_boundaries) {
    if (boundary < step.num_tokens) requests.add({.tokens = round_down(boundary, grid)});
  }
  if (step.keeps_hidden) requests.add({.tokens = step.num_tokens, .keeps_hidden = true});
  const bool roomy = 2 * step.free_slots > step.num_slots;
  const int64_t stride = std::max(roomy ? kRoomyStride : kStride, grid);
  // The deepest first: they save the most.
  for (int64_t tokens = round_down(step.end, stride); tokens > step.begin; tokens -= stride) {
    requests.add({.tokens = tokens, .spacing = tokens % kStride == 0 ? stride : 0});
  }
}

void request_one(int64_t grid, const PrefillStep& step, std::vector<SnapshotRequest>& out) {
  if (step.end - step.begin < grid) return;
  int64_t label = round_down(step.end, grid);
  for (const int64_t fork : step.forks) {
    const int64_t rounded = round_down(fork, grid);
    if (rounded > step.begin && rounded < step.end) label = rounded;
  }
  RequestList(step, out).add({.tokens = label, .evicts = true});
}

}  // namespace

void request_snapshots(SnapshotPolicy policy, int64_t grid, const PrefillStep& step,
                       std::vector<SnapshotRequest>& requests) {
  requests.clear();
  switch (policy) {
    case SnapshotPolicy::kMulti:
      request_many(grid, step, requests);
      break;
    case SnapshotPolicy::kExtraBuffer:
      request_one(grid, step, requests);
      break;
    case SnapshotPolicy::kNoBuffer:
      requests.push_back({.tokens = step.end, .evicts = true});
      break;
  }
}

}  // namespace heddle::cache
