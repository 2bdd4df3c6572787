// SPDX-License-Identifier: Apache-2.0
#include "server/call/served_adapters.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "core/printable.h"

namespace heddle::server {

namespace {

constexpr size_t kMaxAdapterNameBytes = 256;
constexpr std::string_view kAdapterNamePunctuation = "._-+@/";

bool is_of_adapter_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kAdapterNamePunctuation.find(c) != std::string_view::npos;
}

ApiError is_loaded_already(const std::string& name) {
  return invalid_value(
      "lora_name",
      fmt::format("The adapter `{}` is loaded already; unload it first, or set `load_inplace`.",
                  name));
}

}  // namespace

Status check_adapter_name(std::string_view name) {
  if (name == "default" || name == "latest") {
    return invalid_argument(fmt::format("'{}' names the model itself; choose another name", name));
  }
  if (!name.empty() && name.size() <= kMaxAdapterNameBytes &&
      std::ranges::all_of(name, is_of_adapter_name) && name.find("..") == std::string_view::npos) {
    return ok_status();
  }
  return invalid_argument(
      fmt::format("'{}' is no name for an adapter; it must be 1 to {} letters, digits and {}, "
                  "without \"..\"",
                  printable(name, 100), kMaxAdapterNameBytes, kAdapterNamePunctuation));
}

void ServedAdapters::serve(Engine& engine, std::vector<ServedAdapter> adapters,
                           std::function<int64_t()> now) {
  engine_ = &engine;
  now_ = std::move(now);
  enabled_ = engine.options().adapters.num_slots > 0;
  for (ServedAdapter& adapter : adapters) adapter.loaded_at = now_();
  const MutexLock lock(mutex_);
  adapters_ = std::move(adapters);
}

void ServedAdapters::tear_down() {
  const MutexLock lock(mutex_);
  adapters_.clear();
}

bool ServedAdapters::has(std::string_view name) const {
  return std::ranges::find(adapters_, name, &ServedAdapter::name) != adapters_.end();
}

std::shared_ptr<const Adapter> ServedAdapters::find(std::string_view name) const {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(adapters_, name, &ServedAdapter::name);
  return found == adapters_.end() ? nullptr : found->adapter;
}

std::vector<ServedAdapter> ServedAdapters::list() const {
  const MutexLock lock(mutex_);
  return adapters_;
}

std::optional<ApiError> ServedAdapters::load(const std::string& name, const std::string& path,
                                             bool replace) {
  {
    const MutexLock lock(mutex_);
    if (!replace && has(name)) return is_loaded_already(name);
  }
  auto loaded = engine_->load_adapter(path);
  if (!loaded.ok()) {
    return invalid_value("lora_path", fmt::format("{}.", loaded.status().message()));
  }
  ServedAdapter adapter{
      .name = name, .path = path, .adapter = std::move(*loaded), .loaded_at = now_()};
  log_info(
      fmt::format("The adapter {} was loaded from {}, rank {}", name, path, adapter.adapter->rank));
  const MutexLock lock(mutex_);
  if (!replace && has(name)) return is_loaded_already(name);
  std::erase_if(adapters_, [&](const ServedAdapter& each) { return each.name == name; });
  adapters_.push_back(std::move(adapter));
  return std::nullopt;
}

std::optional<ApiError> ServedAdapters::unload(std::string_view name) {
  const MutexLock lock(mutex_);
  if (!has(name)) {
    ApiError error = model_not_found(printable(name, 256));
    error.param = "lora_name";
    return error;
  }
  std::erase_if(adapters_, [&](const ServedAdapter& each) { return each.name == name; });
  return std::nullopt;
}

}  // namespace heddle::server
