// SPDX-License-Identifier: Apache-2.0
#include "grammar/listed_values.h"

#include <algorithm>
#include <utility>

#include "grammar/schema_document.h"
#include "grammar/schema_keywords.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxValues = 1024;

class ValueList {
 public:
  explicit ValueList(const Json& root) : document_(root) {}

  // Returns false if the schema also allows other values.
  bool add(const Json& schema) {
    UnfoldedSchema unfolded;
    Schemas chain;
    return document_.unfold(schema, chain, unfolded).ok() && add_choices(std::move(unfolded));
  }

  [[nodiscard]] std::vector<Json> take() { return std::move(values_); }

 private:
  bool add_choices(UnfoldedSchema unfolded) {
    if (unfolded.excluded_by != nullptr) return true;
    if (unfolded.choices.empty()) return add_plain(unfolded.schemas);
    SchemaChoice choice = std::move(unfolded.choices.back());
    unfolded.choices.pop_back();
    return std::ranges::all_of(*choice.branches, [&](const Json& branch) {
      UnfoldedSchema chosen = unfolded;
      return ++num_alternatives_ <= kMaxValues &&
             document_.unfold(branch, choice.chain, chosen).ok() && add_choices(std::move(chosen));
    });
  }

  bool add_plain(const Schemas& schemas) {
    std::optional<KeywordProblem> problem;
    const Json* at = nullptr;
    if (const std::optional<Schemas> values = valid_values(schemas, at, problem)) {
      return !problem &&
             std::ranges::all_of(*values, [this](const Json* value) { return add_value(*value); });
    }
    const TypeSet types = types_of(schemas);
    if ((types & ~(kNull | kBoolean)) != 0) return false;
    if ((types & kBoolean) != 0 && !(add_value(true) && add_value(false))) return false;
    return (types & kNull) == 0 || add_value(nullptr);
  }

  bool add_value(const Json& value) {
    const auto is_same = [&](const Json& other) { return equal_values(value, other); };
    if (std::ranges::any_of(values_, is_same)) return true;
    values_.push_back(value);
    return values_.size() <= kMaxValues;
  }

  SchemaDocument document_;
  std::vector<Json> values_;
  size_t num_alternatives_ = 0;
};

}  // namespace

std::optional<std::vector<Json>> listed_values(const Json& schema, const Json& root) {
  ValueList list(root);
  if (!list.add(schema)) return std::nullopt;
  return list.take();
}

}  // namespace heddle::grammar
