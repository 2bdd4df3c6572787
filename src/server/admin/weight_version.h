// SPDX-License-Identifier: Apache-2.0
// WeightVersion: the folder of the served weights, and the name that an operator gives them, which
// every answer of the OpenAI and native routes shows. An update of the weights (weight_update.h)
// changes both; events that were sent before it still belong to the old weights.
//
// Threading: thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <heddle/engine.h>
#include <heddle/options.h>

#include "core/mutex.h"
#include "server/http/api_error.h"

namespace heddle::server {

inline constexpr size_t kMaxWeightVersionBytes = 256;

class WeightVersion {
 public:
  // A name, and the number of weight updates after which the weights with this name are in use.
  struct Named {
    std::string name;
    int64_t num_updates = 0;
  };

  // Where the weights came from.
  struct Origin {
    std::string model_path;
    LoadFormat load_format = LoadFormat::kAuto;
  };

  explicit WeightVersion(std::string name) : names_{{0, std::move(name)}} {}

  // The name of the weights in use.
  [[nodiscard]] Named get() const HEDDLE_EXCLUDES(mutex_);

  // The name after this many updates. For updates too long ago: the oldest name that is kept.
  [[nodiscard]] std::string name_after(int64_t num_updates) const HEDDLE_EXCLUDES(mutex_);

  // The source of the last update; none: there was no update.
  [[nodiscard]] std::optional<Origin> origin() const HEDDLE_EXCLUDES(mutex_);

  // Renames the weights in use.
  void rename(std::string name) HEDDLE_EXCLUDES(mutex_);

  // Records that new weights are in use after this many updates. Without a name they keep the old
  // one.
  void update(int64_t num_updates, std::optional<std::string> name, Origin origin)
      HEDDLE_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  // Names of the weights, keyed by number of updates.
  std::map<int64_t, std::string> names_ HEDDLE_GUARDED_BY(mutex_);
  std::optional<Origin> origin_ HEDDLE_GUARDED_BY(mutex_);
};

// 64 hexadecimal digits that identify the weights. They stay the same as long as the server, the
// model, its format and its folder do. The weights themselves are not read for it.
[[nodiscard]] std::string weights_digest(const WeightVersion& weights, const ModelInfo& model,
                                         std::string_view model_path,
                                         std::string_view server_version);

// Checks the name in this field. Returns an error if it is invalid, else none.
std::optional<ApiError> check_weight_version(std::string_view field, std::string_view name);

// The body of POST /update_weight_version.
struct WeightVersionOrder {
  std::string name;
  bool abort_all = true;  // running requests are aborted, so that no answer mixes two versions
};

std::variant<WeightVersionOrder, ApiError> read_weight_version(std::string_view body);

}  // namespace heddle::server
