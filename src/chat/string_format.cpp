// SPDX-License-Identifier: Apache-2.0
#include "chat/string_format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include <fmt/format.h>
#include <locale.h>  // declares newlocale

#include "chat/numbers.h"
#include "chat/python_text.h"
#include "chat/text_operations.h"
#include "chat/value.h"

namespace heddle::chat {

namespace {

constexpr int kMaxPrecision = 300;

// One conversion of a percent format: %[flags][width][.precision]kind.
struct Conversion {
  bool left = false;
  bool zero = false;
  bool plus = false;
  bool space = false;
  bool alternate = false;
  int64_t width = 0;
  int precision = -1;
  char kind = 's';
};

Result<int64_t> read_number(std::string_view format, size_t& i) {
  int64_t number = 0;
  const auto [stop, error] =
      std::from_chars(format.data() + i, format.data() + format.size(), number);
  if (error == std::errc::result_out_of_range)
    return invalid_argument("a format's width is too large");
  i = static_cast<size_t>(stop - format.data());
  return number;
}

Result<Conversion> read_conversion(std::string_view format, size_t& i) {
  Conversion conversion;
  for (; i < format.size(); ++i) {
    if (format[i] == '-') {
      conversion.left = true;
    } else if (format[i] == '0') {
      conversion.zero = true;
    } else if (format[i] == '+') {
      conversion.plus = true;
    } else if (format[i] == ' ') {
      conversion.space = true;
    } else if (format[i] == '#') {
      conversion.alternate = true;
    } else {
      break;
    }
  }
  if (i < format.size() && format[i] >= '1' && format[i] <= '9') {
    HEDDLE_ASSIGN_OR_RETURN(conversion.width, read_number(format, i));
  }
  if (i < format.size() && format[i] == '.') {
    ++i;
    int64_t precision = 0;
    if (i < format.size() && format[i] >= '0' && format[i] <= '9') {
      HEDDLE_ASSIGN_OR_RETURN(precision, read_number(format, i));
    }
    if (precision > kMaxPrecision) return invalid_argument("a format's precision is too large");
    conversion.precision = static_cast<int>(precision);
  }
  if (i >= format.size()) return invalid_argument("incomplete format");
  conversion.kind = format[i++];
  return conversion;
}

// The sign and the digits of a number as `conversion` requires them.
Result<std::pair<std::string, std::string>> number_parts(const Conversion& conversion,
                                                         const Value& value) {
  if (!value.is_number()) {
    return invalid_argument(fmt::format("%{} format: a number is required, not '{}'",
                                        conversion.kind, value.type_name()));
  }
  std::string digits;
  bool negative = false;
  if (std::string_view("eEfFgG").find(conversion.kind) != std::string_view::npos) {
    const double number = value.as_double();
    negative = std::signbit(number) && !std::isnan(number);
    const int precision = conversion.precision < 0 ? 6 : conversion.precision;
    const double magnitude = std::fabs(number);
    switch (conversion.kind) {
      case 'e':
        digits = fmt::format("{:.{}e}", magnitude, precision);
        break;
      case 'E':
        digits = fmt::format("{:.{}E}", magnitude, precision);
        break;
      case 'g':
        digits = fmt::format("{:.{}g}", magnitude, precision);
        break;
      case 'G':
        digits = fmt::format("{:.{}G}", magnitude, precision);
        break;
      default:
        digits = fmt::format("{:.{}f}", magnitude, precision);
    }
  } else if (value.is(Kind::kBigInt) &&
             std::string_view("diu").find(conversion.kind) != std::string_view::npos) {
    digits = value.as_digits();
    negative = digits.starts_with('-');
    if (negative) digits.erase(0, 1);
  } else {
    int64_t number = 0;
    if (value.is_integral()) {
      number = value.as_integer();
    } else {
      HEDDLE_ASSIGN_OR_RETURN(number, truncate_to_integer(value.as_double()));
    }
    negative = number < 0;
    const uint64_t magnitude =
        negative ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    switch (conversion.kind) {
      case 'x':
        digits = fmt::format("{:x}", magnitude);
        break;
      case 'X':
        digits = fmt::format("{:X}", magnitude);
        break;
      case 'o':
        digits = fmt::format("{:o}", magnitude);
        break;
      default:
        digits = fmt::format("{}", magnitude);
    }
    if (static_cast<int64_t>(digits.size()) < conversion.precision) {
      digits.insert(0, static_cast<size_t>(conversion.precision) - digits.size(), '0');
    }
  }
  std::string sign = negative ? "-" : conversion.plus ? "+" : conversion.space ? " " : "";
  if (conversion.alternate &&
      std::string_view("xXo").find(conversion.kind) != std::string_view::npos) {
    sign += '0';
    sign += conversion.kind;
  }
  return std::pair{std::move(sign), std::move(digits)};
}

Status write_padded(TextWriter& out, const Conversion& conversion, std::string_view sign,
                    std::string_view body, bool is_number) {
  const auto length = static_cast<int64_t>(count_code_points(sign) + count_code_points(body));
  const int64_t missing = std::max<int64_t>(conversion.width - length, 0);
  const bool zeros = conversion.zero && is_number && !conversion.left;
  if (!conversion.left && !zeros) HEDDLE_RETURN_IF_ERROR(out.repeat(" ", missing));
  HEDDLE_RETURN_IF_ERROR(out.append(sign));
  if (zeros) HEDDLE_RETURN_IF_ERROR(out.repeat("0", missing));
  HEDDLE_RETURN_IF_ERROR(out.append(body));
  return conversion.left ? out.repeat(" ", missing) : Status();
}

Status write_conversion(TextWriter& out, const Conversion& conversion, const Value& value) {
  switch (conversion.kind) {
    case 's':
    case 'r': {
      TextWriter text(out.budget());
      HEDDLE_RETURN_IF_ERROR(conversion.kind == 's' ? write_str(text, value)
                                                    : write_repr(text, value));
      std::string_view shown = text.text();
      if (conversion.precision >= 0) {
        shown =
            shown.substr(0, offset_of_code_point(shown, static_cast<size_t>(conversion.precision)));
      }
      return write_padded(out, conversion, "", shown, false);
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G': {
      HEDDLE_ASSIGN_OR_RETURN(const auto parts, number_parts(conversion, value));
      return write_padded(out, conversion, parts.first, parts.second, true);
    }
    default:
      return invalid_argument(
          fmt::format("unsupported format character {}", repr_of(std::string(1, conversion.kind))));
  }
}

}  // namespace

Result<Value> format_percent(Budget* budget, std::string_view format, const Value& values) {
  const bool is_tuple =
      values.is(Kind::kSequence) && values.as_sequence()->flavor == Flavor::kTuple;
  const size_t num_values = is_tuple ? values.as_sequence()->items.size() : 1;
  size_t used = 0;
  TextWriter out(budget);
  for (size_t i = 0; i < format.size();) {
    const size_t percent = std::min(format.find('%', i), format.size());
    HEDDLE_RETURN_IF_ERROR(out.append(format.substr(i, percent - i)));
    if (percent == format.size()) break;
    i = percent + 1;
    if (i < format.size() && format[i] == '%') {
      ++i;
      HEDDLE_RETURN_IF_ERROR(out.append("%"));
      continue;
    }
    if (i < format.size() && static_cast<unsigned char>(format[i]) >= 0x80) {
      return invalid_argument("unsupported format character");
    }
    HEDDLE_ASSIGN_OR_RETURN(const Conversion conversion, read_conversion(format, i));
    if (static_cast<unsigned char>(conversion.kind) >= 0x80) {
      return invalid_argument("unsupported format character");
    }
    if (used == num_values) return invalid_argument("not enough arguments for format string");
    const Value& value = is_tuple ? values.as_sequence()->items[used] : values;
    ++used;
    HEDDLE_RETURN_IF_ERROR(write_conversion(out, conversion, value));
  }
  const bool may_be_unused =
      values.is(Kind::kDict) || values.is_undefined() || (values.is(Kind::kSequence) && !is_tuple);
  if (used < num_values && !may_be_unused) {
    return invalid_argument("not all arguments converted during string formatting");
  }
  return out.finish();
}

Result<Value> format_braces(Budget* budget, std::string_view format, const Arguments& arguments) {
  size_t next = 0;
  TextWriter out(budget);
  for (size_t i = 0; i < format.size();) {
    const size_t brace = std::min(format.find_first_of("{}", i), format.size());
    HEDDLE_RETURN_IF_ERROR(out.append(format.substr(i, brace - i)));
    if (brace == format.size()) break;
    if (brace + 1 < format.size() && format[brace + 1] == format[brace]) {
      HEDDLE_RETURN_IF_ERROR(out.append(format.substr(brace, 1)));
      i = brace + 2;
      continue;
    }
    const size_t end = format.find('}', brace);
    if (format[brace] == '}' || end == std::string_view::npos) {
      return invalid_argument("format(): a single brace stands in the format string");
    }
    const std::string_view field = format.substr(brace + 1, end - brace - 1);
    i = end + 1;
    if (field.find_first_of("{.[!:") != std::string_view::npos) {
      return invalid_argument(fmt::format(
          "format(): the field {} is not supported; use {{}}, {{0}} or {{name}}", repr_of(field)));
    }
    const Value* value = nullptr;
    const std::optional<int64_t> index = field.empty()
                                             ? std::optional<int64_t>(static_cast<int64_t>(next++))
                                             : parse_integer(field, 10);
    if (index && *index >= 0) {
      if (static_cast<uint64_t>(*index) < arguments.positional.size()) {
        value = &arguments.positional[static_cast<size_t>(*index)];
      }
    } else {
      HEDDLE_RETURN_IF_ERROR(budget->step(static_cast<int64_t>(arguments.named.size() / 8)));
      for (const auto& [name, named] : arguments.named) {
        if (name == field) value = &named;
      }
    }
    if (value == nullptr) {
      return invalid_argument(
          fmt::format("format(): there is no argument for the field {}", repr_of(field)));
    }
    HEDDLE_RETURN_IF_ERROR(write_str(out, *value));
  }
  return out.finish();
}

namespace {

// Whether the fields are in range; the C library does not check them.
bool is_sane(const std::tm& time) {
  return time.tm_sec >= 0 && time.tm_sec <= 60 && time.tm_min >= 0 && time.tm_min < 60 &&
         time.tm_hour >= 0 && time.tm_hour < 24 && time.tm_mday >= 1 && time.tm_mday <= 31 &&
         time.tm_mon >= 0 && time.tm_mon < 12 && time.tm_wday >= 0 && time.tm_wday < 7 &&
         time.tm_yday >= 0 && time.tm_yday < 366 && time.tm_year >= -1899 && time.tm_year <= 8099;
}

// The C library's conversions in its English C locale, and Python's %f, %z and %Z, for a time that
// has neither fractions of a second nor a zone.
constexpr std::string_view kTimeConversions = "aAbBcCdDeFhHIjklmMnpPrRStTuwxXyY%";

// Appends one conversion. Returns false if the letter is unknown. `bare`: numbers are not padded.
bool append_conversion(char letter, bool bare, const std::tm& time, std::string& out) {
  static const locale_t kEnglish = newlocale(LC_ALL_MASK, "C", nullptr);
  if (letter == 'z' || letter == 'Z') return true;
  if (letter == 'f') {
    out += "000000";
    return true;
  }
  if (kTimeConversions.find(letter) == std::string_view::npos) return false;
  const std::string conversion = std::string(bare ? "%-" : "%") + letter;
  std::array<char, 64> text{};  // the longest result, of %c, has 24 characters
  out.append(text.data(),
             strftime_l(text.data(), text.size(), conversion.c_str(), &time, kEnglish));
  return true;
}

}  // namespace

Result<std::string> format_time(std::string_view format, const std::tm& time) {
  if (!is_sane(time)) return invalid_argument("strftime: the time has a field out of range");
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    size_t letter = i + 1;
    const bool bare = letter < format.size() && format[letter] == '-';
    if (bare) ++letter;
    if (letter >= format.size() || !append_conversion(format[letter], bare, time, out)) {
      return invalid_argument(fmt::format("strftime: the conversion {} is not supported",
                                          repr_of(format.substr(i, letter + 1 - i))));
    }
    i = letter;
  }
  return out;
}

}  // namespace heddle::chat
