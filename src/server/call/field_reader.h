// SPDX-License-Identifier: Apache-2.0
// FieldReader takes typed, optional fields out of a JSON object. A field that is absent or null
// reads as nothing; the first wrong one is kept as the error and the rest may be read without
// looking:
//
//   FieldReader fields(body);
//   const auto temperature = fields.number(Body::kSampling["temperature"]);
//   if (fields.error()) return *fields.error();
//
// Threading: thread-confined. The object outlives the reader.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <heddle/request.h>

#include "server/call/field_table.h"
#include "server/http/api_error.h"

namespace heddle::server {

class FieldReader {
 public:
  // `prefix` leads the names in errors: "sampling_params.".
  explicit FieldReader(const nlohmann::ordered_json& object, std::string prefix = {});

  // Null when absent or null.
  [[nodiscard]] const nlohmann::ordered_json* find(std::string_view name) const;

  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name,
                                 int64_t min = std::numeric_limits<int64_t>::min(),
                                 int64_t max = std::numeric_limits<int64_t>::max());
  std::optional<uint64_t> bits(std::string_view name);  // any 64-bit integer, signed or not
  std::optional<double> number(std::string_view name, const NumberRange& range = {});

  // By its row in a table: the default of an absent field, and the range, are the row's.
  bool flag(const Field& field);
  std::optional<int64_t> integer(const Field& field);
  int64_t integer_or_preset(const Field& field);
  std::optional<double> number(const Field& field);
  std::string string_or_preset(const Field& field);

  std::optional<std::string> string(std::string_view name);
  std::optional<std::vector<std::string>> strings(std::string_view name);  // one or a list
  const nlohmann::ordered_json* object(std::string_view name);
  const nlohmann::ordered_json* array(std::string_view name);

  // A list of ids in [0, vocab_size). Nulls are dropped with `skip_nulls`, else wrong.
  std::optional<std::vector<TokenId>> token_ids(std::string_view name, int64_t vocab_size,
                                                bool skip_nulls = false);

  // The names in the object that no method was asked for.
  [[nodiscard]] std::vector<std::string> unasked() const;

  // Keeps `error` unless there is one already.
  void fail(ApiError error);

  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }

  [[nodiscard]] std::string name_of(std::string_view name) const;

 private:
  const nlohmann::ordered_json& object_;
  std::string prefix_;
  mutable std::vector<bool> asked_;  // by position in the object
  std::optional<ApiError> error_;
};

// The names by which a request has fields that a translation calls otherwise: errors of the
// translated request are put into the words of the one that was sent.
//
//   names.add("stop", "stop_sequences");
//   names.restore(error);  // "`stop[0]` is .." becomes "`stop_sequences[0]` is .."
class FieldNames {
 public:
  // Fields below `ours` are renamed, too. Of several that fit, the longest counts.
  void add(std::string ours, std::string theirs);

  // Renames the error's `param`, and the names in its message, which stand between backticks.
  void restore(ApiError& error) const;

 private:
  [[nodiscard]] std::string theirs(std::string_view name) const;

  std::vector<std::pair<std::string, std::string>> names_;
};

// True when `list` holds integers in [0, vocab_size) only; `ids` has them then.
bool read_token_ids(const nlohmann::ordered_json& list, int64_t vocab_size, bool skip_nulls,
                    std::vector<TokenId>& ids);

}  // namespace heddle::server
