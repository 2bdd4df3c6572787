// SPDX-License-Identifier: Apache-2.0
// Value: the result of a template expression. It follows Python's data model as far as chat
// templates can observe it: None, bool, int, float, str, list, tuple, dict, undefined, and a few
// internal kinds. An int beyond 64 bits keeps its digits: it is printed, compared and tested as in
// Python, but arithmetic converts it to a float.
//
// Values are immutable (a namespace is the exception) and cheap to copy: strings, lists and dicts
// are shared. Strings are valid UTF-8; lengths and positions count code points.
//
// Threading:  a Value without internal kinds, such as a render context, may be read from many
// threads.
// Invariants: nesting is at most kMaxValueDepth; values made during a render do not outlive it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <heddle/status.h>

#include "chat/limits.h"
#include "chat/value.h"

namespace heddle::chat {

struct Text;
struct Sequence;
struct BoundMethod;
struct Namespace;  // owned by the render's arena (render_state.h), like LoopState and Macro
struct LoopState;
struct Macro;
class Dict;

enum class Builtin : uint8_t { kRange, kDict, kNamespace, kRaiseException, kStrftimeNow };

using SequencePtr = std::shared_ptr<const Sequence>;

enum class Kind : uint8_t {  // in the order of the alternatives of Value's variant
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kSequence,  // list, tuple, range, dict view or generator
  kDict,
  kNamespace,
  kLoop,
  kMacro,
  kMethod,
  kBuiltin,
  kBigInt,  // an int beyond 64 bits
};

class Value {
 public:
  Value() = default;  // an undefined value without a reason

  // Makes an undefined value. It is falsy and prints nothing; any other use fails with `reason`.
  static Value undefined(std::string reason);

  static Value none() { return Value(Storage(std::in_place_index<1>)); }

  static Value boolean(bool value) { return Value(Storage(std::in_place_index<2>, value)); }

  static Value integer(int64_t value) { return Value(Storage(std::in_place_index<3>, value)); }

  // The int with these decimal digits, which may have a minus before them but no leading zeros.
  static Value integer_of(std::string digits);

  static Value floating(double value) { return Value(Storage(std::in_place_index<4>, value)); }

  // Makes a string that no budget counts; `text` must be valid UTF-8. Renders use make_text().
  static Value string(std::string text);

  static Value from_text(std::shared_ptr<const Text> text) {
    return Value(Storage(std::move(text)));
  }

  static Value sequence(SequencePtr items) { return Value(Storage(std::move(items))); }

  static Value dict(std::shared_ptr<const Dict> dict) { return Value(Storage(std::move(dict))); }

  static Value from(Namespace* object) { return Value(Storage(object)); }

  static Value from(LoopState* object) { return Value(Storage(object)); }

  static Value from(const Macro* object) { return Value(Storage(object)); }

  static Value from(Builtin function) { return Value(Storage(function)); }

  static Value method(const Value& self, std::string_view name);

  [[nodiscard]] Kind kind() const { return static_cast<Kind>(storage_.index()); }

  [[nodiscard]] bool is(Kind kind) const { return this->kind() == kind; }

  [[nodiscard]] bool is_undefined() const { return is(Kind::kUndefined); }

  [[nodiscard]] bool is_none() const { return is(Kind::kNone); }

  [[nodiscard]] bool is_string() const { return is(Kind::kString); }

  // Whether the value is a bool, int or float: the operands of arithmetic.
  [[nodiscard]] bool is_number() const {
    return is(Kind::kBool) || is(Kind::kInt) || is(Kind::kFloat) || is(Kind::kBigInt);
  }

  // Whether the value is a bool or a 64-bit int.
  [[nodiscard]] bool is_integral() const { return is(Kind::kBool) || is(Kind::kInt); }

  // Each of these functions requires the kind that its name says.
  [[nodiscard]] bool as_bool() const { return std::get<2>(storage_); }

  [[nodiscard]] int64_t as_integer() const;  // requires an int or a bool
  [[nodiscard]] double as_double() const;    // requires an int, float or bool; infinite if the
                                             // value exceeds a double's range

  [[nodiscard]] const std::string& as_digits() const { return *std::get<13>(storage_); }

  [[nodiscard]] const std::string& as_string() const;

  [[nodiscard]] const Text& as_text() const { return *std::get<5>(storage_); }

  [[nodiscard]] const SequencePtr& as_sequence() const { return std::get<6>(storage_); }

  [[nodiscard]] const Dict& as_dict() const { return *std::get<7>(storage_); }

  [[nodiscard]] Namespace* as_namespace() const { return std::get<8>(storage_); }

  [[nodiscard]] LoopState* as_loop() const { return std::get<9>(storage_); }

  [[nodiscard]] const Macro* as_macro() const { return std::get<10>(storage_); }

  [[nodiscard]] const BoundMethod& as_method() const { return *std::get<11>(storage_); }

  [[nodiscard]] Builtin as_builtin() const { return std::get<12>(storage_); }

  // Why the value is undefined: "'x' is undefined".
  [[nodiscard]] std::string undefined_reason() const;

  // Python's bool(): empty and zero are false, a generator is true even when empty.
  [[nodiscard]] bool truthy() const;
  // Python's name of the type, for messages: "str", "NoneType".
  [[nodiscard]] std::string_view type_name() const;
  // Number of nested levels of lists and dicts: 0 for a scalar, 1 for a flat list.
  [[nodiscard]] int depth() const;

