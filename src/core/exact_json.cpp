// SPDX-License-Identifier: Apache-2.0
#include "core/exact_json.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/json_syntax.h"

namespace heddle {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kWideNumber = 0x6E756D;  // subtype that marks a binary value as a wide number

// Builds a value from the events of the library's parser, with the interface of
// ordered_json::sax_parse(). A function that returns false ends the parse. The library's own
// builder searches each object from the front for every key. This one only appends keys, and
// removes repeated ones once, when the object ends.
class JsonBuilder {
 public:
  // `quoted`: indices of the text's strings, counted from 0, that are wide numbers.
  JsonBuilder(std::span<const std::string_view> fields, std::span<const size_t> quoted)
      : fields_(fields), quoted_(quoted) {}

  bool null() { return add(nullptr) != nullptr; }

  bool boolean(bool value) { return add(value) != nullptr; }

  bool number_integer(int64_t value) { return add(value) != nullptr; }

  bool number_unsigned(uint64_t value) { return add(value) != nullptr; }

  bool number_float(double value, const std::string& text) {
    const bool is_wide = is_integer_spelling(text) && keeps_wide_numbers();
    return add(is_wide ? wide_number(text) : Json(value)) != nullptr;
  }

  bool string(std::string& value) {
    if (!next_is_quoted()) return add(std::move(value)) != nullptr;
    if (keeps_wide_numbers()) return add(wide_number(value)) != nullptr;
    error_ = "[json.exception.out_of_range.406] number overflow parsing '" + value + "'";
    return false;
  }

  bool binary(Json::binary_t& /*value*/) { return false; }  // JSON text has no binary values

  bool start_object(size_t /*size*/) { return open(Json::object()); }

  bool key(std::string& name);
  bool end_object();

  bool start_array(size_t /*size*/) { return open(Json::array()); }

  bool end_array() { return close(); }

  bool parse_error(size_t /*position*/, const std::string& /*token*/, const Json::exception& error);

  // The document. Valid after sax_parse() returned true.
  Json take() { return std::move(root_); }

  // The library's error message. Valid after sax_parse() returned false.
  [[nodiscard]] const std::string& error() const { return error_; }

  // Whether the error was a number beyond a double.
  [[nodiscard]] bool has_overflow() const { return has_overflow_; }

 private:
  [[nodiscard]] bool keeps_wide_numbers() const {
    return fields_.empty() || std::ranges::find(fields_, field_) != fields_.end();
  }

  // Counts a string. Returns whether it is a quoted wide number.
  bool next_is_quoted() {
    const bool is_quoted = !quoted_.empty() && quoted_.front() == num_strings_;
    if (is_quoted) quoted_ = quoted_.subspan(1);
    ++num_strings_;
    return is_quoted;
  }

  Json* add(Json value);  // adds the value at its position in the document
  bool open(Json container);
  bool close();
  void drop_repeated_keys(Json::object_t& object);

