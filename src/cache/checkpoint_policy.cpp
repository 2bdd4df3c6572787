// SPDX-License-Identifier: Apache-2.0
#include "cache/checkpoint_policy.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle::cache {
namespace {

constexpr int64_t kStride = 256;
constexpr int64_t kRoomyStride = 128;

int64_t round_down(int64_t tokens, int64_t grid) { return tokens - tokens % grid; }

class Wishes {
 public:
  Wishes(const PrefillStep& step, std::vector<CheckpointWish>& wishes)
      : step_(step), wishes_(wishes) {}

  void add(const CheckpointWish& wish) {
    if (wish.tokens <= step_.begin || wish.tokens > step_.end) return;
    const auto same = [&](const CheckpointWish& other) { return other.tokens == wish.tokens; };
    const auto found = std::find_if(wishes_.begin(), wishes_.end(), same);
    if (found == wishes_.end()) {
      wishes_.push_back(wish);
    } else {
      found->keeps_hidden |= wish.keeps_hidden;
    }
  }

 private:
  const PrefillStep& step_;
  std::vector<CheckpointWish>& wishes_;
};

void wish_many(int64_t grid, const PrefillStep& step, std::vector<CheckpointWish>& out) {
  Wishes wishes(step, out);
  for (const int64_t fork : step.forks) {
    wishes.add({.tokens = round_down(fork, grid), .evicts = true});
  }
  wishes.add({.tokens = round_down(step.num_tokens - 1, grid), .evicts = true});
  for (const int64_t boundary : step.role_boundaries) {
    if (boundary < step.num_tokens) wishes.add({.tokens = round_down(boundary, grid)});
  }
  if (step.keeps_hidden) wishes.add({.tokens = step.num_tokens, .keeps_hidden = true});
  const bool roomy = 2 * step.free_slots > step.num_slots;
  const int64_t stride = std::max(roomy ? kRoomyStride : kStride, grid);
  // The deepest first: they save the most.
  for (int64_t tokens = round_down(step.end, stride); tokens > step.begin; tokens -= stride) {
    wishes.add({.tokens = tokens, .spacing = tokens % kStride == 0 ? stride : 0});
  }
}

void wish_one(int64_t grid, const PrefillStep& step, std::vector<CheckpointWish>& out) {
  if (step.end - step.begin < grid) return;
  int64_t label = round_down(step.end, grid);
  for (const int64_t fork : step.forks) {
    const int64_t rounded = round_down(fork, grid);
    if (rounded > step.begin && rounded < step.end) label = rounded;
  }
  Wishes(step, out).add({.tokens = label, .evicts = true});
}

}  // namespace

Result<CheckpointPolicy> parse_checkpoint_policy(std::string_view name) {
  if (name == "multi") return CheckpointPolicy::kMulti;
  if (name == "extra_buffer") return CheckpointPolicy::kExtraBuffer;
  if (name == "no_buffer") return CheckpointPolicy::kNoBuffer;
  return invalid_argument(fmt::format(
      "state_checkpoints \"{}\" is not known; use multi, extra_buffer or no_buffer", name));
}

void wish_checkpoints(CheckpointPolicy policy, int64_t grid, const PrefillStep& step,
                      std::vector<CheckpointWish>& wishes) {
  wishes.clear();
  switch (policy) {
    case CheckpointPolicy::kMulti:
      wish_many(grid, step, wishes);
      break;
    case CheckpointPolicy::kExtraBuffer:
      wish_one(grid, step, wishes);
      break;
    case CheckpointPolicy::kNoBuffer:
      wishes.push_back({.tokens = step.end, .evicts = true});
      break;
  }
}

}  // namespace heddle::cache
