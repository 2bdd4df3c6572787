// SPDX-License-Identifier: Apache-2.0
// RoundRobinQueue: items that wait for one worker, served round robin over their holders: each
// holder in turn has its oldest item served, however many items another one has.
//
// Threading: thread-compatible. Cost: O(log of the number of waiting holders).
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace heddle::server {

template <typename Item>
class RoundRobinQueue {
 public:
  // Both limits are at least 1.
  RoundRobinQueue(size_t max_items, size_t max_of_holder)
      : max_items_(max_items), max_of_holder_(max_of_holder) {}

  // Adds an item. Returns false if the holder's items or all items have reached their limit.
  [[nodiscard]] bool push(const std::string& holder, Item item) {
    if (num_items_ >= max_items_) return false;
    std::deque<Item>& own = waiting_[holder];
    if (own.size() >= max_of_holder_) return false;
    if (own.empty()) turns_.push_back(holder);
    own.push_back(std::move(item));
    ++num_items_;
    return true;
  }

  // Removes the oldest item of the holder whose turn it is; none if the queue is empty.
  [[nodiscard]] std::optional<Item> pop() {
    if (turns_.empty()) return std::nullopt;
    const auto own = waiting_.find(turns_.front());
    turns_.pop_front();
    std::optional<Item> item(std::move(own->second.front()));
    own->second.pop_front();
    --num_items_;
    if (own->second.empty()) {
      waiting_.erase(own);
    } else {
      turns_.push_back(own->first);
    }
    return item;
  }

 private:
  const size_t max_items_;
  const size_t max_of_holder_;
  size_t num_items_ = 0;
  std::map<std::string, std::deque<Item>> waiting_;
  std::deque<std::string> turns_;  // holders with waiting items, in the order of their turns
};

}  // namespace heddle::server