 private:
  struct Undefined {
    std::shared_ptr<const std::string> reason;
  };

  using Storage =
      std::variant<Undefined, std::monostate, bool, int64_t, double, std::shared_ptr<const Text>,
                   SequencePtr, std::shared_ptr<const Dict>, Namespace*, LoopState*, const Macro*,
                   std::shared_ptr<const BoundMethod>, Builtin, std::shared_ptr<const std::string>>;

  explicit Value(Storage storage) : storage_(std::move(storage)) {}

  Storage storage_;
};

struct Text : Metered {
  Text(Budget* budget, std::string text);

  [[nodiscard]] bool is_ascii() const { return num_code_points == bytes.size(); }

  std::string bytes;  // the text, which is valid UTF-8
  size_t num_code_points;
};

enum class Flavor : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };

// The JSON text from which a list or dict was read: a range of a larger text. A null `text` means
// none.
struct Spelling {
  std::shared_ptr<const std::string> text = nullptr;
  size_t begin = 0;
  size_t size = 0;

  [[nodiscard]] std::string_view view() const {
    return text == nullptr ? std::string_view() : std::string_view(*text).substr(begin, size);
  }
};

struct Sequence : Metered {
  Sequence(Budget* budget, Flavor sequence_flavor, std::vector<Value> values, int levels);

  Flavor flavor;
  std::vector<Value> items;
  int depth;
  Spelling spelling = {};         // JSON text that tojson writes for this sequence
  mutable bool consumed = false;  // whether a generator has already been iterated
};

struct BoundMethod {
  Value self;
  std::string name;
};

// An immutable dict in insertion order. Keys are strings, numbers, booleans or None, equal as in
// Python (1 == 1.0 == True). Lookup costs O(log n) and cannot be slowed down by chosen keys.
class Dict : Metered {
 public:
  using Entry = std::pair<Value, Value>;

  Dict(Budget* budget, std::vector<Entry> entries, std::vector<uint32_t> sorted, int levels,
       Spelling spelling = {});

  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

  [[nodiscard]] size_t size() const { return entries_.size(); }

  [[nodiscard]] int depth() const { return depth_; }

  // The JSON text that tojson writes instead of the entries.
  [[nodiscard]] const Spelling& spelling() const { return spelling_; }

  // The value of `key`, or nullptr. A key of a kind that dicts do not allow is never found.
  [[nodiscard]] const Value* find(const Value& key) const;
  [[nodiscard]] const Value* find(std::string_view key) const;

 private:
  std::vector<Entry> entries_;
  std::vector<uint32_t> sorted_;  // entry indices in key order
  int depth_;
  Spelling spelling_;
};

// These functions check `budget` (which may be null outside a render) before they return a value.
// Error: kInvalidArgument naming the limit, or the value that cannot be a key.
Result<Value> make_text(Budget* budget, std::string text);
Result<Value> make_sequence(Budget* budget, Flavor flavor, std::vector<Value> items,
                            Spelling spelling = {});
Result<Value> make_list(Budget* budget, std::vector<Value> items);
// A repeated key keeps its first position and gets its last value.
Result<Value> make_dict(Budget* budget, std::vector<Dict::Entry> entries, Spelling spelling = {});

// Whether `key` may be a dict key. The next function gives the order in which a Dict sorts keys:
// -1, 0 or 1.
[[nodiscard]] bool is_valid_key(const Value& key);
[[nodiscard]] int compare_keys(const Value& a, const Value& b);

// TextWriter appends to a string under a Budget. The text of a filter or a captured block is
// counted while it is written, so that a small template cannot build an enormous text.
class TextWriter {
 public:
  explicit TextWriter(Budget* budget) : budget_(budget) {}

  ~TextWriter() { budget_->release(text_.size()); }

  TextWriter(const TextWriter&) = delete;
  TextWriter& operator=(const TextWriter&) = delete;

  // Appends text. Error: kInvalidArgument if the budget is exceeded; nothing is appended then.
  Status append(std::string_view piece) {
    HEDDLE_RETURN_IF_ERROR(budget_->fits(piece.size()));
    HEDDLE_RETURN_IF_ERROR(budget_->step(1 + static_cast<int64_t>(piece.size() / 64)));
    budget_->allocate(piece.size());
    text_ += piece;
    return {};
  }

  // Appends `count` copies of a text.
  Status repeat(std::string_view piece, int64_t count) {
    const auto copies = static_cast<size_t>(std::max<int64_t>(count, 0));
    size_t bytes = 0;
    if (__builtin_mul_overflow(piece.size(), copies, &bytes)) bytes = static_cast<size_t>(-1);
    HEDDLE_RETURN_IF_ERROR(budget_->fits(bytes));
    if (bytes == 0) return {};
    HEDDLE_RETURN_IF_ERROR(budget_->touch(bytes));
    budget_->allocate(bytes);
    text_.reserve(text_.size() + bytes);
    for (size_t i = 0; i < copies; ++i) text_ += piece;
    return {};
  }

  [[nodiscard]] const std::string& text() const { return text_; }

  [[nodiscard]] Budget* budget() const { return budget_; }

  [[nodiscard]] std::string take() {
    budget_->release(text_.size());
    std::string text = std::move(text_);
    text_.clear();
    return text;
  }

  // Returns the text as a value and leaves the writer empty.
  Result<Value> finish() { return make_text(budget_, take()); }

 private:
  Budget* budget_;
  std::string text_;
};

}  // namespace heddle::chat
