// SPDX-License-Identifier: Apache-2.0
// FieldReader: reads typed, optional fields of a JSON object. A field that is absent or null reads
// as none. The first wrong field is stored as the error; after it, further fields may be read
// without checks:
//
//   FieldReader fields(body);
//   const auto temperature = fields.number(Body::kSampling["temperature"]);
//   if (fields.error()) return *fields.error();
//
// Threading: thread-confined. The JSON object outlives the reader.
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
  // `prefix` is put before field names in errors, as "sampling_params.".
  explicit FieldReader(const nlohmann::ordered_json& object, std::string prefix = {});

  // The value of a field; null if it is absent or JSON's null.
  [[nodiscard]] const nlohmann::ordered_json* find(std::string_view name) const;

  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name,
                                 int64_t min = std::numeric_limits<int64_t>::min(),
                                 int64_t max = std::numeric_limits<int64_t>::max());
  std::optional<uint64_t> bits(std::string_view name);  // any 64-bit integer, signed or unsigned
  std::optional<double> number(std::string_view name, const NumberRange& range = {});

  // These read a field by its row in a table, which has its range and the default if it is absent.
  bool flag(const Field& field);
  std::optional<int64_t> integer(const Field& field);
  int64_t integer_or_preset(const Field& field);
  std::optional<double> number(const Field& field);
  std::string string_or_preset(const Field& field);

  std::optional<std::string> string(std::string_view name);
  // A text or a list of texts.
  std::optional<std::vector<std::string>> strings(std::string_view name);
  const nlohmann::ordered_json* object(std::string_view name);
  const nlohmann::ordered_json* array(std::string_view name);

  // Reads a list of ids in [0, vocab_size). Nulls are dropped with `skip_nulls`, otherwise they are
  // errors.
  std::optional<std::vector<TokenId>> token_ids(std::string_view name, int64_t vocab_size,
                                                bool skip_nulls = false);

  // The names in the object that no function has asked for.
  [[nodiscard]] std::vector<std::string> unasked() const;

  // Stores `error` unless there is one already.
  void fail(ApiError error);

  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }

  [[nodiscard]] std::string name_of(std::string_view name) const;

 private:
  const nlohmann::ordered_json& object_;
  std::string prefix_;
  mutable std::vector<bool> asked_;  // whether a field was asked for, by its position in the object
  std::optional<ApiError> error_;
};

// Maps field names of a translated request back to those of the original one, so that errors name
// the fields that the client sent.
//
//   names.add("stop", "stop_sequences");
//   names.restore(error);  // "`stop[0]` is .." becomes "`stop_sequences[0]` is .."
class FieldNames {
 public:
  // Adds a pair of names. It also renames fields below `ours`. If several names match, the longest
  // is used.
  void add(std::string ours, std::string theirs);

  // Renames the error's `param`, and the names between backticks in its message.
  void restore(ApiError& error) const;

 private:
  [[nodiscard]] std::string theirs(std::string_view name) const;

  std::vector<std::pair<std::string, std::string>> names_;
};

// True if `list` contains only integers in [0, vocab_size), which are then copied to `ids`.
bool read_token_ids(const nlohmann::ordered_json& list, int64_t vocab_size, bool skip_nulls,
                    std::vector<TokenId>& ids);

}  // namespace heddle::server
