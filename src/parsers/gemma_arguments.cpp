// SPDX-License-Identifier: Apache-2.0
#include "parsers/gemma_arguments.h"

#include <algorithm>
#include <utility>

#include "parsers/marker_search.h"

namespace heddle::parsers {
namespace {

constexpr std::string_view kGemmaText = "<|\"|>";
constexpr size_t kMaxSpaceAroundMark = 64;
constexpr size_t kMaxClosersBeforeEnd = 64;  // most brackets and white space between a text and the
                                             // call's end

std::string_view without_outer_space(std::string_view text) {
  text.remove_prefix(space_size(text));
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

std::string as_json_string(std::string_view text) {
  std::string json = "\"";
  append_escaped(text, json);
  return json + '"';
}

// Reads the characters of a mark around its quote: one of the two before and two after it may be
// missing.
Match read_loose_mark(std::string_view text, size_t& size) {
  size = 0;
  const auto take = [&](std::string_view signs) {
    const bool has = size < text.size() && signs.find(text[size]) != std::string_view::npos;
    size += has ? 1 : 0;
    return has ? 1 : 0;
  };
  int num_signs = take("<");
  num_signs += take("|");
  (void)take("|");
  (void)take("\\");
  if (size == text.size()) return num_signs > 0 ? Match::kMore : Match::kNo;
  if (num_signs == 0 || take("\"'") == 0) return Match::kNo;
  num_signs += take("|");
  (void)take("|");
  num_signs += take(">");
  if (num_signs >= 3) {
    const bool may_go_on = size == text.size() && text.back() != '>';
    return may_go_on ? Match::kMore : Match::kYes;
  }
  return size == text.size() ? Match::kMore : Match::kNo;
}

bool begins_with_one_of(std::string_view text, std::string_view letters) {
  return !text.empty() && letters.find(text.front()) != std::string_view::npos;
}

}  // namespace

GemmaArguments::GemmaArguments(const ToolNames& names, std::string tool,
                               JsonScanner::KeyReader read_key, bool is_exact)
    : names_(&names),
      tool_(std::move(tool)),
      is_exact_(is_exact),
      object_(JsonScanner::of_json(std::move(read_key))) {}

JsonScanner::State GemmaArguments::write(std::string_view json_text, std::string& json) {
  size_t used = 0;
  return object_.scan(json_text, used, &json);
}

Progress GemmaArguments::read(std::string_view text, TextEnd end, size_t& used, std::string& json) {
  using State = JsonScanner::State;
  used = 0;
  while (used < text.size()) {
    const std::string_view rest = text.substr(used);
    if (open_ != Open::kNothing) {
      const size_t size =
          open_ == Open::kText ? read_text(rest, end, json) : read_quotes(rest, json);
      used += size;
      if (size == 0 && open_ != Open::kNothing) return Progress::kMore;
      continue;
    }
    const char c = rest.front();
    if (c == '>' && follows_text_) {  // a doubled bracket of the mark
      ++used;
      continue;
    }
    if (c == '<' || (c == '|' && !is_exact_)) {
      TextMark mark = mark_at(rest);
      if (rest.starts_with("<<") && !is_exact_) {  // a doubled bracket at the beginning of a mark
        mark = mark_at(rest.substr(1));
        mark.size += mark.match == Match::kYes ? 1 : 0;
      }
      // A doubled mark: text that can only follow a value comes after an empty text.
      const std::string_view behind = rest.substr(mark.size);
      const TextMark again = mark_at(behind);
      const bool is_starved = mark.match == Match::kMore ||
                              (again.match == Match::kMore && end == TextEnd::kNone) ||
                              (again.size > 0 && again.size == behind.size());
      if (is_starved && (end == TextEnd::kNone || mark.match == Match::kMore)) {
        if (end != TextEnd::kNone) used = text.size();
        return Progress::kMore;
      }
      if (mark.match == Match::kYes) {
        used += mark.size;
        if (std::exchange(follows_text_, false)) continue;
        if (write("\"", json) == State::kError) return Progress::kFailed;
        open_ = Open::kText;
        const bool is_doubled = again.match == Match::kYes && !is_exact_ &&
                                !begins_with_one_of(behind.substr(again.size), ",}]) \n\t:");
        if (is_doubled) used += again.size;
        continue;
      }
      return object_.close_all(&json) ? Progress::kDone : Progress::kFailed;
    }
    follows_text_ = false;
    const std::string_view sign = is_exact_ ? rest.substr(0, 1) : meant_sign(rest.substr(0, 1));
    if (begins_with_one_of(sign, "{}[]:, \t\r\n")) {
      follows_key_ = follows_key_ && space_size(sign) > 0;
      const State state = write(sign, json);
      if (state == State::kError) return Progress::kFailed;
      ++used;
      if (state == State::kDone) return Progress::kDone;
      continue;
    }
    if (begins_with_one_of(rest, "\"'")) {
      if (write(rest.substr(0, 1), json) == State::kError) return Progress::kFailed;
      open_ = Open::kQuotes;
      quote_ = c;
      ++used;
      continue;
    }
    const size_t size = read_word(rest, end, json);
    if (size == std::string_view::npos) return Progress::kFailed;
    if (size == 0) return Progress::kMore;
    used += size;
  }
  return Progress::kMore;
}

bool GemmaArguments::finish(std::string& json) {
  return open_ == Open::kNothing && object_.close_all(&json);
}

// Translates characters of a Python call, f(city="Paris"), to those of an object.
std::string_view GemmaArguments::meant_sign(std::string_view sign) {
  if (sign == "(" && object_.num_levels() == 0) {
    is_in_parentheses_ = true;
    return "{";
  }
  if (sign == ")" && is_in_parentheses_ && object_.num_levels() == 1) return "}";
  return sign == "=" && follows_key_ ? ":" : sign;
}

size_t GemmaArguments::read_text(std::string_view text, TextEnd end, std::string& json) {
  const TextEnding ending = find_end(text, end);
  std::string inside;
  append_escaped(text.substr(0, ending.position), inside);
  if (ending.match == Match::kYes) {
    inside += '"';
    open_ = Open::kNothing;
    follows_text_ = !is_exact_;
  }
  (void)write(inside, json);
  return ending.position + ending.size;
}

GemmaArguments::TextMark GemmaArguments::mark_at(std::string_view text) const {
  if (text.starts_with(kGemmaText)) return {Match::kYes, kGemmaText.size(), true};
  if (is_exact_ || text.empty()) {
    return {.match = kGemmaText.starts_with(text) ? Match::kMore : Match::kNo};
  }
  constexpr std::string_view kUnquoted = "<||>";
  if (text.starts_with(kUnquoted)) return {Match::kYes, kUnquoted.size()};
  TextMark mark;
  mark.match = read_loose_mark(text, mark.size);
  if (mark.match != Match::kYes) mark.size = 0;
  return mark;
}

// Finds where a text ends. kMore and kNo: the bytes before the position certainly belong to the
// text.
GemmaArguments::TextEnding GemmaArguments::find_end(std::string_view text, TextEnd end) const {
  TextEnding ending{.position = text.size()};
  bool doubts = false;  // true: the text may end at ending.position
  size_t place = 0;
  while (place < text.size()) {
    const size_t from = place;
    place = text.find_first_of(is_exact_ ? "<" : doubts ? "<|" : "<|,}]", from);
    count_searched(std::min(place, text.size()) - from);
    if (place == std::string_view::npos) break;
    const std::string_view rest = text.substr(place);
    if (doubts && place - ending.position > kMaxDoubtBytes) {
      doubts = false;
      ending.position = text.size();
    }
    const TextMark mark = mark_at(rest);
    const bool is_half =
        mark.match == Match::kMore && (rest.front() == '<' || end == TextEnd::kNone);
    if (is_half) {
      if (end == TextEnd::kStopped && !doubts) return {Match::kYes, place, rest.size()};
      if (end == TextEnd::kCut) return {Match::kNo, place, rest.size()};
      if (!doubts) ending.position = place;
      break;
    }
    const bool is_mark = mark.is_exact;
    if (mark.match == Match::kYes) {
      const std::string_view behind = rest.substr(mark.size);
      const size_t space = space_size(behind.substr(0, kMaxSpaceAroundMark));
      const bool is_last = space == behind.size();
      if (is_mark && !doubts) return {Match::kYes, place, mark.size};
      if (is_last && end == TextEnd::kNone && space < kMaxSpaceAroundMark) {
        if (!doubts) ending.position = place;
        break;
      }
      if (begins_with_one_of(behind.substr(space), ",}]") || (is_mark && is_last)) {
        return {Match::kYes, place, rest.size() - behind.size()};
      }
      // the mark opens another text
      if (doubts && is_mark) return {Match::kYes, ending.position, 0};
    } else if (!doubts && !is_exact_) {
      const Match ends = may_end_before(rest, end);
      if (ends == Match::kMore) {
        ending.position = place;
        break;
      }
      if (ends == Match::kYes) {
        doubts = true;
        ending.position = place;
      }
    }
    ++place;
  }
  if (doubts && end == TextEnd::kStopped) return {Match::kYes, ending.position, 0};
  if (doubts && end == TextEnd::kCut) ending.position = text.size();
  return ending;
}

// Whether `text` begins with the call's end or the next parameter.
Match GemmaArguments::may_end_before(std::string_view text, TextEnd end) const {
  Match match = Match::kNo;
  if (text.front() == ',') {
    match = begins_parameter(text.substr(1));
  } else {
    const std::string_view seen = text.substr(0, kMaxClosersBeforeEnd);
    const size_t size = std::min(
        seen.find_first_not_of(is_in_parentheses_ ? ")}] \t\r\n" : "}] \t\r\n"), seen.size());
    const std::string_view mark = text.substr(size);
    count_searched(size + 1);
    if (size < kMaxClosersBeforeEnd || !mark.empty()) {
      match = mark.starts_with(kGemmaCallEnd)   ? Match::kYes
              : kGemmaCallEnd.starts_with(mark) ? Match::kMore
                                                : Match::kNo;
    }
  }
  return match == Match::kMore && end != TextEnd::kNone ? Match::kNo : match;
}

// Whether a parameter of the tool that the arguments do not have yet follows, with a colon.
Match GemmaArguments::begins_parameter(std::string_view text) const {
  if (object_.num_levels() != 1) return Match::kNo;
  text.remove_prefix(space_size(text.substr(0, kMaxSpaceAroundMark)));
  const std::string_view seen = text.substr(0, kMaxNameBytes);
  const size_t colon = seen.find_first_of(":,<{}[]");
  const std::string_view key = without_outer_space(seen.substr(0, colon));
  count_searched(std::min(colon, seen.size()) + 1);
  if (colon == std::string_view::npos) {
    const auto& parameters = names_->parameters(tool_);
    const bool may_be = std::ranges::any_of(
        parameters, [key](const std::string& name) { return name.starts_with(key); });
    return may_be && seen.size() < kMaxNameBytes ? Match::kMore : Match::kNo;
  }
  const bool is_next =
      seen[colon] == ':' && names_->has_parameter(tool_, key) && !keys_.contains(key);
  return is_next ? Match::kYes : Match::kNo;
}

size_t GemmaArguments::read_quotes(std::string_view text, std::string& json) {
  size_t size = 0;
  size_t mark_size = 0;
  while (size < text.size()) {
    if (text[size] == '<' && !is_exact_) {  // a text's mark may also close the key
      const std::string_view rest = text.substr(size);
      if (kGemmaText.starts_with(rest)) break;
      if (rest.starts_with(kGemmaText)) {
        mark_size = kGemmaText.size();
        open_ = Open::kNothing;
        break;
      }
    }
    const char c = text[size++];
    const bool ends = c == quote_ && !is_escaped_;
    is_escaped_ = c == '\\' && !is_escaped_;
    if (!ends) continue;
    open_ = Open::kNothing;
    break;
  }
  count_searched(size);
  (void)write(text.substr(0, size), json);
  if (mark_size > 0) (void)write({&quote_, 1}, json);
  return size + mark_size;
}

// Reads a key, a number, a JSON word or a text without quotes. Returns the number of bytes: 0 if
// more may follow, npos for text that is not allowed here.
size_t GemmaArguments::read_word(std::string_view text, TextEnd end, std::string& json) {
  const bool is_key = object_.awaits_key();
  std::string ends = is_key ? ":,<{}[]" : ",<{}[]";
  if (is_key && !is_exact_) ends += '=';
  if (!is_key && is_in_parentheses_ && object_.num_levels() == 1) ends += ')';
  size_t size = text.find_first_of(ends);
  if (size == 0) return std::string_view::npos;
  count_searched(std::min(size, text.size()));
  if (size == std::string_view::npos) {
    if (text.size() > kMaxWordBytes) return size;
    if (end == TextEnd::kNone) return 0;
    if (end == TextEnd::kCut || is_key) return text.size();
  }
  size = std::min(size, text.size());
  bool is_text = false;      // a text without its opening mark
  bool lacks_comma = false;  // the next key follows without a comma
  size_t mark_size = 0;
  if (!is_key && !is_exact_) {
    std::string_view mark;
    const Match ends_text = begins_with(text.substr(size), {&kGemmaText, 1}, &mark);
    if (ends_text == Match::kMore && size < text.size() && end == TextEnd::kNone) return 0;
    const auto key = next_key(text.substr(0, size));
    lacks_comma = key.has_value();
    is_text = ends_text == Match::kYes && !lacks_comma;
    if (is_text) mark_size = mark.size();
    if (lacks_comma) size = *key;
  }
  const std::string_view word = without_outer_space(text.substr(0, size));
  const bool is_plain =
      !is_key && !is_text && (is_json(word) || word == "None" || word == "True" || word == "False");
  if (is_key && object_.num_levels() == 1) keys_.emplace(word);
  if (is_key) key_ = object_.num_levels() == 1 ? word : "";
  follows_key_ = is_key;
  const bool is_other = !is_key && !is_text && !is_plain && !is_exact_;
  const auto number = is_other ? names_->meant_number(tool_, key_, word) : std::nullopt;
  std::string value = number ? *number : is_plain ? std::string(word) : as_json_string(word);
  if (lacks_comma) value += ',';
  if (write(value, json) == JsonScanner::State::kError) return std::string_view::npos;
  return size + mark_size;
}

// Models may omit a comma: "3 city:". Returns the position in `word` at which the next parameter's
// key begins; none if no unused parameter of the tool follows the value.
std::optional<size_t> GemmaArguments::next_key(std::string_view word) const {
  const size_t colon = word.find_first_of(":=");
  if (object_.num_levels() != 1 || colon == std::string_view::npos) return std::nullopt;
  word = word.substr(0, colon);
  const size_t blank = word.find_last_of(" \t\r\n");
  if (blank == std::string_view::npos || space_size(word) > blank) return std::nullopt;
  const std::string_view key = word.substr(blank + 1);
  const bool is_next = names_->has_parameter(tool_, key) && !keys_.contains(key);
  return is_next ? std::optional<size_t>(blank) : std::nullopt;
}

}  // namespace heddle::parsers
