// SPDX-License-Identifier: Apache-2.0
#include "server/call/early_aborts.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "server/http/caller.h"

namespace heddle::server {
namespace {

// The key of an abort. It is unambiguous because neither ids nor holders contain a slash.
std::string key_of_abort(std::string_view id, const std::optional<std::string>& holder) {
  return holder ? fmt::format("{}/{}", *holder, id) : std::string(id);
}

}  // namespace

std::shared_ptr<const EarlyAborts::Call> EarlyAborts::arrive(std::string holder) {
  const int64_t number = next_number_++;
  auto call = std::make_shared<const Call>(*this, number, std::move(holder));
  waiting_.insert(number);
  return call;
}

bool EarlyAborts::abort(std::string_view id, const std::optional<std::string>& holder) {
  if (waiting_.empty() || !is_request_id(id)) return true;
  const std::string key = key_of_abort(id, holder);
  const auto known = keys_.find(key);
  if (known != keys_.end()) {
    known->second->before = next_number_;
    oldest_first_.splice(oldest_first_.end(), oldest_first_, known->second);
    return true;
  }
  if (keys_.size() >= kMaxIds) return false;
  oldest_first_.push_back({key, next_number_});
  keys_.emplace(key, std::prev(oldest_first_.end()));
  return true;
}

bool EarlyAborts::aborted(const std::string& id, const Call& call) const {
  return call.number() < all_before_ || concerns(key_of_abort(id, std::nullopt), call) ||
         concerns(key_of_abort(id, call.holder()), call);
}

bool EarlyAborts::concerns(const std::string& key, const Call& call) const {
  const auto found = keys_.find(key);
  return found != keys_.end() && call.number() < found->second->before;
}

void EarlyAborts::end(int64_t number) {
  waiting_.erase(number);
  const int64_t oldest = waiting_.empty() ? next_number_ : *waiting_.begin();
  while (!oldest_first_.empty() && oldest_first_.front().before <= oldest) {
    keys_.erase(oldest_first_.front().key);
    oldest_first_.pop_front();
  }
}

}  // namespace heddle::server
