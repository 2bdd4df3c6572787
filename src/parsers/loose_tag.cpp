// SPDX-License-Identifier: Apache-2.0
#include "parsers/loose_tag.h"

#include <algorithm>
#include <vector>

#include "core/edit_distance.h"

namespace heddle::parsers {
namespace {

constexpr size_t kMaxTagWord = 40;
constexpr std::string_view kTagBegins[] = {"<", "[", "◁"};
constexpr std::string_view kTagEnds[] = {">", "]", "▷"};
constexpr std::string_view kTagBars[] = {"|", "｜"};
constexpr std::string_view kTagSlash[] = {"/"};
constexpr std::string_view kTagBlank[] = {" ", "\n", "\t"};
constexpr std::string_view kTagSlashes[] = {" /", "\\/", "/", "\\"};
// Characters that join parts of a word; DeepSeek also writes a bar.
constexpr std::string_view kTagJoints[] = {"_", "-", "▁", "\\_", ".", "|", "｜"};
// Words that may follow a blank instead of "_" or "▁": "<｜tool calls begin｜>".
constexpr std::string_view kJoinedWords[] = {"call",    "calls",    "begin", "end",      "sep",
                                             "key",     "value",    "start", "argument", "action",
                                             "section", "thinking", "tag"};
// name spaces, which a colon joins to the word
constexpr std::string_view kNameSpaces[] = {"seed", "minimax"};

char lower_letter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_letter_or_digit(char c) {
  const char lower = lower_letter(c);
  return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9');
}

class TagReader {
 public:
  explicit TagReader(std::string_view text, std::span<const std::string_view> words)
      : text_(text.substr(0, LooseTag::kMaxBytes)), words_(words) {}

  LooseTag read() {
    if (!take(kTagBegins)) return result();
    if (!at_word()) read_before_word();
    while (!starved_ && tag_.word.size() <= kMaxTagWord) {
      if (at_word()) {
        tag_.word += lower_letter(text_[place_++]);
        letter_ends_.push_back(place_);
      } else if (place_ < text_.size() && text_[place_] == '>') {
        break;
      } else if (place_ < text_.size() && text_[place_] == ':' &&
                 meant_word(tag_.word, kNameSpaces)) {
        ++place_;
      } else if (tag_.word.empty() || !(joins_word() || take(kTagJoints))) {
        break;
      }
    }
    if (starved_ || place_ == text_.size()) return result();
    if (tag_.word.empty()) return {};
    if (tag_.word.size() > kMaxTagWord) return cut_tag();
    const size_t word_end = place_;
    if (text_[place_] != '>') read_behind_word();
    tag_.closed = take(kTagEnds);
    if (!tag_.closed) {
      const std::string_view behind = text_.substr(word_end);
      constexpr std::string_view kName = " name=";
      const bool may_have_name = kName.starts_with(behind) && behind.size() < kName.size();
      if (begins_with_blank_ && may_have_name) {
        place_ = text_.size();
        return result();
      }
      const bool has_name = behind.starts_with('=') || behind.starts_with(kName);
      if (begins_with_blank_ && !has_name) return {};
      if (starved_ || place_ == text_.size()) return result();
      if (LooseTag cut = cut_tag(); cut.match == Match::kYes) return cut;
      place_ = word_end;
      if (static_cast<unsigned char>(text_[place_]) >= 0x80) return {};
    }
    tag_.match = Match::kYes;
    tag_.size = place_;
    return tag_;
  }

 private:
  // The result if no tag has been found; kMore if the text ended too early to decide.
  LooseTag result() {
    const bool more = (starved_ || place_ == text_.size()) && text_.size() < LooseTag::kMaxBytes;
    tag_.match = more ? Match::kMore : Match::kNo;
    tag_.size = place_;
    return tag_;
  }

  // The tag if only the beginning of the letters is its word.
  LooseTag cut_tag() {
    size_t size = 0;
    for (const std::string_view word : words_) {
      if (word.size() > size && tag_.word.starts_with(word)) size = word.size();
    }
    if (size == 0) return {};
    place_ = letter_ends_[size - 1];
    take_all(kTagBars, 2);
    const bool goes_on = static_cast<unsigned char>(text_[place_]) >= 0x80;
    const bool is_all = size == tag_.word.size();
    const bool is_number = tag_.word.find_first_not_of("0123456789", size) == std::string::npos;
    const bool is_word = meant_word(tag_.word, words_) && !(is_number && !tag_.closing);
    if (is_all ? !goes_on : is_word) return {};
    tag_.is_cut = true;
    tag_.word.resize(size);
    tag_.size = place_;
    tag_.match = Match::kYes;
    return tag_;
  }

