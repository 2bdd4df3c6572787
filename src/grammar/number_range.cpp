// SPDX-License-Identifier: Apache-2.0
#include "grammar/number_range.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/exact_json.h"

namespace heddle::grammar {
namespace {

constexpr int kMaxDigits = 18;
constexpr int kMaxDecimals = 6;

uint8_t digit(int value) { return static_cast<uint8_t>('0' + value); }

std::string digits_of(uint64_t value, size_t width) {
  std::string text = fmt::format("{}", value);
  return text.size() < width ? std::string(width - text.size(), '0') + text : text;
}

// Adds digit strings of one length, with a point before the last `decimals` digits.
class DigitWriter {
 public:
  DigitWriter(Nfa& nfa, size_t decimals, NfaState to) : nfa_(nfa), decimals_(decimals), to_(to) {}

  // Adds the strings from `low` to `high`, which must have the same length.
  void add_between(NfaState from, std::string_view low, std::string_view high) {
    if (low.empty()) {
      nfa_.add_empty(from, to_);
      return;
    }
    if (low == std::string(low.size(), '0') && high == std::string(high.size(), '9')) {
      add_any(from, low.size());
      return;
    }
    from = point(from, low.size());
    const int first = low[0] - '0';
    const int last = high[0] - '0';
    if (first == last) {
      const NfaState next = nfa_.add_state();
      nfa_.add_bytes(from, digit(first), digit(first), next);
      add_between(next, low.substr(1), high.substr(1));
      return;
    }
    const size_t rest = low.size() - 1;
    const NfaState at_low = nfa_.add_state();
    nfa_.add_bytes(from, digit(first), digit(first), at_low);
    add_between(at_low, low.substr(1), std::string(rest, '9'));
    if (first + 1 <= last - 1) {
      const NfaState between = nfa_.add_state();
      nfa_.add_bytes(from, digit(first + 1), digit(last - 1), between);
      add_any(between, rest);
    }
    const NfaState at_high = nfa_.add_state();
    nfa_.add_bytes(from, digit(last), digit(last), at_high);
    add_between(at_high, std::string(rest, '0'), high.substr(1));
  }

 private:
  void add_any(NfaState from, size_t count) {
    for (; count > 0; --count) {
      from = point(from, count);
      const NfaState next = nfa_.add_state();
      nfa_.add_bytes(from, '0', '9', next);
      from = next;
    }
    nfa_.add_empty(from, to_);
  }

  // Adds the point, if the `left` remaining digits are the decimals.
  NfaState point(NfaState from, size_t left) {
    if (decimals_ == 0 || left != decimals_) return from;
    const NfaState next = nfa_.add_state();
    nfa_.add_bytes(from, '.', '.', next);
    return next;
  }

