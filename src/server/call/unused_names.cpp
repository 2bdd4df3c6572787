// SPDX-License-Identifier: Apache-2.0
#include "server/call/unused_names.h"

#include <cstddef>

#include <fmt/format.h>

#include "core/log.h"
#include "core/printable.h"
#include "server/call/api_adapter.h"
#include "server/call/field_reader.h"
#include "server/http/http_message.h"

namespace heddle::server {

namespace {

constexpr size_t kMaxUnusedNames = 256;
constexpr size_t kMaxUnusedNameBytes = 80;

}  // namespace

void UnusedNames::note(std::string_view route, std::string_view what, std::string_view name,
                       std::string_view why) {
  const std::string shown = printable(name, kMaxUnusedNameBytes);
  const MutexLock lock(mutex_);
  if (noted_.size() >= kMaxUnusedNames) {
    if (!is_full_) log_warning("Further names in requests that are not used are not logged.");
    is_full_ = true;
    return;
  }
  if (!noted_.insert(fmt::format("{} {} {}", route, what, shown)).second) return;
  log_warning(fmt::format("{}: the {} `{}` is not used{}{}. This is logged once.", route, what,
                          shown, why.empty() ? "" : ": ", why));
}

void CallContext::note_unused(std::string_view what, std::string_view name,
                              std::string_view why) const {
  if (unused_names != nullptr) unused_names->note(head.path, what, name, why);
}

void CallContext::note_unasked(const FieldReader& fields) const {
  for (const std::string& name : fields.unasked()) note_unused("field", fields.name_of(name));
}

}  // namespace heddle::server
