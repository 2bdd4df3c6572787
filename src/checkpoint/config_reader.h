// SPDX-License-Identifier: Apache-2.0
// Typed reading of untrusted JSON configuration. Every value is checked for type and range. The
// reader stores the first error, with key and value, until status() is called, so that a parser
// reads as a list of fields. `null` counts as absent everywhere. A reader remembers which keys were
// asked for, so that keys that no reader understands can be found. If two scopes have different
// values for a key, a note with both values is added when the key is first asked for.
//
// Threading: thread-confined. Points into the document, which must outlive it.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

namespace heddle::checkpoint {

// The largest configuration file that is read; a larger one is an error.
inline constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;

// Parses text that must be one JSON object, by the rules of core/json_syntax.h. Error: kDataLoss,
// with line and column.
Result<nlohmann::json> parse_json_object(std::string_view text);

class ConfigReader {
 public:
  struct IntegerRange {
    int64_t low = 1;
    int64_t high = std::numeric_limits<int64_t>::max();
  };

  // Bounds are inclusive; NaN never passes, and infinities only where a bound is one.
  struct NumberRange {
    double low = -std::numeric_limits<double>::max();
    double high = std::numeric_limits<double>::max();
  };

  // Looks keys up in `scopes`, first to last. `first_error` is shared by the readers of one
  // document.
  ConfigReader(std::vector<const nlohmann::json*> scopes, Status& first_error)
      : scopes_(std::move(scopes)),
        first_error_(first_error),
        notes_(std::make_shared<std::vector<std::string>>()) {}

  // A reader of the same document that searches the objects `inner` first and then, if `keep_own`
  // is true, this reader's scopes. Null scopes are skipped.
  [[nodiscard]] ConfigReader narrowed(std::vector<const nlohmann::json*> inner,
                                      bool keep_own) const;

  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }

  // The raw value, or null when it is absent.
  [[nodiscard]] const nlohmann::json* find(std::string_view key) const;

  // Whether the value is absent, false, 0 or empty, which files write for a feature that is not
  // used.
  [[nodiscard]] bool is_off(std::string_view key) const;

  // Of two spellings of a key, the one that the document uses. If it uses neither, `first`, which
  // an error then reports as missing.
  [[nodiscard]] std::string_view spelling(std::string_view first, std::string_view second) const;

  // Whether any getter of this reader read `key`. Readers narrowed from it count separately.
  [[nodiscard]] bool was_asked_for(std::string_view key) const { return asked_for_.contains(key); }

  // Marks `key` as read, because nothing depends on its value: it is not reported as unknown.
  void disregard(std::string_view key) { asked_for_.emplace(key); }

  // Without `fallback`, a missing key is an error. On an error getters return the fallback, the
  // range's lower end, or an empty string or list, so that reading can continue.
  int64_t integer(std::string_view key, std::optional<int64_t> fallback, IntegerRange range);
  // Reads a period in layers, at least 1. A negative number has the same multiples, as in Python:
  // its absolute value is used and a note is added. 0 is an error.
  int64_t interval(std::string_view key, int64_t fallback);
  double number(std::string_view key, std::optional<double> fallback, NumberRange range);
  bool boolean(std::string_view key, bool fallback);
  std::string text(std::string_view key, const std::optional<std::string>& fallback);

  // Reads one integer or a list of integers; empty when absent.
  std::vector<int64_t> integers(std::string_view key, IntegerRange range);
  std::vector<std::string> texts(std::string_view key);

  // A list of exactly fallback.size() numbers; `fallback` where the list is absent or wrong. Where
  // range.high is infinite, null and "inf" mean infinity, for files that cannot write the number.
  std::vector<double> numbers(std::string_view key, const std::vector<double>& fallback,
                              NumberRange range);

  // A nested object; null when absent or not an object, which is an error.
  const nlohmann::json* object(std::string_view key);

  // Stores an error unless there is one already: kInvalidArgument "<key> is <value>, <complaint>".
  void fail(std::string_view key, std::string_view complaint);
  // Refuses a valid but unsupported value: kUnimplemented "<key> is <value>; <remedy>".
  void refuse(std::string_view key, std::string_view remedy);
  void fail(Status status);

  [[nodiscard]] const Status& status() const { return first_error_; }

  // Where the document gives two answers to one question: both, and which of them is used. Of this
  // reader and all that were narrowed from it.
  void note(std::string sentence) const { notes_->push_back(std::move(sentence)); }

  [[nodiscard]] const std::vector<std::string>& notes() const { return *notes_; }

 private:
  bool integer_of(std::string_view key, const nlohmann::json& value, IntegerRange range,
                  int64_t& result);

  std::vector<const nlohmann::json*> scopes_;
  Status& first_error_;
  std::shared_ptr<std::vector<std::string>> notes_;       // shared by the readers of one document
  mutable std::set<std::string, std::less<>> asked_for_;  // a note beside the document, not a part
};

// Bounds of the values of a config.json: far above any published model, and low enough that no
// product of a few of them leaves 63 bits.
inline constexpr ConfigReader::IntegerRange kVocabulary{
    1, (int64_t{1} << 20) - 1};  // the most that ops/sampling/token_weight.h can sum
inline constexpr ConfigReader::IntegerRange kWidth{1, int64_t{1} << 20};
inline constexpr ConfigReader::IntegerRange kLayers{1, 1024};
inline constexpr ConfigReader::IntegerRange kHeads{1, 4096};
inline constexpr ConfigReader::IntegerRange kHeadDim{1, 4096};
inline constexpr ConfigReader::IntegerRange kConvolution{1, 64};
inline constexpr ConfigReader::IntegerRange kExperts{1, 16384};
inline constexpr ConfigReader::IntegerRange kPositions{1, (int64_t{1} << 31) - 1};
inline constexpr ConfigReader::IntegerRange kTokenIds{0, int64_t{1} << 24};

}  // namespace heddle::checkpoint