  const std::span<const std::string_view> fields_;
  std::span<const size_t> quoted_;  // indices of the quoted strings that are not reached yet
  size_t num_strings_ = 0;
  std::string field_;  // name of the member whose value is read next
  bool has_overflow_ = false;
  Json root_;
  // The open containers, the outermost first; only the innermost one grows.
  std::vector<Json*> open_;
  Json* for_key_ = nullptr;    // the value of the key just read
  std::vector<size_t> order_;  // scratch of drop_repeated_keys()
  std::string error_;
};

bool JsonBuilder::key(std::string& name) {
  if (next_is_quoted()) {
    error_ = "[json.exception.parse_error.101] parse error: the number " + name +
             " stands where an object's key is expected";
    return false;
  }
  if (open_.size() == 1) field_ = name;
  auto& object = open_.back()->get_ref<Json::object_t&>();
  for_key_ = &object.emplace_back(std::move(name), nullptr).second;
  return true;
}

bool JsonBuilder::end_object() {
  drop_repeated_keys(open_.back()->get_ref<Json::object_t&>());
  return close();
}

bool JsonBuilder::parse_error(size_t /*position*/, const std::string& /*token*/,
                              const Json::exception& error) {
  constexpr int kNumberOverflow = 406;
  error_ = error.what();
  has_overflow_ = error.id == kNumberOverflow;
  return false;
}

Json* JsonBuilder::add(Json value) {
  if (open_.empty()) {
    root_ = std::move(value);
    return &root_;
  }
  if (auto* const array = open_.back()->get_ptr<Json::array_t*>()) {
    return &array->emplace_back(std::move(value));
  }
  *for_key_ = std::move(value);
  return for_key_;
}

bool JsonBuilder::open(Json container) {
  if (open_.size() == kMaxJsonDepth) {
    error_ = "the JSON nests more than " + std::to_string(kMaxJsonDepth) + " levels deep";
    return false;
  }
  open_.push_back(add(std::move(container)));
  return true;
}

bool JsonBuilder::close() {
  open_.pop_back();
  return true;
}

void JsonBuilder::drop_repeated_keys(Json::object_t& object) {
  // A span, because object[] would look up a key.
  const auto entries = std::span(object.begin(), object.end());
  order_.resize(object.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  // Sorts by key; equal keys stay in the order of the document.
  std::sort(order_.begin(), order_.end(), [&entries](size_t a, size_t b) {
    const int order = entries[a].first.compare(entries[b].first);
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<bool> repeated;  // allocated only if a key is repeated, which is rare
  for (size_t first = 0, i = 1; i < order_.size(); ++i) {
    if (entries[order_[i]].first != entries[order_[first]].first) {
      first = i;
      continue;
    }
    repeated.resize(object.size());
    repeated[order_[i]] = true;
    entries[order_[first]].second = std::move(entries[order_[i]].second);
  }
  if (repeated.empty()) return;
  Json::object_t kept;
  size_t index = 0;
  for (auto& entry : object) {
    if (!repeated[index++]) kept.push_back(std::move(entry));
  }
  object = std::move(kept);
}

// Number of bytes of the JSON number at the front of `text`.
size_t number_size(std::string_view text) {
  size_t size = text.starts_with('-') ? 1 : 0;
  const auto skip_digits = [&] {
    const size_t from = size;
    size = std::min(text.find_first_not_of("0123456789", size), text.size());
    return size > from;
  };
  if (text.substr(size).starts_with('0')) {
    ++size;
  } else if (!skip_digits()) {
    return 0;
  }
  if (text.substr(size).starts_with('.')) {
    ++size;
    if (!skip_digits()) return 0;
  }
  if (const auto rest = text.substr(size); rest.starts_with('e') || rest.starts_with('E')) {
    ++size;
    if (text.substr(size).starts_with('-') || text.substr(size).starts_with('+')) ++size;
    if (!skip_digits()) return 0;
  }
  return size;
}

// Number of decimal digits before the point of a nonzero JSON number written without exponent.
// Without such digits: the number of zeros after the point, negated. Exponents beyond 64 bits count
// as the largest.
int64_t num_integer_digits(std::string_view number) {
  if (number.starts_with('-')) number.remove_prefix(1);
  const size_t mantissa_size = std::min(number.find_first_of("eE"), number.size());
  const std::string_view mantissa = number.substr(0, mantissa_size);
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  const size_t first = std::min(mantissa.find_first_not_of("0."), mantissa.size());
  const int64_t digits = static_cast<int64_t>(point) - static_cast<int64_t>(first) +
                         static_cast<int64_t>(first > point);
  std::string_view exponent = number.substr(mantissa_size);
  if (exponent.empty()) return digits;
  exponent.remove_prefix(exponent.substr(1).starts_with('+') ? 2 : 1);
  int64_t shift = 0;
  const auto read = std::from_chars(exponent.data(), exponent.data() + exponent.size(), shift);
  if (read.ec != std::errc::result_out_of_range) return digits + shift;
  return exponent.starts_with('-') ? INT64_MIN : INT64_MAX;
}

// Whether a JSON number is too large for a double.
bool overflows(std::string_view number) {
  double value = 0;
  const auto read = std::from_chars(number.data(), number.data() + number.size(), value);
  return read.ec == std::errc::result_out_of_range && num_integer_digits(number) > 0;
}

// The text with its numbers beyond a double in quotes. Appends to `quoted` the indices of these
// strings.
std::string with_quoted_numbers(std::string_view text, std::vector<size_t>& quoted) {
  std::string result;
  size_t num_strings = 0;
  for (size_t i = 0; i < text.size();) {
    size_t size = 1;
    if (text[i] == '"') {
      while (i + size < text.size() && text[i + size] != '"')
        size += text[i + size] == '\\' ? 2 : 1;
      size = std::min(size + 1, text.size() - i);
      ++num_strings;
    } else if (text[i] == '-' || (text[i] >= '0' && text[i] <= '9')) {
      size = std::max<size_t>(number_size(text.substr(i)), 1);
      if (overflows(text.substr(i, size))) {
        quoted.push_back(num_strings++);
        result += '"';
        result += text.substr(i, size);
        result += '"';
        i += size;
        continue;
      }
    }
    result += text.substr(i, size);
    i += size;
  }
  return result;
}

bool has_wide_number(const Json& value) {
  if (value.is_structured()) return std::ranges::any_of(value, has_wide_number);
  return value.is_binary();
}

void append_json(const Json& value, std::string& out) {
  if (const auto spelling = wide_number_spelling(value)) {
    out += *spelling;
  } else if (!value.is_structured()) {
    out += value.dump(-1, ' ', false, Json::error_handler_t::replace);
  } else {
    const bool is_object = value.is_object();
    char separator = is_object ? '{' : '[';
    if (value.empty()) out += separator;
    for (const auto& [key, member] : value.items()) {
      out += std::exchange(separator, ',');
      if (is_object) {
        append_json(Json(key), out);
        out += ':';
      }
      append_json(member, out);
    }
    out += is_object ? '}' : ']';
  }
}

}  // namespace

Json wide_number(std::string_view spelling) {
  return Json::binary({spelling.begin(), spelling.end()}, kWideNumber);
}

std::optional<std::string_view> wide_number_spelling(const Json& value) {
  if (!value.is_binary()) return std::nullopt;
  const auto& bytes = value.get_binary();
  if (!bytes.has_subtype() || bytes.subtype() != kWideNumber) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

bool is_integer_spelling(std::string_view number) {
  return number.find_first_of(".eE") == std::string_view::npos;
}

Result<Json> parse_exact_json(std::string_view text, std::span<const std::string_view> fields) {
  JsonBuilder builder(fields, {});
  if (Json::sax_parse(text.begin(), text.end(), &builder)) return builder.take();
  if (builder.has_overflow()) {
    std::vector<size_t> quoted;
    const std::string readable = with_quoted_numbers(text, quoted);
    JsonBuilder again(fields, quoted);
    if (Json::sax_parse(readable, &again)) return again.take();
    return invalid_argument(again.error());
  }
  return invalid_argument(builder.error());
}

Json object_of_json(std::string_view text) {
  auto parsed = parse_exact_json(text);
  return parsed.ok() && parsed.value().is_object() ? std::move(parsed).value() : Json::object();
}

std::string dump_exact_json(const Json& value) {
  if (!has_wide_number(value)) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string text;
  append_json(value, text);
  return text;
}

}  // namespace heddle