  bool take(std::span<const std::string_view> parts) {
    const std::string_view rest = text_.substr(place_);
    if (rest.empty()) {
      starved_ = true;
      return false;
    }
    for (const std::string_view part : parts) {
      if (part.front() != rest.front()) continue;
      if (rest.starts_with(part)) {
        place_ += part.size();
        return true;
      }
      if (part.starts_with(rest)) starved_ = true;
    }
    return false;
  }

  void take_all(std::span<const std::string_view> parts, int most) {
    while (most-- > 0 && take(parts)) {
    }
  }

  [[nodiscard]] bool at_word() const {
    return place_ < text_.size() && is_letter_or_digit(text_[place_]);
  }

  // Consumes a blank if another word of the tag follows it.
  bool joins_word() {
    if (place_ == text_.size() || text_[place_] != ' ') return false;
    const std::string_view rest = text_.substr(place_ + 1);
    const auto size = static_cast<size_t>(
        std::ranges::find_if_not(rest, [](char c) { return is_letter_or_digit(c); }) -
        rest.begin());
    std::string word(rest.substr(0, size));
    std::ranges::transform(word, word.begin(), lower_letter);
    const bool may_join = std::ranges::any_of(kJoinedWords, [&](std::string_view joined) {
      return size == rest.size() ? joined.starts_with(word) : joined == word;
    });
    const bool is_attribute = rest.substr(size).starts_with('=');
    if (!may_join || is_attribute) return false;
    starved_ = size == rest.size();
    if (!starved_) ++place_;
    return !starved_;
  }

  void read_before_word() {
    take_all(kTagBegins, 1);  // a bracket may be doubled
    take_all(kTagBars, 2);
    for (const std::string_view& slash : kTagSlashes) {
      if (take({&slash, 1})) tag_.closing = true;
    }
    if (tag_.closing) take_all(kTagSlash, 1);  // a slash may be doubled
    take_all(kTagBars, 2);
    begins_with_blank_ = take(kTagBlank) && !tag_.closing;
    if (begins_with_blank_) take_all(kTagBars, 2);
  }

  void read_behind_word() {
    take_all(kTagBars, 2);
    tag_.closes_itself = take(kTagSlash);
    take_all(kTagBars, 2);
    take_all(kTagBlank, 2);
  }

  std::string_view text_;
  std::span<const std::string_view> words_;
  std::vector<size_t> letter_ends_;  // for each letter of the word, the position after it in the
                                     // text
  size_t place_ = 0;
  bool begins_with_blank_ = false;  // a blank follows the opening bracket: "< tool_call>"
  bool starved_ = false;            // the text ended where more of it was needed to decide
  LooseTag tag_;
};

}  // namespace

LooseTag read_loose_tag(std::string_view text, std::span<const std::string_view> words) {
  LooseTag tag = TagReader(text, words).read();
  count_searched(tag.size + 1);
  return tag;
}

LooseTag read_bare_tag(std::string_view text, char bracket) {
  LooseTag tag = read_loose_tag(bracket + std::string(text.substr(0, LooseTag::kMaxBytes - 1)));
  if (tag.size > 0) --tag.size;
  return tag;
}

std::optional<size_t> meant_word(std::string_view word, std::span<const std::string_view> words) {
  std::optional<size_t> nearest;
  size_t least = 3;
  const std::string_view unnumbered = word.substr(0, word.find_last_not_of("0123456789") + 1);
  if (unnumbered != word) {
    const auto same = std::ranges::find(words, unnumbered);
    if (same != words.end()) return same - words.begin();
  }
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == word) return i;
    const size_t allowed = std::min<size_t>(words[i].size() / 4, 2);
    const size_t difference =
        std::max(words[i].size(), word.size()) - std::min(words[i].size(), word.size());
    if (difference > allowed || allowed == 0) continue;
    const size_t distance = edit_distance(word, words[i]);
    count_searched(word.size());
    if (distance > allowed || distance > least) continue;
    nearest = distance < least ? std::optional<size_t>(i) : std::nullopt;
    least = distance;
  }
  return nearest;
}

std::optional<size_t> nearest_word(std::string_view word, std::span<const std::string_view> words) {
  if (const auto meant = meant_word(word, words)) return meant;
  for (size_t i = 0; i < words.size(); ++i) {
    if (meant_word(word, words.subspan(i, 1))) return i;
  }
  return std::nullopt;
}

std::string bare_word(std::string_view name) {
  std::string word;
  for (const char c : name) {
    if (is_letter_or_digit(c) || static_cast<unsigned char>(c) >= 0x80) word += lower_letter(c);
  }
  return word;
}

}  // namespace heddle::parsers
