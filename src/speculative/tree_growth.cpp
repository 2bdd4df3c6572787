// SPDX-License-Identifier: Apache-2.0
#include "speculative/tree_growth.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace heddle::speculative {

namespace {

// Order of indices by their values: larger values first, equal ones by index, NaN last.
template <typename Values>
auto better_in(const Values& values) {
  return [&values](int32_t a, int32_t b) {
    const float x = values[static_cast<size_t>(a)];
    const float y = values[static_cast<size_t>(b)];
    if (std::isnan(x) || std::isnan(y))
      return std::isnan(x) == std::isnan(y) ? a < b : !std::isnan(x);
    return x != y ? x > y : a < b;
  };
}

}  // namespace

void TreeGrowth::begin(std::span<const Candidate> top) {
  topk_ = top.size();
  scores_.clear();
  tokens_.clear();
  branches_.clear();
  branch_candidates_.clear();
  parent_list_.assign(1, -1);
  for (const Candidate& candidate : top) {
    branch_candidates_.push_back(static_cast<int32_t>(scores_.size()));
    branches_.push_back({.token = candidate.token, .from = 0});
    scores_.push_back(candidate.probability);
    tokens_.push_back(candidate.token);
  }
}

void TreeGrowth::add_level(std::span<const Candidate> top) {
  HEDDLE_CHECK_EQ(top.size(), topk_ * topk_);
  const size_t first = scores_.size();
  for (size_t i = 0; i < top.size(); ++i) {
    const auto parent = static_cast<size_t>(branch_candidates_[i / topk_]);
    scores_.push_back(scores_[parent] * top[i].probability);
    tokens_.push_back(top[i].token);
  }
  parent_list_.insert(parent_list_.end(), branch_candidates_.begin(), branch_candidates_.end());
  order_.resize(top.size());
  std::iota(order_.begin(), order_.end(), static_cast<int32_t>(first));
  std::ranges::partial_sort(order_, order_.begin() + static_cast<int64_t>(topk_),
                            better_in(scores_));
  for (size_t r = 0; r < topk_; ++r) {
    branch_candidates_[r] = order_[r];
    const size_t within = static_cast<size_t>(order_[r]) - first;
    branches_[r] = {.token = tokens_[static_cast<size_t>(order_[r])],
                    .from = static_cast<int32_t>(within / topk_)};
  }
}

void TreeGrowth::select(int64_t count, Drafts& drafts) {
  drafts.clear();
  order_.resize(scores_.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::sort(order_, better_in(scores_));
  order_.resize(static_cast<size_t>(std::min(std::ssize(order_), count)));
  std::ranges::sort(order_);
  selected_.clear();
  for (const int32_t candidate : order_) {
    const int32_t parent = parent_list_[static_cast<size_t>(candidate) / topk_];
    const auto found = std::ranges::lower_bound(selected_, parent);
    const bool hangs = parent == -1 || (found != selected_.end() && *found == parent);
    if (!hangs || std::isnan(scores_[static_cast<size_t>(candidate)])) continue;
    drafts.tokens.push_back(tokens_[static_cast<size_t>(candidate)]);
    drafts.parents.push_back(parent == -1 ? -1 : static_cast<int32_t>(found - selected_.begin()));
    selected_.push_back(candidate);
  }
}

void most_probable(std::span<const float> logits, int64_t count, std::vector<Candidate>& top) {
  top.clear();
  const auto better = better_in(logits);
  // Keeps a short sorted list: `count` is small, and nearly all logits are below the last entry.
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    if (std::ssize(top) == count && !better(index, top.back().token)) continue;
    if (std::ssize(top) == count) top.pop_back();
    const auto place = std::ranges::find_if(
        top, [&](const Candidate& other) { return better(index, other.token); });
    top.insert(place, {.token = index, .probability = 0});
  }
  if (top.empty()) return;
  const float largest = logits[static_cast<size_t>(top.front().token)];
  float sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  if (!std::isfinite(sum)) {
    top.clear();
    return;
  }
  for (Candidate& candidate : top) {
    candidate.probability = std::exp(logits[static_cast<size_t>(candidate.token)] - largest) / sum;
  }
}

}  // namespace heddle::speculative
