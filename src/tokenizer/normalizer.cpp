// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normalizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <utf8proc.h>

#include "core/check.h"
#include "tokenizer/hash.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {

namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Ranges in which every character has combining class 0 and NFC_Quick_Check=Yes.
constexpr std::array kInertRanges = {
    Range{0x0000, 0x02FF},    // Latin, IPA
    Range{0x0388, 0x0482},    // Greek, Cyrillic
    Range{0x048A, 0x058F},    // Cyrillic, Armenian
    Range{0x05D0, 0x05EA},    // Hebrew letters
    Range{0x0620, 0x064A},    // Arabic letters
    Range{0x0E01, 0x0E37},    // Thai letters
    Range{0x0E3F, 0x0E47},    // Thai vowels and digits
    Range{0x1E00, 0x1EFF},    // Latin with diacritics
    Range{0x2002, 0x20CF},    // punctuation, currency
    Range{0x212C, 0x2328},    // arrows, mathematics
    Range{0x232B, 0x2ADB},    // box drawing, symbols
    Range{0x3000, 0x3029},    // CJK punctuation
    Range{0x3030, 0x3098},    // hiragana
    Range{0x309B, 0xA48F},    // katakana, Han, Yi
    Range{0xAC00, 0xD7A3},    // Hangul syllables
    Range{0xE000, 0xF8FF},    // private use
    Range{0xFE00, 0xFE0F},    // variation selectors
    Range{0xFE30, 0xFE6F},    // CJK forms
    Range{0xFF01, 0xFFFD},    // fullwidth forms
    Range{0x1D400, 0x1D7FF},  // mathematical letters
    Range{0x1F000, 0x1FAFF},  // emoji
    Range{0x20000, 0x2EBE0},  // Han extensions
};

utf8proc_option_t options_of(NormalForm form) {
  int options = UTF8PROC_STABLE;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

size_t ascii_prefix(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  size_t i = 0;
  while (i + 8 <= text.size() && (load_u64(text.data() + i) & kHighBits) == 0) i += 8;
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

// The number of bytes at the beginning of `text` that no form changes and that do not combine with
// earlier characters.
size_t inert_prefix(std::string_view text, NormalForm form) {
  size_t i = ascii_prefix(text);
  while (form == NormalForm::kNfc && i < text.size()) {
    const Utf8Unit unit = decode_utf8(text.substr(i));
    if (!is_inert_under_nfc(unit.code_point)) break;
    i += unit.length;
    i += ascii_prefix(text.substr(i));
  }
  return i;
}

uint16_t combining_class(utf8proc_int32_t code_point) {
  return static_cast<uint16_t>(utf8proc_get_property(code_point)->combining_class);
}

// Whether a composition may join the character to the one before it, because it is the second of a
// pair, or the vowel or final consonant of a Hangul syllable.
bool may_join_previous(utf8proc_int32_t code_point) {
  if (code_point >= 0x1160 && code_point <= 0x11FF) return true;
  const utf8proc_property_t* property = utf8proc_get_property(code_point);
  return property->combining_class != 0 ||
         (property->comb_index != UINT16_MAX && (property->comb_index & 0x8000) != 0);
}

class FormWriter {
 public:
  FormWriter(NormalForm form, std::string& out, CancellationPoll& poll, const PartFunction& on_part)
      : form_(form), options_(options_of(form)), out_(out), poll_(poll), on_part_(on_part) {
    shown_ = out.size();
  }

  // Returns false if the call ended early.
  bool write(std::string_view text) {
    for (size_t i = 0; i < text.size();) {
      const size_t begin = i;
      // The last inert character may combine with the text after it.
      const size_t last =
          without_last_character(text.substr(i, inert_prefix(text.substr(i), form_)));
      if (last > 0) {
        finish_run();
        out_.append(text.substr(i, last));
        i += last;
      }
      const Utf8Unit unit = decode_utf8(text.substr(i));
      add(unit.code_point);
      i += unit.length;
      if (poll_.cancelled_after(i - begin) || !show(kShownBytes)) return false;
    }
    finish_run();
    return show(1);
  }

 private:
  static constexpr size_t kRunLength = 1024;  // characters; a longer run ends at the next possible
                                              // position
  static constexpr size_t kShownBytes = 4096;
  static constexpr size_t kMaxDecomposition = 32;  // characters; the longest decomposition has 18

  static size_t without_last_character(std::string_view text) {
    if (text.empty()) return 0;
    size_t last = text.size() - 1;
    while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    return last;
  }

  void add(char32_t code_point) {
    std::array<utf8proc_int32_t, kMaxDecomposition> parts{};
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(code_point), parts.data(), parts.size(), options_, &boundary);
    HEDDLE_CHECK(count > 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()));
    if (run_.size() >= kRunLength && !may_join_previous(parts[0])) finish_run();
    run_.insert(run_.end(), parts.begin(), parts.begin() + count);
  }

  void finish_run() {
    sort_marks();
    auto length = static_cast<utf8proc_ssize_t>(run_.size());
    if ((options_ & UTF8PROC_COMPOSE) != 0) {
      length = utf8proc_normalize_utf32(run_.data(), length, options_);
      HEDDLE_CHECK_GE(length, 0);
    }
    for (const auto code_point : std::span(run_).first(static_cast<size_t>(length))) {
      append_utf8(static_cast<char32_t>(code_point), out_);
    }
    run_.clear();
    if (run_.capacity() > 16 * kRunLength) run_.shrink_to_fit();
  }

  // Canonical ordering: sorts neighbouring marks by their combining class, and keeps the order of
  // equal ones.
  void sort_marks() {
    for (size_t begin = 0; begin < run_.size();) {
      size_t end = begin;
      bool sorted = true;
      for (uint16_t previous = 0; end < run_.size(); ++end) {
        const uint16_t current = combining_class(run_[end]);
        if (current == 0) break;
        sorted &= previous <= current;
        previous = current;
      }
      if (!sorted) counting_sort(std::span(run_).subspan(begin, end - begin));
      begin = end + 1;
    }
  }

  static void counting_sort(std::span<utf8proc_int32_t> marks) {
    std::array<size_t, 257> begin_of_class{};
    for (const auto mark : marks) ++begin_of_class[combining_class(mark) + 1u];
    std::partial_sum(begin_of_class.begin(), begin_of_class.end(), begin_of_class.begin());
    const std::vector<utf8proc_int32_t> unsorted(marks.begin(), marks.end());
    for (const auto mark : unsorted) marks[begin_of_class[combining_class(mark)]++] = mark;
  }

  // Passes new text to on_part_ if there are at least `min_bytes` of it.
  bool show(size_t min_bytes) {
    if (!on_part_ || out_.size() < shown_ + min_bytes) return true;
    const std::string_view part = std::string_view(out_).substr(shown_);
    shown_ = out_.size();
    return on_part_(part);
  }

  NormalForm form_;
  utf8proc_option_t options_;
  std::string& out_;
  CancellationPoll& poll_;
  const PartFunction& on_part_;
  size_t shown_ = 0;                   // bytes of out_ that were passed to on_part_
  std::vector<utf8proc_int32_t> run_;  // decomposed characters, not yet ordered
};

}  // namespace

