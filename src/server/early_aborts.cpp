// SPDX-License-Identifier: Apache-2.0
#include "server/early_aborts.h"

#include <iterator>

#include "server/caller.h"

namespace heddle::server {

std::shared_ptr<const EarlyAborts::Call> EarlyAborts::arrive() {
  const int64_t number = next_number_++;
  auto call = std::make_shared<const Call>(*this, number);
  waiting_.insert(number);
  return call;
}

bool EarlyAborts::abort(std::string_view id) {
  if (waiting_.empty() || !is_request_id(id)) return true;
  const auto known = ids_.find(std::string(id));
  if (known != ids_.end()) {
    known->second->before = next_number_;
    oldest_first_.splice(oldest_first_.end(), oldest_first_, known->second);
    return true;
  }
  if (ids_.size() >= kMaxIds) return false;
  oldest_first_.push_back({std::string(id), next_number_});
  ids_.emplace(id, std::prev(oldest_first_.end()));
  return true;
}

bool EarlyAborts::aborted(const std::string& id, const Call& call) const {
  if (call.number() < all_before_) return true;
  const auto found = ids_.find(id);
  return found != ids_.end() && call.number() < found->second->before;
}

void EarlyAborts::end(int64_t number) {
  waiting_.erase(number);
  const int64_t oldest = waiting_.empty() ? next_number_ : *waiting_.begin();
  while (!oldest_first_.empty() && oldest_first_.front().before <= oldest) {
    ids_.erase(oldest_first_.front().id);
    oldest_first_.pop_front();
  }
}

}  // namespace heddle::server
