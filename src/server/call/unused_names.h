// SPDX-License-Identifier: Apache-2.0
// UnusedNames: logs parts of requests that the server does not use, so that no setting is ignored
// silently: unknown fields, types of tools, kinds of items in a history. Each name is logged once
// per route.
//
// Threading: thread-safe.
// Bounds:    256 names of up to 80 bytes over all routes; a last line says that there are more.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "core/mutex.h"

namespace heddle::server {

class UnusedNames {
 public:
  // Logs a name once. `what` is the kind of thing: "field", "tool type". `route` is the path of the
  // request. `why` is added to the line; empty: no reason is given.
  void note(std::string_view route, std::string_view what, std::string_view name,
            std::string_view why = {});

 private:
  Mutex mutex_;
  std::set<std::string> noted_ HEDDLE_GUARDED_BY(mutex_);
  bool is_full_ HEDDLE_GUARDED_BY(mutex_) = false;
};

}  // namespace heddle::server
