// SPDX-License-Identifier: Apache-2.0
#include "chat/strftime.h"

#include <array>

#include <fmt/format.h>

#include "chat/python_text.h"

namespace heddle::chat {

namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};

// `value` in at least `width` columns, filled with `fill` unless padding is off.
std::string padded(int value, int width, char fill, bool unpadded) {
  std::string digits = fmt::format("{}", value);
  const auto wanted = static_cast<size_t>(unpadded ? 0 : width);
  if (digits.size() < wanted) digits.insert(0, wanted - digits.size(), fill);
  return digits;
}

bool is_sane(const std::tm& time) {
  return time.tm_sec >= 0 && time.tm_sec <= 60 && time.tm_min >= 0 && time.tm_min < 60 &&
         time.tm_hour >= 0 && time.tm_hour < 24 && time.tm_mday >= 1 && time.tm_mday <= 31 &&
         time.tm_mon >= 0 && time.tm_mon < 12 && time.tm_wday >= 0 && time.tm_wday < 7 &&
         time.tm_yday >= 0 && time.tm_yday < 366 && time.tm_year >= -1899 && time.tm_year <= 8099;
}

// One conversion, or nothing when the letter is unknown. A composite is written as other
// conversions.
bool append_conversion(char letter, bool bare, const std::tm& time, std::string& out) {
  const int year = time.tm_year + 1900;
  const int hour12 = time.tm_hour % 12 == 0 ? 12 : time.tm_hour % 12;
  const std::string_view day = kDays[static_cast<size_t>(time.tm_wday)];
  const std::string_view month = kMonths[static_cast<size_t>(time.tm_mon)];
  const auto composite = [&time, &out](std::string_view letters) {
    for (const char c : letters) {
      if (c >= 'A') {
        append_conversion(c, false, time, out);
      } else {
        out += c;
      }
    }
    return true;
  };
  switch (letter) {
    case 'a':
      out += day.substr(0, 3);
      return true;
    case 'A':
      out += day;
      return true;
    case 'b':
    case 'h':
      out += month.substr(0, 3);
      return true;
    case 'B':
      out += month;
      return true;
    case 'c':
      return composite("a b e T Y");
    case 'C':
      out += padded(year / 100, 2, '0', bare);
      return true;
    case 'd':
      out += padded(time.tm_mday, 2, '0', bare);
      return true;
    case 'D':
    case 'x':
      return composite("m/d/y");
    case 'e':
      out += padded(time.tm_mday, 2, ' ', bare);
      return true;
    case 'f':
      out += "000000";  // a std::tm has whole seconds
      return true;
    case 'F':
      return composite("Y-m-d");
    case 'H':
      out += padded(time.tm_hour, 2, '0', bare);
      return true;
    case 'I':
      out += padded(hour12, 2, '0', bare);
      return true;
    case 'j':
      out += padded(time.tm_yday + 1, 3, '0', bare);
      return true;
    case 'k':
      out += padded(time.tm_hour, 2, ' ', bare);
      return true;
    case 'l':
      out += padded(hour12, 2, ' ', bare);
      return true;
    case 'm':
      out += padded(time.tm_mon + 1, 2, '0', bare);
      return true;
    case 'M':
      out += padded(time.tm_min, 2, '0', bare);
      return true;
    case 'n':
      out += '\n';
      return true;
    case 'p':
      out += time.tm_hour < 12 ? "AM" : "PM";
      return true;
    case 'P':
      out += time.tm_hour < 12 ? "am" : "pm";
      return true;
    case 'r':
      return composite("I:M:S p");
    case 'R':
      return composite("H:M");
    case 'S':
      out += padded(time.tm_sec, 2, '0', bare);
      return true;
    case 't':
      out += '\t';
      return true;
    case 'T':
    case 'X':
      return composite("H:M:S");
    case 'u':
      out += padded(time.tm_wday == 0 ? 7 : time.tm_wday, 1, '0', bare);
      return true;
    case 'w':
      out += padded(time.tm_wday, 1, '0', bare);
      return true;
    case 'y':
      out += padded(year % 100, 2, '0', bare);
      return true;
    case 'Y':
      out += padded(year, 4, '0', bare);
      return true;
    case 'Z':
    case 'z':
      return true;
    case '%':
      out += '%';
      return true;
    default:
      return false;
  }
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
