// SPDX-License-Identifier: Apache-2.0
// UnusedNames: logs what requests have and the server does not use, so that no setting vanishes in
// silence: unknown fields, types of tools, kinds of items in a history. Each name is logged once
// for each route.
//
// Threading: thread-safe.
// Bounds:    256 names of all routes together, of up to 80 bytes each; one last line says that
// there are
//            more.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "core/mutex.h"

namespace heddle::server {

class UnusedNames {
 public:
  // `what` is the kind of thing: "field", "tool type". `route` is the path of the request. `why` is
  // shown, too; empty: it needs no reason.
  void note(std::string_view route, std::string_view what, std::string_view name,
            std::string_view why = {});

 private:
  Mutex mutex_;
  std::set<std::string> noted_ HEDDLE_GUARDED_BY(mutex_);
  bool is_full_ HEDDLE_GUARDED_BY(mutex_) = false;
};

}  // namespace heddle::server
