// SPDX-License-Identifier: Apache-2.0
// ServedAdapters: the LoRA adapters that the server offers by name, in addition to the model
// itself.
//
// Threading: thread-safe, except serve() and tear_down(), which the server's owner calls before the
//            first and after the last request.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/engine.h>

#include "core/mutex.h"
#include "server/http/api_error.h"

namespace heddle::server {

struct ServedAdapter {
  std::string name;
  std::string path;  // its folder
  std::shared_ptr<const Adapter> adapter;
  int64_t loaded_at = 0;  // seconds since 1970
};

// Checks the name of an adapter: 1 to 256 letters, digits and . _ - + @ /, without "..", because a
// colon separates it from the model's name. Error: kInvalidArgument, with the name.
[[nodiscard]] Status check_adapter_name(std::string_view name);

class ServedAdapters {
 public:
  // Makes these adapters of the engine available. `now`: seconds since 1970.
  void serve(Engine& engine, std::vector<ServedAdapter> adapters, std::function<int64_t()> now)
      HEDDLE_EXCLUDES(mutex_);

  void tear_down() HEDDLE_EXCLUDES(mutex_);

  // Whether the engine has memory for adapters.
  [[nodiscard]] bool enabled() const { return enabled_; }

  // The adapter of this name; null if there is none.
  [[nodiscard]] std::shared_ptr<const Adapter> find(std::string_view name) const
      HEDDLE_EXCLUDES(mutex_);

  // All adapters, in the order of loading.
  [[nodiscard]] std::vector<ServedAdapter> list() const HEDDLE_EXCLUDES(mutex_);

  // Loads the adapter of a folder. `replace`: an adapter of the same name may be loaded and is
  // replaced; its requests end with the old one. Blocks while the files are read. Error: the name
  // is taken, or that of Engine::load_adapter().
  [[nodiscard]] std::optional<ApiError> load(const std::string& name, const std::string& path,
                                             bool replace) HEDDLE_EXCLUDES(mutex_);

  // Makes the adapter unavailable. Its requests still end with it. Error: 404 for an unknown name.
  [[nodiscard]] std::optional<ApiError> unload(std::string_view name) HEDDLE_EXCLUDES(mutex_);

 private:
  [[nodiscard]] bool has(std::string_view name) const HEDDLE_REQUIRES(mutex_);

  Engine* engine_ = nullptr;
  std::function<int64_t()> now_;
  bool enabled_ = false;
  mutable Mutex mutex_;
  std::vector<ServedAdapter> adapters_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::server
