// SPDX-License-Identifier: Apache-2.0
// SchemaDocument: a JSON Schema whose parts refer to one another. It knows the place of each part,
// and which parts apply to a value together ($ref, allOf, anyOf, oneOf). References are JSON
// pointers from the root (schema_references.h).
//
// Threading: thread-compatible. The schema must outlive this object, and so must the parts that it
// returns, which are identified by their addresses.
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

// A choice of schemas: one of those in `branches` applies, together with `beside` if it is set.
struct SchemaChoice {
  const nlohmann::ordered_json* branches;
  Schemas chain;  // the schemas that led to `branches`, for unfold()
  const nlohmann::ordered_json* beside = nullptr;
};

// The schemas that apply to a value: the keywords of all `schemas`, except $ref, allOf, anyOf and
// oneOf, and one branch of each choice.
struct UnfoldedSchema {
  Schemas schemas;
  std::vector<SchemaChoice> choices;
  // The schema that excludes every value, because it is false or by its "not"; null if there is
  // none.
  const nlohmann::ordered_json* excluded_by = nullptr;
};

class SchemaDocument {
 public:
  explicit SchemaDocument(const nlohmann::ordered_json& root);

  // Adds a schema and all schemas that it refers to. `chain`: the schemas that led to it, each
  // through the one before; unchanged after the call. Error: kInvalidArgument for keywords that are
  // wrong or not supported, a $ref without a target or back into the chain, and branches of a oneOf
  // that may both be valid.
  Status unfold(const nlohmann::ordered_json& schema, Schemas& chain, UnfoldedSchema& out);

  // Registers the place of `value`, a part of `schema` that is reached by a keyword and, if there
  // is one, a name or an index in the keyword's value, and returns it.
  const nlohmann::ordered_json& child(const nlohmann::ordered_json& schema,
                                      std::string_view keyword,
                                      const std::optional<std::string>& name,
                                      const nlohmann::ordered_json& value);

  // Identifies a part of the schema that was visited, and remains valid when the schema is changed;
  // kRoot for the root and for parts that were not visited.
  using PartId = size_t;
  static constexpr PartId kRoot = 0;
  [[nodiscard]] PartId id_of(const nlohmann::ordered_json& at) const;

  // The JSON pointer of a part; empty for the root. Cost: O(its bytes).
  [[nodiscard]] std::string path_of(PartId part) const;

  // Number of bytes of path_of().
  [[nodiscard]] size_t path_size_of(PartId part) const;

  // The place of a part, or of a keyword in it, for messages: the last steps of its path, at most
  // kMaxShownPath bytes. Cost: O(these).
  [[nodiscard]] std::string shown_path_of(const nlohmann::ordered_json& at,
                                          std::string_view keyword = {}) const;

  static constexpr size_t kMaxShownPath = 500;

  // A part of the schema that cannot be enforced, or that contradicts others.
  struct Problem {
    const nlohmann::ordered_json* at;
    std::string keyword = {};  // keyword of `at`; empty: the whole schema
    std::string name = {};     // key or text in the keyword's value; empty: the whole value
  };

  // kInvalidArgument with the place of the problem's keyword (or schema) before the message. The
  // problem is then the result of problem().
  [[nodiscard]] Status error_at(Problem problem, const std::string& message);

  // As error_at(), with another place, from shown_path_of().
  [[nodiscard]] Status error_in(std::string_view place, Problem problem,
                                const std::string& message);

  [[nodiscard]] const std::optional<Problem>& problem() const { return problem_; }

  // ---- For weakening a schema, which collects many problems.

  struct Finding {
    Problem problem;
    std::string message = {};  // the text passed to error_at()
    // The keyword is wrong whatever the rest of the schema says. Other findings may disappear when
    // earlier ones are removed.
    bool is_certain = false;
  };

  // From now on problems are collected as findings, and their parts are skipped. A place has at
  // most one uncertain finding; after a finding that covers the others no more are added.
  void collect_findings() { findings_.emplace(); }

  [[nodiscard]] bool collects() const { return findings_.has_value(); }

  [[nodiscard]] const std::vector<Finding>& findings() const { return *findings_; }

  // A finding for the problem, without a message.
  [[nodiscard]] Finding finding_of(const Problem& problem) const;

  // Reports a contradiction at the place that error_in() shows: as an error or, if problems are
  // collected, as a finding.
  Status report_in(std::string_view place, Problem problem, const std::string& message);

  void begin_place() { has_place_finding_ = false; }

  // Reports a problem: as an error or, if problems are collected, as a finding.
  Status report(Problem problem, const std::string& message) {
    return report(std::move(problem), message, Certainty::kOfPlace);
  }

 private:
  enum class Certainty : uint8_t {
    kCertain,
    kOfPlace,
    kForAll,  // other findings may be the same problem seen from another place
  };

  Status report(Problem problem, const std::string& message, Certainty certainty);
  Result<const nlohmann::ordered_json*> resolve(const nlohmann::ordered_json& schema,
                                                const std::string& reference);
  const nlohmann::ordered_json* required_tag(const nlohmann::ordered_json& schema);
  Status check_one_of(const nlohmann::ordered_json& schema, const SchemaChoice& choice);

  // The path from an earlier part to this one: the bytes of the JSON pointer between them.
  struct Way {
    PartId from = kRoot;
    std::string steps = {};
  };

  void add_part(const nlohmann::ordered_json& part, Way way);

  void add_finding(Problem problem, std::string message, bool is_certain);

  const nlohmann::ordered_json& root_;
  std::unordered_map<const nlohmann::ordered_json*, PartId> ids_;
  std::vector<Way> ways_;  // by PartId; the root's is unused
  // Schemas whose keywords were checked, and oneOf lists whose branches were.
  std::unordered_set<const nlohmann::ordered_json*> checked_;
  // For each schema with a discriminator: a schema that requires the discriminator's property.
  std::map<const nlohmann::ordered_json*, nlohmann::ordered_json> required_tags_;
  // schemas with findings, which are skipped
  std::unordered_set<const nlohmann::ordered_json*> unreadable_;
  std::optional<Problem> problem_;
  std::optional<std::vector<Finding>> findings_;
  std::set<std::tuple<const nlohmann::ordered_json*, std::string, std::string>> reported_;
  bool has_place_finding_ = false;
  bool has_finding_for_all_ = false;
};

}  // namespace heddle::grammar
