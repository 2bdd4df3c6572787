// SPDX-License-Identifier: Apache-2.0
// SchemaDocument: a JSON Schema as a document whose parts refer to each other: where each part
// stands, and which parts apply to a value together ($ref, allOf, anyOf, oneOf). References are
// JSON pointers from the root (schema_references.h).
//
// Threading: thread-compatible. The schema outlives it, as do the parts it hands out, which are
// told apart by their addresses.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <nlohmann/json.hpp>

#include <heddle/status.h>

#include "grammar/schema_keywords.h"

namespace heddle::grammar {

// One of the schemas in `branches` applies, together with `beside` if set.
struct SchemaChoice {
  const nlohmann::ordered_json* branches;
  Schemas chain;  // the way to `branches`, for unfold()
  const nlohmann::ordered_json* beside = nullptr;
};

// The schemas that apply to a value: the keywords of all `schemas` but for $ref, allOf, anyOf and
// oneOf, and one branch of each choice.
struct UnfoldedSchema {
  Schemas schemas;
  std::vector<SchemaChoice> choices;
  // No value is valid: by this schema, which is false, or by its "not".
  const nlohmann::ordered_json* excluded_by = nullptr;
};

class SchemaDocument {
 public:
  explicit SchemaDocument(const nlohmann::ordered_json& root);

  // Adds a schema and all that it refers to. `chain`: the schemas that led to it, one through the
  // other; the same after the call. Error: kInvalidArgument for keywords that are wrong or not
  // served, a $ref to nowhere or back into the chain, branches of a oneOf that may both be valid.
  Status unfold(const nlohmann::ordered_json& schema, Schemas& chain, UnfoldedSchema& out);

  // `value`, a part of `schema` that is reached by a keyword and, below it, by a name or an index,
  // if there is one. Its place is known from now on.
  const nlohmann::ordered_json& child(const nlohmann::ordered_json& schema,
                                      std::string_view keyword,
                                      const std::optional<std::string>& name,
                                      const nlohmann::ordered_json& value);

  // Identifies a part of the schema that was visited, and stays valid when the schema is changed;
  // kRoot for the root and for parts that were not visited.
  using PartId = size_t;
  static constexpr PartId kRoot = 0;
  [[nodiscard]] PartId id_of(const nlohmann::ordered_json& at) const;

  // The place that a part had as a JSON pointer; empty for the root. Cost: O(its bytes).
  [[nodiscard]] std::string path_of(PartId part) const;

  // Bytes of path_of().
  [[nodiscard]] size_t path_size_of(PartId part) const;

  // The place of a part, or of a keyword of it, as people see it: its last steps, of at most
  // kMaxShownPath bytes. Cost: O(these).
  [[nodiscard]] std::string shown_path_of(const nlohmann::ordered_json& at,
                                          std::string_view keyword = {}) const;

  static constexpr size_t kMaxShownPath = 500;

  // A part of the schema that cannot be enforced.
  struct Problem {
    const nlohmann::ordered_json* at;
    std::string keyword = {};  // keyword of `at`; empty: the whole schema
    std::string name = {};     // a key or a text in the keyword's value; empty: all of that
  };

  // kInvalidArgument with the place of a problem's keyword (empty: of the schema) before the
  // message. It is the last problem() from now on.
  [[nodiscard]] Status error_at(Problem problem, const std::string& message);

  // The same with another place than the problem's, from shown_path_of().
  [[nodiscard]] Status error_in(std::string_view place, Problem problem,
                                const std::string& message);

  [[nodiscard]] const std::optional<Problem>& problem() const { return problem_; }

  // ---- For weakening a schema: collects many problems.

  struct Finding {
    Problem problem;
    std::string message = {};  // see error_at()
    // The keyword is wrong whatever else the schema says. Other findings may end with those before
    // them.
    bool is_certain = false;
  };

  // From now on problems are collected as findings, and their parts are skipped. A place has one
  // uncertain finding; after a finding that covers others no more are made.
  void collect_findings() { findings_.emplace(); }

  [[nodiscard]] bool collects() const { return findings_.has_value(); }

  [[nodiscard]] const std::vector<Finding>& findings() const { return *findings_; }

  // Without a message.
  [[nodiscard]] Finding finding_of(const Problem& problem) const;

  // A contradiction, with error_in()'s place: an error, or a finding and no error.
  Status report_in(std::string_view place, Problem problem, const std::string& message);

  void begin_place() { has_place_finding_ = false; }

  // An error, or a finding and no error.
  Status report(Problem problem, const std::string& message) {
    return report(std::move(problem), message, Certainty::kOfPlace);
  }

 private:
  enum class Certainty : uint8_t {
    kCertain,
    kOfPlace,
    kForAll,  // others may be the same problem, seen from another place
  };

  Status report(Problem problem, const std::string& message, Certainty certainty);
  Result<const nlohmann::ordered_json*> resolve(const nlohmann::ordered_json& schema,
                                                const std::string& reference);
  const nlohmann::ordered_json* required_tag(const nlohmann::ordered_json& schema);
  Status check_one_of(const nlohmann::ordered_json& schema, const SchemaChoice& choice);

  // The way to a part from an earlier one: the pointer's bytes between them.
  struct Way {
    PartId from = kRoot;
    std::string steps = {};
  };

  void add_part(const nlohmann::ordered_json& part, Way way);

  void add_finding(Problem problem, std::string message, bool is_certain);

  const nlohmann::ordered_json& root_;
  std::unordered_map<const nlohmann::ordered_json*, PartId> ids_;
  std::vector<Way> ways_;  // by id; the root's is not read
  // Schemas by their keywords, and lists of oneOf.
  std::unordered_set<const nlohmann::ordered_json*> checked_;
  // For schemas with a discriminator.
  std::map<const nlohmann::ordered_json*, nlohmann::ordered_json> required_tags_;
  std::unordered_set<const nlohmann::ordered_json*> unreadable_;  // with findings
  std::optional<Problem> problem_;
  std::optional<std::vector<Finding>> findings_;
  std::set<std::tuple<const nlohmann::ordered_json*, std::string, std::string>> reported_;
  bool has_place_finding_ = false;
  bool has_finding_for_all_ = false;
};

}  // namespace heddle::grammar
