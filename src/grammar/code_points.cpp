// SPDX-License-Identifier: Apache-2.0
#include "grammar/code_points.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace heddle::grammar {
namespace {

constexpr std::string_view kShortEscapes = "\b\t\n\f\r\"\\";
constexpr std::string_view kShortLetters = "btnfr\"\\";

struct Utf8 {
  std::array<uint8_t, 4> bytes{};
  int size = 0;
};

Utf8 encode(uint32_t code) {
  const auto byte = [](uint32_t value) { return static_cast<uint8_t>(value); };
  const auto tail = [&](int shift) { return byte(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) return {.bytes = {byte(code)}, .size = 1};
  if (code < 0x800) return {.bytes = {byte(0xC0 | (code >> 6)), tail(0)}, .size = 2};
  if (code < 0x10000) {
    return {.bytes = {byte(0xE0 | (code >> 12)), tail(6), tail(0)}, .size = 3};
  }
  return {.bytes = {byte(0xF0 | (code >> 18)), tail(12), tail(6), tail(0)}, .size = 4};
}

// Adds ranges of characters as ranges of bytes. After its first bytes, the rest of a character is
// often any continuation bytes: the states for these are shared.
class Utf8Ranges {
 public:
  Utf8Ranges(Nfa& nfa, NfaState from, NfaState to) : nfa_(nfa), from_(from), tails_{to, 0, 0, 0} {}

  void add(uint32_t first, uint32_t last) {
    constexpr std::array<uint32_t, 5> kLast = {0x7F, 0x7FF, 0xD7FF, 0xFFFF, kMaxCodePoint};
    constexpr std::array<uint32_t, 5> kFirst = {0, 0x80, 0x800, 0xE000, 0x10000};
    for (size_t i = 0; i < kLast.size(); ++i) {
      const uint32_t low = std::max(first, kFirst[i]);
      const uint32_t high = std::min(last, kLast[i]);
      if (low <= high) add_same_length(low, high);
    }
  }

 private:
  void add_same_length(uint32_t first, uint32_t last) {
    for (int i = 1; i < encode(first).size; ++i) {
      const uint32_t mask = (1u << (6 * i)) - 1;
      if ((first & ~mask) == (last & ~mask)) continue;
      if ((first & mask) != 0) {
        add_same_length(first, first | mask);
        add_same_length((first | mask) + 1, last);
        return;
      }
      if ((last & mask) != mask) {
        add_same_length(first, (last & ~mask) - 1);
        add_same_length(last & ~mask, last);
        return;
      }
    }
    const Utf8 low = encode(first);
    const Utf8 high = encode(last);
    NfaState state = from_;
    for (int i = 0; i < low.size; ++i) {
      bool is_open = true;  // all later bytes may be any continuation bytes
      for (int j = i + 1; j < low.size; ++j) {
        const auto at = static_cast<size_t>(j);
        is_open = is_open && low.bytes[at] == 0x80 && high.bytes[at] == 0xBF;
      }
      const NfaState next = is_open ? tail(low.size - 1 - i) : nfa_.add_state();
      const auto at = static_cast<size_t>(i);
      nfa_.add_bytes(state, low.bytes[at], high.bytes[at], next);
      if (is_open) return;
      state = next;
    }
  }

  // The state from which `count` arbitrary continuation bytes lead to the end.
  NfaState tail(int count) {
    const auto index = static_cast<size_t>(count);
    if (count > 0 && tails_[index] == 0) {
      tails_[index] = nfa_.add_state();
      nfa_.add_bytes(tails_[index], 0x80, 0xBF, tail(count - 1));
    }
    return tails_[index];
  }

  Nfa& nfa_;
  const NfaState from_;
  std::array<NfaState, 4> tails_;  // by number of continuation bytes left; 0: not created yet
};

bool contains(const CodePointSet& set, uint32_t code) {
  return std::ranges::any_of(
      set, [&](CodePointRange range) { return range.first <= code && code <= range.last; });
}

void add_hexadecimal(Nfa& nfa, NfaState from, NfaState to) {
  nfa.add_bytes(from, '0', '9', to);
  nfa.add_bytes(from, 'a', 'f', to);
  nfa.add_bytes(from, 'A', 'F', to);
}

// Adds the part after "\u": a character outside the surrogates, or a pair of surrogates with the
// second "\u".
void add_unicode_escape(Nfa& nfa, NfaState from, NfaState to) {
  const auto chain = [&](NfaState state, int count, NfaState end) {
    for (int i = 0; i < count; ++i) {
      const NfaState next = i + 1 == count ? end : nfa.add_state();
      add_hexadecimal(nfa, state, next);
      state = next;
    }
  };
  const NfaState three = nfa.add_state();
  nfa.add_bytes(from, '0', '9', three);
  for (const char letter : {'a', 'b', 'c', 'e', 'f', 'A', 'B', 'C', 'E', 'F'}) {
    nfa.add_bytes(from, static_cast<uint8_t>(letter), static_cast<uint8_t>(letter), three);
  }
  chain(three, 3, to);
  const NfaState after_d = nfa.add_state();
  nfa.add_bytes(from, 'd', 'd', after_d);
  nfa.add_bytes(from, 'D', 'D', after_d);
  const NfaState two = nfa.add_state();
  nfa.add_bytes(after_d, '0', '7', two);
  chain(two, 2, to);
  const NfaState high = nfa.add_state();
  nfa.add_bytes(after_d, '8', '9', high);
  for (const char letter : {'a', 'b', 'A', 'B'}) {
    nfa.add_bytes(after_d, static_cast<uint8_t>(letter), static_cast<uint8_t>(letter), high);
  }
  const NfaState after_high = nfa.add_state();
  chain(high, 2, after_high);
  const NfaState low = nfa.add_state();
  nfa.add_text(after_high, "\\u", low);
  const NfaState low_d = nfa.add_state();
  nfa.add_bytes(low, 'd', 'd', low_d);
  nfa.add_bytes(low, 'D', 'D', low_d);
  const NfaState low_two = nfa.add_state();
  nfa.add_bytes(low_d, 'c', 'f', low_two);
  nfa.add_bytes(low_d, 'C', 'F', low_two);
  chain(low_two, 2, to);
}

}  // namespace

void normalise(CodePointSet& set) {
  std::ranges::sort(set, {}, &CodePointRange::first);
  CodePointSet joined;
  for (const CodePointRange range : set) {
    if (!joined.empty() && range.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  }
  set = std::move(joined);
}

CodePointSet complement(CodePointSet set) {
  normalise(set);
  CodePointSet rest;
  uint32_t next = 0;
  for (const CodePointRange range : set) {
    if (range.first > next) rest.push_back({.first = next, .last = range.first - 1});
    next = range.last + 1;
  }
  if (next <= kMaxCodePoint) rest.push_back({.first = next, .last = kMaxCodePoint});
  return rest;
}

void add_code_points(Nfa& nfa, NfaState from, const CodePointSet& set, TextForm form, NfaState to) {
  Utf8Ranges ranges(nfa, from, to);
  if (form == TextForm::kPlain) {
    for (const CodePointRange range : set) ranges.add(range.first, range.last);
    return;
  }
  NfaState escape = 0;  // state after a backslash; 0: not created yet
  const auto add_escape = [&](std::string_view text) {
    if (escape == 0) {
      escape = nfa.add_state();
      nfa.add_bytes(from, '\\', '\\', escape);
    }
    nfa.add_text(escape, text, to);
  };
  for (size_t i = 0; i < kShortEscapes.size(); ++i) {
    if (contains(set, static_cast<uint8_t>(kShortEscapes[i]))) {
      add_escape(kShortLetters.substr(i, 1));
    }
  }
  for (uint32_t code = 0; code < 0x20; ++code) {
    if (kShortEscapes.find(static_cast<char>(code)) != std::string_view::npos) continue;
    if (contains(set, code)) add_escape(fmt::format("u{:04x}", code));
  }
  for (const CodePointRange range : set) {
    uint32_t first = std::max(range.first, 0x20u);
    for (const uint32_t special : {uint32_t{'"'}, uint32_t{'\\'}}) {
      if (special < first || special > range.last) continue;
      if (special > first) ranges.add(first, special - 1);
      first = special + 1;
    }
    if (first <= range.last) ranges.add(first, range.last);
  }
}

ByteDfa code_points_dfa(const CodePointSet& set, TextForm form) {
  Nfa nfa;
  const NfaState begin = nfa.add_state();
  const NfaState end = nfa.add_state();
  add_code_points(nfa, begin, set, form, end);
  return ByteDfa::from_nfa(nfa, begin, end).value();  // cannot fail: characters are short
}

void add_json_string(Nfa& nfa, NfaState from, NfaState to) {
  const NfaState inside = nfa.add_state();
  nfa.add_bytes(from, '"', '"', inside);
  Utf8Ranges ranges(nfa, inside, inside);
  ranges.add(0x20, 0x21);
  ranges.add(0x23, 0x5B);
  ranges.add(0x5D, kMaxCodePoint);
  const NfaState escape = nfa.add_state();
  nfa.add_bytes(inside, '\\', '\\', escape);
  for (const char letter : kShortLetters) {
    nfa.add_bytes(escape, static_cast<uint8_t>(letter), static_cast<uint8_t>(letter), inside);
  }
  nfa.add_bytes(escape, '/', '/', inside);
  const NfaState unicode = nfa.add_state();
  nfa.add_bytes(escape, 'u', 'u', unicode);
  add_unicode_escape(nfa, unicode, inside);
  nfa.add_bytes(inside, '"', '"', to);
}

std::string spell_json_string(std::string_view text) {
  std::string spelled = "\"";
  for (const char letter : text) {
    const size_t at = kShortEscapes.find(letter);
    if (at != std::string_view::npos) {
      spelled += '\\';
      spelled += kShortLetters[at];
    } else if (static_cast<uint8_t>(letter) < 0x20) {
      spelled += fmt::format("\\u{:04x}", static_cast<uint8_t>(letter));
    } else {
      spelled += letter;
    }
  }
  return spelled + '"';
}

uint32_t next_code_point(std::string_view text, size_t& position) {
  const auto byte = [&](size_t index) -> uint32_t {
    return index < text.size() ? static_cast<uint8_t>(text[index]) : 0u;
  };
  const uint32_t first = byte(position++);
  if (first < 0x80) return first;
  const int extra = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC2 ? 1 : 0;
  if (extra == 0 || first > 0xF4) return 0xFFFD;
  uint32_t code = first & (0x3Fu >> extra);
  for (int i = 0; i < extra; ++i) {
    const uint32_t next = byte(position + static_cast<size_t>(i));
    if ((next & 0xC0) != 0x80) return 0xFFFD;
    code = (code << 6) | (next & 0x3F);
  }
  position += static_cast<size_t>(extra);
  return code;
}

}  // namespace heddle::grammar