  Nfa& nfa_;
  const size_t decimals_;
  const NfaState to_;
};

uint64_t power_of_ten(int exponent) {
  uint64_t power = 1;
  for (int i = 0; i < exponent; ++i) power *= 10;
  return power;
}

// Adds the integers from `low` to `high`, not negative, divided by 10^decimals.
void add_magnitudes(Nfa& nfa, NfaState from, uint64_t low, uint64_t high, int decimals,
                    NfaState to) {
  DigitWriter writer(nfa, static_cast<size_t>(decimals), to);
  for (int length = decimals + 1; length <= kMaxDigits; ++length) {
    const uint64_t smallest = length == decimals + 1 ? 0 : power_of_ten(length - 1);
    const uint64_t largest = power_of_ten(length) - 1;
    const uint64_t first = std::max(low, smallest);
    const uint64_t last = std::min(high, largest);
    if (first > last) continue;
    const auto width = static_cast<size_t>(length);
    writer.add_between(from, digits_of(first, width), digits_of(last, width));
  }
}

Nanos divide_up(Nanos value, Nanos divisor) {
  return value >= 0 ? (value + divisor - 1) / divisor : -(-value / divisor);
}

Nanos divide_down(Nanos value, Nanos divisor) { return -divide_up(-value, divisor); }

// Adds numbers with exactly `decimals` decimals.
void add_with_decimals(Nfa& nfa, NfaState from, const NumberRange& range, int decimals,
                       NfaState to) {
  const Nanos unit = kNanosPerUnit / static_cast<Nanos>(power_of_ten(decimals));
  Nanos low = range.excludes_min ? divide_down(range.min, unit) + 1 : divide_up(range.min, unit);
  Nanos high = range.excludes_max ? divide_up(range.max, unit) - 1 : divide_down(range.max, unit);
  low = std::max(low, -kMaxInteger);
  high = std::min(high, kMaxInteger);
  if (low > high) return;
  if (low < 0) {
    const NfaState minus = nfa.add_state();
    nfa.add_bytes(from, '-', '-', minus);
    add_magnitudes(nfa, minus, static_cast<uint64_t>(std::max<Nanos>(-high, 1)),
                   static_cast<uint64_t>(-low), decimals, to);
  }
  if (high >= 0) {
    add_magnitudes(nfa, from, static_cast<uint64_t>(std::max<Nanos>(low, 0)),
                   static_cast<uint64_t>(high), decimals, to);
  }
}

// Adds one to `count` digits or, without `wants_one`, none to `count`.
void add_digits(Nfa& nfa, NfaState from, int count, bool wants_one, NfaState to) {
  for (int i = 0; i < count; ++i) {
    if (i > 0 || !wants_one) nfa.add_empty(from, to);
    const NfaState next = nfa.add_state();
    nfa.add_bytes(from, '0', '9', next);
    from = next;
  }
  nfa.add_empty(from, to);
}

}  // namespace

Result<Nanos> nanos_of(const nlohmann::ordered_json& number) {
  if (const auto spelling = wide_number_spelling(number)) {
    const Nanos beyond = (kMaxInteger + 1) * kNanosPerUnit;
    return spelling->starts_with('-') ? -beyond : beyond;
  }
  const std::string text = number.dump();
  size_t at = 0;
  const bool is_negative = text[at] == '-';
  if (is_negative) ++at;
  Nanos value = 0;
  int decimals = 0;
  bool after_point = false;
  for (; at < text.size() && text[at] != 'e'; ++at) {
    if (text[at] == '.') {
      after_point = true;
      continue;
    }
    value = value * 10 + (text[at] - '0');
    if (after_point) ++decimals;
  }
  const int exponent = at < text.size() ? std::atoi(text.c_str() + at + 1) : 0;
  int shift = exponent - decimals + 9;
  for (; shift > 0 && value <= kMaxInteger * kNanosPerUnit; --shift) value *= 10;
  for (; shift < 0 && value % 10 == 0 && value != 0; ++shift) value /= 10;
  value = std::min(value, (kMaxInteger + 1) * kNanosPerUnit);
  if (shift < 0 && value != 0) {
    return invalid_argument(
        fmt::format("the bound {} has more than 9 decimals; round it to 9", text));
  }
  return is_negative ? -value : value;
}

void add_integers(Nfa& nfa, NfaState from, const NumberRange& range, NfaState to) {
  add_with_decimals(nfa, from, range, 0, to);
}

void add_decimals(Nfa& nfa, NfaState from, const NumberRange& range, NfaState to) {
  for (int decimals = 0; decimals <= kMaxDecimals; ++decimals) {
    add_with_decimals(nfa, from, range, decimals, to);
  }
}

void add_multiples(Nfa& nfa, NfaState from, int divisor, NfaState to) {
  const NfaState first = nfa.add_state();
  nfa.add_empty(from, first);
  nfa.add_bytes(from, '0', '0', to);
  nfa.add_bytes(from, '-', '-', first);
  // One state for each remainder of the digits so far; a single zero was added above.
  std::vector<NfaState> states(static_cast<size_t>(divisor));
  for (int remainder = 0; remainder < divisor; ++remainder) {
    states[static_cast<size_t>(remainder)] = nfa.add_state();
  }
  const auto state = [&](int remainder) { return states[static_cast<size_t>(remainder)]; };
  for (int value = 1; value <= 9; ++value) {
    nfa.add_bytes(first, digit(value), digit(value), state(value % divisor));
  }
  for (int remainder = 0; remainder < divisor; ++remainder) {
    for (int value = 0; value <= 9; ++value) {
      nfa.add_bytes(state(remainder), digit(value), digit(value),
                    state((remainder * 10 + value) % divisor));
    }
  }
  nfa.add_empty(state(0), to);
}

void add_any_integer(Nfa& nfa, NfaState from, NfaState to) {
  const NfaState magnitude = nfa.add_state();
  nfa.add_bytes(from, '-', '-', magnitude);
  nfa.add_empty(from, magnitude);
  nfa.add_bytes(magnitude, '0', '0', to);
  const NfaState more = nfa.add_state();
  nfa.add_bytes(magnitude, '1', '9', more);
  add_digits(nfa, more, kMaxDigits - 1, false, to);
}

void add_any_number(Nfa& nfa, NfaState from, NfaState to) {
  const NfaState whole = nfa.add_state();
  add_any_integer(nfa, from, whole);
  const NfaState point = nfa.add_state();
  nfa.add_bytes(whole, '.', '.', point);
  const NfaState fraction = nfa.add_state();
  add_digits(nfa, point, kMaxDigits - 1, true, fraction);
  nfa.add_empty(whole, fraction);
  nfa.add_empty(fraction, to);
  const NfaState exponent = nfa.add_state();
  nfa.add_bytes(fraction, 'e', 'e', exponent);
  nfa.add_bytes(fraction, 'E', 'E', exponent);
  const NfaState sign = nfa.add_state();
  nfa.add_bytes(exponent, '+', '+', sign);
  nfa.add_bytes(exponent, '-', '-', sign);
  nfa.add_empty(exponent, sign);
  add_digits(nfa, sign, 2, true, to);
}

}  // namespace heddle::grammar
