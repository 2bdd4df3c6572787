// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/vocabulary_json.h"

#include <fmt/format.h>

namespace heddle::tokenizer {
namespace {

constexpr size_t kBytesPerMemberGuess = 8;

}  // namespace

Status add_vocabulary(const JsonValue& vocabulary, BpeBuilder& builder) {
  HEDDLE_ASSIGN_OR_RETURN(const simdjson::dom::object members, vocabulary.as_object());
  builder.reserve_tokens(members.size(), members.size() * kBytesPerMemberGuess);
  for (const auto [spelling, value] : members) {
    int64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS) {
      return JsonValue(value, fmt::format("{}['{}']", vocabulary.path(), spelling))
          .wrong("a 64-bit integer");
    }
    const Status status = builder.add_token(spelling, id);
    if (!status.ok()) return status.with_context(vocabulary.path());
  }
  if (members.size() == 0) {
    return data_loss(fmt::format("{} is empty; a model needs tokens", vocabulary.path()));
  }
  return ok_status();
}

}  // namespace heddle::tokenizer
