// SPDX-License-Identifier: Apache-2.0
#include "server/json_builder.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace heddle::server {

bool JsonBuilder::key(std::string& name) {
  auto& object = open_.back()->get_ref<Json::object_t&>();
  for_key_ = &object.emplace_back(std::move(name), nullptr).second;
  return true;
}

bool JsonBuilder::end_object() {
  drop_repeated_keys(open_.back()->get_ref<Json::object_t&>());
  return close();
}

bool JsonBuilder::parse_error(size_t /*position*/, const std::string& /*token*/,
                              const Json::exception& error) {
  error_ = error.what();
  return false;
}

JsonBuilder::Json* JsonBuilder::add(Json value) {
  if (open_.empty()) {
    root_ = std::move(value);
    return &root_;
  }
  if (auto* const array = open_.back()->get_ptr<Json::array_t*>()) {
    return &array->emplace_back(std::move(value));
  }
  *for_key_ = std::move(value);
  return for_key_;
}

bool JsonBuilder::open(Json container) {
  open_.push_back(add(std::move(container)));
  return true;
}

bool JsonBuilder::close() {
  open_.pop_back();
  return true;
}

void JsonBuilder::drop_repeated_keys(Json::object_t& object) {
  const auto entries = std::span(object.begin(), object.end());  // by position; object[] is by key
  order_.resize(object.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  // By key, and among equal ones as they came.
  std::sort(order_.begin(), order_.end(), [&entries](size_t a, size_t b) {
    const int order = entries[a].first.compare(entries[b].first);
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<bool> repeated;  // made when it is needed: it hardly ever is
  for (size_t first = 0, i = 1; i < order_.size(); ++i) {
    if (entries[order_[i]].first != entries[order_[first]].first) {
      first = i;
      continue;
    }
    repeated.resize(object.size());
    repeated[order_[i]] = true;
    entries[order_[first]].second = std::move(entries[order_[i]].second);
  }
  if (repeated.empty()) return;
  Json::object_t kept;
  size_t index = 0;
  for (auto& entry : object) {
    if (!repeated[index++]) kept.push_back(std::move(entry));
  }
  object = std::move(kept);
}

}  // namespace heddle::server