bool is_inert_under_nfc(char32_t code_point) {
  const auto* range = std::ranges::lower_bound(kInertRanges, code_point, {}, &Range::last);
  return range != kInertRanges.end() && range->first <= code_point;
}

bool is_surely_normal(std::string_view text, NormalForm form) {
  return inert_prefix(text, form) == text.size();
}

bool append_normal_form(std::string_view text, NormalForm form, std::string& out,
                        CancellationPoll& poll, const PartFunction& on_part) {
  return FormWriter(form, out, poll, on_part).write(text);
}

std::string to_normal_form(std::string_view text, NormalForm form) {
  std::string result;
  result.reserve(text.size());
  CancellationPoll poll;
  HEDDLE_CHECK(append_normal_form(text, form, result, poll, {}));
  return result;
}

namespace {

// Applies one step: returns the new text, or none if the text does not change. After `poll` or
// `on_part` has ended the call, the returned text is unusable.
class StepRunner {
 public:
  StepRunner(std::string_view text, RegexScratch& scratch, CancellationPoll& poll,
             const PartFunction& on_part)
      : text_(text), scratch_(scratch), poll_(poll), on_part_(on_part) {}

  std::optional<std::string> operator()(NormalForm form) {
    if (is_surely_normal(text_, form)) return std::nullopt;
    std::string result;
    result.reserve(text_.size());
    ended_ = !append_normal_form(text_, form, result, poll_, on_part_);
    return result;
  }

  std::optional<std::string> operator()(const PrependStep& step) {
    if (text_.empty()) return std::nullopt;
    std::string result;
    result.reserve(step.text.size() + text_.size());
    result.append(step.text).append(text_);
    return result;
  }

  std::optional<std::string> operator()(const ReplaceStep& step) {
    Span match;
    if (!step.pattern.find(text_, 0, scratch_, match)) return std::nullopt;
    std::string result;
    result.reserve(text_.size());
    size_t done = 0;
    do {
      result.append(text_.substr(done, match.begin - done)).append(step.content);
      if (poll_.cancelled_after(match.end - done)) break;
      done = match.end;
    } while (step.pattern.find(text_, done, scratch_, match));
    result.append(text_.substr(done));
    return result;
  }

  std::optional<std::string> operator()(const LowercaseStep&) {
    return map([](char32_t code_point, std::string& out) {
      const auto lower = utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point));
      append_utf8(static_cast<char32_t>(lower), out);
    });
  }

  std::optional<std::string> operator()(const StripAccentsStep&) {
    return map([](char32_t code_point, std::string& out) {
      if (!is_mark(code_point)) append_utf8(code_point, out);
    });
  }

  std::optional<std::string> operator()(const StripStep& step) {
    std::string_view rest = text_;
    if (step.left) rest.remove_prefix(leading_white_space(rest));
    if (step.right) rest.remove_suffix(trailing_white_space(rest));
    return std::string(rest);
  }

  [[nodiscard]] bool ended() const { return ended_ || poll_.cancelled(); }

 private:
  template <typename Mapping>
  [[nodiscard]] std::string map(Mapping mapping) {
    std::string result;
    result.reserve(text_.size());
    for (size_t i = 0; i < text_.size();) {
      const Utf8Unit unit = decode_utf8(text_.substr(i));
      mapping(unit.code_point, result);
      i += unit.length;
      if (poll_.cancelled_after(unit.length)) break;
    }
    return result;
  }

  std::string_view text_;
  RegexScratch& scratch_;
  CancellationPoll& poll_;
  const PartFunction& on_part_;
  bool ended_ = false;
};

}  // namespace

std::optional<std::string_view> Normalizer::apply(std::string_view text, std::string& buffer,
                                                  RegexScratch& scratch, CancellationPoll& poll,
                                                  const PartFunction& on_part) const {
  const PartFunction no_function;
  for (const NormalizerStep& step : steps_) {
    StepRunner runner(text, scratch, poll, &step == &steps_.back() ? on_part : no_function);
    std::optional<std::string> changed = std::visit(runner, step);
    if (runner.ended()) return std::nullopt;
    if (!changed) continue;
    buffer = *std::move(changed);
    text = buffer;
  }
  return text;
}

}  // namespace heddle::tokenizer
