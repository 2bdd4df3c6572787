// SPDX-License-Identifier: Apache-2.0
// WeightVersion: the weights that are served: their folder, and the name that an operator gives
// them, shown with every answer of the OpenAI and native routes. An update of the weights
// (weight_update.h) brings others; events that are still on their way then are of the old ones.
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
  // The name of the weights that have been exchanged so often.
  struct Named {
    std::string name;
    int64_t num_updates = 0;
  };

  // Where the weights come from.
  struct Origin {
    std::string model_path;
    LoadFormat load_format = LoadFormat::kAuto;
  };

  explicit WeightVersion(std::string name) : names_{{0, std::move(name)}} {}

  // Of the weights in use.
  [[nodiscard]] Named get() const HEDDLE_EXCLUDES(mutex_);

  // The name after so many updates. Of long ago: the oldest that is kept.
  [[nodiscard]] std::string name_after(int64_t num_updates) const HEDDLE_EXCLUDES(mutex_);

  // Of the last update; none: there was none.
  [[nodiscard]] std::optional<Origin> origin() const HEDDLE_EXCLUDES(mutex_);

  // The weights in use get another name.
  void rename(std::string name) HEDDLE_EXCLUDES(mutex_);

  // Others are in use now, after so many updates. Without a name they keep that of the old ones.
  void update(int64_t num_updates, std::optional<std::string> name, Origin origin)
      HEDDLE_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<int64_t, std::string> names_ HEDDLE_GUARDED_BY(mutex_);  // by number of updates
  std::optional<Origin> origin_ HEDDLE_GUARDED_BY(mutex_);
};

// 64 hexadecimal digits that name the weights: the same as long as the server, the model, its
// format and the folder it came from are. The bytes of the weights are not read for it.
[[nodiscard]] std::string weights_digest(const WeightVersion& weights, const ModelInfo& model,
                                         std::string_view model_path,
                                         std::string_view server_version);

// The error for a name that cannot be one, in this field; none: it can.
std::optional<ApiError> check_weight_version(std::string_view field, std::string_view name);

// The body of POST /update_weight_version.
struct WeightVersionOrder {
  std::string name;
  bool abort_all = true;  // what runs ends, so that no answer is of two versions
};

std::variant<WeightVersionOrder, ApiError> read_weight_version(std::string_view body);

}  // namespace heddle::server
