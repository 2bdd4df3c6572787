// SPDX-License-Identifier: Apache-2.0
#include "parsers/tool_call_parser.h"

#include <algorithm>
#include <utility>

#include "parsers/call_cursor.h"
#include "parsers/call_object.h"

namespace heddle::parsers {
namespace {

// Characters that precede a mark if prose only mentions it.
constexpr std::string_view kBeforeNamedMark = " \t`'\"(";

bool quotes_mark(char c) { return std::string_view("`'\"(").find(c) != std::string_view::npos; }

bool begins_word(std::string_view text) {
  if (text.empty()) return false;
  const char c = text.front();
  return c == '<' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         static_cast<unsigned char>(c) >= 0x80;
}

constexpr std::string_view kFence = "```";
// Words after a code fence that announce a call.
constexpr std::string_view kFenceWords[] = {"toolcall", "toolcalls", "toolcode", "functioncall"};

// Words of tags that models put around calls in any format.
constexpr std::string_view kWrapperWords[] = {"tools",        "toolcalls",     "toolcall",
                                              "functioncall", "functioncalls", "tooluse"};
constexpr int kMaxWrappers = 4;  // most wrapper tags around a call

// Finds a foreign tag around calls at the beginning of a text.
LooseTag wrapper_at(std::string_view text, bool closing) {
  if (!text.starts_with('<')) return {};
  LooseTag tag = read_loose_tag(text);
  const bool is_whole = tag.match == Match::kYes;
  const bool may_mean = std::ranges::any_of(kWrapperWords, [&](std::string_view word) {
    return is_whole ? word == tag.word : word.starts_with(tag.word);
  });
  const bool may_close = tag.closing || (!is_whole && tag.word.empty());
  const bool fits = closing ? may_close : !tag.closing;
  if (!fits || !may_mean || (is_whole && !tag.closed)) tag.match = Match::kNo;
  return tag;
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Whether a tag without its first bracket may begin: "tool_call>", "|tool_call|>".
bool may_begin_bare_tag(char c) { return is_letter(c) || c == '|' || c == '\xEF'; }

// Finds a closing tag without its first bracket: "/tool_call>". Its slash may be missing, too.
Closing bare_closing(std::string_view text, std::span<const std::string_view> words) {
  const LooseTag tag = read_bare_tag(text);
  const bool may_be = std::ranges::any_of(
      words, [&tag](std::string_view word) { return word.starts_with(tag.word); });
  if (tag.match == Match::kMore && may_be) return {.match = Match::kMore};
  const bool is_meant = tag.closing ? meant_word(tag.word, words).has_value()
                                    : std::ranges::find(words, tag.word) != words.end();
  const bool is_tag = tag.match == Match::kYes && tag.closed && may_be && is_meant;
  return is_tag ? Closing{.match = Match::kYes, .size = tag.size} : Closing{};
}

// Whether the text at which the answer was cut, after a call, was the beginning of the call's
// closing mark.
bool begins_closing(std::string_view text) {
  return text.starts_with("</") || text.starts_with("<|") || text.starts_with("<｜") ||
         text.starts_with("[/") || std::string_view("<tool_call|>").starts_with(text) ||
         (text.size() == 1 && !is_letter(text.front())) || text.front() == ',' ||
         text.front() == ';';
}

}  // namespace

ToolCallParser::ToolCallParser(CallMarks marks, ToolCallParserOptions options)
    : marks_(std::move(marks)), options_(std::move(options)), strays_(marks_.strays) {
  if (marks_.are_special) special_strays_ = marks_.strays;
}

bool ToolCallParser::is_opening(const LooseTag& tag) const {
  if (tag.closing || tag.word.empty()) return false;
  const auto meant = nearest_word(tag.word, marks_.opening_words);
  if (!meant) return false;
  const std::string_view word = marks_.opening_words[*meant];
  return word.front() == tag.word.front() || word.substr(1) == tag.word;
}

// Whether the text begins with more consecutive opening tags than any call has; kMore if the text
// ends before that is decided.
Match ToolCallParser::has_endless_tags(std::string_view text) const {
  constexpr int kMostTags = 8;
  if (is_exact()) return Match::kNo;
  for (int count = 0;; ++count) {
    if (count > kMostTags) return Match::kYes;
    const LooseTag tag = read_loose_tag(text);
    if (tag.match != Match::kYes) return tag.match;
    const bool is_tag_of_call =
        is_opening(tag) ||
        (!tag.closing && std::ranges::find(kWrapperWords, tag.word) != std::end(kWrapperWords));
    if (!tag.closed || !is_tag_of_call) return Match::kNo;
    text.remove_prefix(tag.size);
    const size_t space = space_size(text.substr(0, CallCursor::kMaxSpaceBeforeObject + 1));
    if (space > CallCursor::kMaxSpaceBeforeObject) return Match::kNo;
    text.remove_prefix(space);
  }
}

// Reads a header from a bounded part of the text, so that the result does not depend on how the
// text is split.
CallHeader ToolCallParser::header_at(std::string_view text, Place place, bool is_exact,
                                     TextEnd end) const {
  const bool is_long = text.size() >= kMaxHeaderBytes;
  const bool at_end = end == TextEnd::kStopped && !is_long;
  const std::string_view seen = text.substr(0, kMaxHeaderBytes);
  CallHeader header = read_header(seen, place, is_exact, at_end);
  if (header.match == Match::kNo && place == Place::kMarker && !options_.is_exact) {
    header = read_other_header(seen, /*is_marked=*/false);
  }
  if (header.match == Match::kYes && !options_.is_exact) {
    CallHeader inner = unwrapped(header, seen);
    if (inner.match == Match::kYes || !(is_long || end != TextEnd::kNone)) return inner;
  }
  if (header.match == Match::kMore && is_long) header.match = Match::kNo;
  return header;
}

// Removes an additional object around the arguments, {"arguments": {..}}, if the tool has no such
// parameter. kMore if more text is needed to decide.
CallHeader ToolCallParser::unwrapped(CallHeader header, std::string_view text) const {
  constexpr std::string_view kWrappers[] = {"\"arguments\"", "\"parameters\"", "\"properties\""};
  const bool may_be = header.kind == ArgumentsKind::kJson && !header.arguments &&
                      header.lead.empty() && !names().parameters(header.name).empty();
  if (!may_be) return header;
  CallCursor cursor(text.substr(header.size));
  std::string_view key;
  const auto more_or = [&](Match match) {
    if (match == Match::kMore) header.match = Match::kMore;
    return header;
  };
  if (!cursor.expect("{") || !cursor.skip_space()) return more_or(cursor.failure().match);
  const Match begins = begins_with(cursor.rest(), kWrappers, &key);
  if (begins != Match::kYes) return more_or(begins);
  if (names().has_parameter(header.name, key.substr(1, key.size() - 2))) return header;
  cursor.advance(key.size());
  if (!cursor.skip_space() || !cursor.expect(":") || !cursor.skip_space()) {
    return more_or(cursor.failure().match);
  }
  if (!cursor.rest().starts_with('{')) return header;
  header.size += cursor.position();
  ++header.open_objects;
  return header;
}

// Reads a call of one of the request's tools in another format, after marks that begin a call.
CallHeader ToolCallParser::read_other_header(std::string_view text, bool is_marked) const {
  CallCursor cursor(text);
  unsigned tags = 0;
  std::string_view info;
  if (!cursor.skip_tags(marks_.opening_words, tags)) return cursor.failure();
  if (tags == 0 && !is_marked) return {};
  if (!cursor.skip_fence(info)) return cursor.failure();
  if (cursor.rest().starts_with('[')) {
    cursor.advance(1);
    if (!cursor.skip_space()) return cursor.failure();
  }
  CallHeader header;
  if (cursor.rest().starts_with('{')) {
    header = read_call_object(cursor, names(), Trust::kMarked);
    header.id.clear();
  } else {
    header = read_python_call(cursor.rest());
    header.size += cursor.position();
    header.name = names().resolve(header.name);
  }
  return header.match == Match::kYes && !names().has(header.name) ? CallHeader{} : header;
}

// Finds an empty list of calls, "[]", after a mark; it is dropped. If the mark can also be plain
// text, the list counts only if the closing mark follows.
Closing ToolCallParser::empty_list(std::string_view text) const {
  CallCursor cursor(text);
  if (!cursor.skip_space(CallCursor::kMaxSpaceBeforeObject) || !cursor.expect("[") ||
      !cursor.skip_space(CallCursor::kMaxSpaceBeforeObject) || !cursor.expect("]")) {
    return {.match = cursor.failure().match};
  }
  if (marks_.are_special) return {.match = Match::kYes, .size = cursor.position()};
  if (!cursor.skip_space(CallCursor::kMaxSpaceBeforeObject)) {
    return {.match = cursor.failure().match};
  }
  std::string_view stray;
  const Match match = begins_with(cursor.rest(), marks_.strays, &stray);
  return {.match = match, .size = cursor.position() + stray.size()};
}

// Reads code fences and tags around calls, in any order, followed by a call. Bounded like
// header_at().
CallHeader ToolCallParser::read_wrapped_header(std::string_view text, TextEnd end) const {
  if (text.size() >= kMaxHeaderBytes) {
    const std::string_view seen = text.substr(0, kMaxHeaderBytes - 1);
    CallHeader header = read_wrapped_header(seen, TextEnd::kNone);
    return header.match == Match::kMore ? CallHeader{} : header;
  }
  CallCursor cursor(text);
  bool says_call = false;
  for (int count = 0; count <= kMaxWrappers; ++count) {
    CallHeader header = header_inside(text.substr(cursor.position()), says_call, end);
    header.size += cursor.position();
    if (header.match != Match::kNo) return header;
    if (cursor.rest().starts_with(kFence.front())) {
      std::string_view info;
      if (!cursor.skip_fence(info)) return cursor.failure();
      says_call = says_call || meant_word(bare_word(info), kFenceWords).has_value();
      continue;
    }
    const LooseTag tag = wrapper_at(cursor.rest(), /*closing=*/false);
    if (tag.match != Match::kYes) return {.match = tag.match};
    says_call = true;
    cursor.advance(tag.size);
    if (!cursor.skip_space(CallCursor::kMaxSpaceBeforeObject)) return cursor.failure();
  }
  return {};
}

// Reads a call inside of fences and tags. `says_call`: one of these shows that it is a call.
CallHeader ToolCallParser::header_inside(std::string_view text, bool says_call, TextEnd end) const {
  const Candidate inside = candidate_at(text, /*line_begins=*/true, marks_.may_be_missing);
  CallHeader header;
  if (inside.found == Found::kMark || inside.found == Found::kLooseMark) {
    header = header_at(text, Place::kMarker, inside.found == Found::kMark, end);
  } else if (inside.found == Found::kLine) {
    header = header_at(text, Place::kLine, /*is_exact=*/true, end);
  } else if (inside.found == Found::kBeginning) {
    header.match = Match::kMore;
  }
  if (header.match == Match::kNo && says_call && !text.starts_with(kFence.front())) {
    header = read_other_header(text.substr(0, kMaxHeaderBytes), /*is_marked=*/true);
  }
  return header;
}

bool ToolCallParser::is_call_end(std::string_view text) const {
  text.remove_prefix(space_size(text));
  text = text.substr(0, text.find_last_not_of(" \t\n\r") + 1);
  const auto is_in = [text](const auto& marks) {
    return std::ranges::find(marks, text) != marks.end();
  };
  return is_in(marks_.strays) || is_in(marks_.other_ends);
}

CallHeader ToolCallParser::read_marked_header(std::string_view text) const {
  if (const Match endless = has_endless_tags(text); endless != Match::kNo) {
    return {.match = endless == Match::kYes ? Match::kNo : Match::kMore};
  }
  return header_at(text, Place::kMarker, /*is_exact=*/true, TextEnd::kNone);
}

size_t ToolCallParser::read(std::string_view text, TextEnd end, AnswerDeltas& out) {
  if (end == TextEnd::kNone && patience_.waits(text.size())) return 0;
  size_t used = 0;
  while (true) {
    const State before = state_;
    const size_t size = step(text.substr(used), end, out);
    used += size;
    if (at_stop_ || (size == 0 && state_ == before)) break;
  }
  patience_.hold(at_stop_ ? 0 : text.size() - used);
  return used;
}

size_t ToolCallParser::read_calls(std::string_view text, TextEnd end, AnswerDeltas& out,
                                  bool& over) {
  if (end == TextEnd::kNone && patience_.waits(text.size())) return 0;
  size_t used = 0;
  bool begun = state_ != State::kText;
  while (true) {
    const State before = state_;
    const size_t size = step(text.substr(used), end, out);
    used += size;
    over = begun && state_ == State::kText;
    begun = begun || state_ != State::kText;
    if (over || (size == 0 && state_ == before)) break;
  }
  patience_.hold(over ? 0 : text.size() - used);
  if (over) space_.clear();
  return used;
}

void ToolCallParser::finish(std::string_view unread, TextEnd end, AnswerDeltas& out) {
  if (state_ == State::kCall) {
    const bool complete = end == TextEnd::kStopped && finish_call_arguments(out);
    if (!complete && options_.keep_call_text) call_text_ += unread;
    end_call(complete, out, /*cut=*/!complete);
  }
  if (!blank_since_call_) add_content(space_, out);
}

size_t ToolCallParser::step(std::string_view text, TextEnd end, AnswerDeltas& out) {
  switch (state_) {
    case State::kText:
      return read_text(text, end, out);
    case State::kCall:
      return read_call(text, end, out);
    case State::kAfterCall:
      return read_after_call(text, end, out);
  }
  return 0;
}

size_t ToolCallParser::read_call(std::string_view text, TextEnd end, AnswerDeltas& out) {
  size_t used = 0;
  const Progress progress = read_call_arguments(text, end, used, out);
  if (options_.keep_call_text) call_text_ += text.substr(0, used);
  if (progress != Progress::kMore) end_call(progress == Progress::kDone, out);
  return used;
}

Progress ToolCallParser::read_call_arguments(std::string_view text, TextEnd end, size_t& used,
                                             AnswerDeltas& out) {
  if (kind_ == ArgumentsKind::kFormat) return read_arguments(text, end, used, out);
  std::string json;
  if (kind_ == ArgumentsKind::kJson) {
    const Progress progress = json_.read(text, end, used, json);
    emit_arguments(json, out);
    return progress;
  }
  const Progress progress = python_->read(text, used, json);
  progress == Progress::kDone ? emit_last_arguments(json, out) : emit_arguments(json, out);
  return progress;
}

bool ToolCallParser::finish_call_arguments(AnswerDeltas& out) {
  if (kind_ == ArgumentsKind::kFormat) return finish_arguments(out);
  std::string json;
  const bool is_json = kind_ == ArgumentsKind::kJson;
  if (!(is_json ? json_.finish(json) : python_->finish(json))) return false;
  is_json ? emit_arguments(json, out) : emit_last_arguments(json, out);
  return true;
}

Progress ToolCallParser::read_arguments(std::string_view, TextEnd, size_t&, AnswerDeltas&) {
  return Progress::kFailed;
}

bool ToolCallParser::finish_arguments(AnswerDeltas&) { return false; }

JsonScanner::KeyReader ToolCallParser::key_reader(const std::string& tool) const {
  if (is_exact()) return {};
  return options_.names->key_reader(tool);
}

JsonScanner ToolCallParser::scanner_of(const std::string& tool) const {
  if (is_exact()) return JsonScanner::of_json();
  return JsonScanner(key_reader(tool), options_.names->number_reader(tool));
}

ToolCallParser::Candidate ToolCallParser::candidate_at(std::string_view text, bool line_begins,
                                                       bool call_may_begin_line) const {
  std::string_view found;
  const Match mark = begins_with(text, marks_.markers, &found);
  if (mark == Match::kYes) return {.found = Found::kMark, .size = found.size()};
  const Match stray = begins_with(text, strays_, &found);
  if (stray == Match::kYes) return {.found = Found::kStray, .size = found.size()};
  if (!stop_.empty() && text.starts_with(stop_)) {
    return {.found = Found::kStop, .size = stop_.size()};
  }
  if (mark == Match::kMore || stray == Match::kMore || stop_.starts_with(text)) {
    return {.found = Found::kBeginning};
  }
  if (!is_exact() && !marks_.markers.empty() && text.front() == marks_.markers.front().front()) {
    const LooseTag tag = read_loose_tag(text, marks_.opening_words);
    const bool may_open =
        !tag.closing && std::ranges::any_of(marks_.opening_words, [&tag](std::string_view word) {
          return tag.word.empty() || word.front() == tag.word.front() ||
                 word.substr(1).starts_with(tag.word);
        });
    if (tag.match == Match::kMore && may_open) return {.found = Found::kBeginning};
    if (tag.match == Match::kYes && is_opening(tag)) {
      return {.found = Found::kLooseMark, .size = tag.size};
    }
  }
  if (!is_exact() && !marks_.markers.empty()) {
    const LooseTag wrapper = wrapper_at(text, /*closing=*/false);
    if (wrapper.match == Match::kMore) return {.found = Found::kBeginning};
    if (wrapper.match == Match::kYes) return {.found = Found::kWrapper, .size = wrapper.size};
  }
  if (!line_begins) return {};
  if (text.front() == kFence.front() && !is_exact()) {
    if (text.starts_with(kFence)) return {.found = Found::kFence, .size = kFence.size()};
    if (kFence.starts_with(text)) return {.found = Found::kBeginning};
  }
  if (!is_exact() && !marks_.markers.empty() && may_begin_bare_tag(text.front())) {
    const LooseTag bare = read_bare_mark(text);
    if (bare.match == Match::kMore) return {.found = Found::kBeginning};
    if (bare.match == Match::kYes) return {.found = Found::kBareMark, .size = bare.size};
  }
  if (!call_may_begin_line) return {};
  switch (may_begin_line(text)) {
    case Match::kYes:
      return {.found = Found::kLine, .size = 1};
    case Match::kMore:
      return {.found = Found::kBeginning};
    case Match::kNo:
      break;
  }
  return {};
}

// Finds a mark without its first bracket at the beginning of a line: "tool_call>", "function=f>".
LooseTag ToolCallParser::read_bare_mark(std::string_view text) const {
  LooseTag tag = read_bare_tag(text, bracket());
  const auto& words = marks_.opening_words;
  const bool is_whole = tag.match == Match::kYes;
  const bool may_mean = std::ranges::any_of(words, [&](std::string_view word) {
    return is_whole ? word == tag.word : word.starts_with(tag.word);
  });
  const bool has_name = is_whole && !tag.closed && text.substr(tag.size).starts_with('=');
  if (tag.closing || !may_mean || (is_whole && !tag.closed && !has_name)) tag.match = Match::kNo;
  return tag;
}

ToolCallParser::Candidate ToolCallParser::find_candidate(std::string_view text) const {
  std::string wanted;
  const auto want = [&wanted](char c) {
    if (wanted.find(c) == std::string::npos) wanted += c;
  };
  for (const std::string_view marker : marks_.markers) want(marker.front());
  if (!marks_.markers.empty() && !is_exact()) want('<');  // a foreign tag may be around calls
  for (const std::string_view stray : strays_) want(stray.front());
  if (!stop_.empty()) want(stop_.front());
  // Calls without marks, and code fences around calls.
  const bool has_fences = (!marks_.markers.empty() || !stop_.empty()) && !is_exact();
  const bool calls = (marks_.may_be_missing && !is_exact()) || marks_.start_may_be_call;
  if (calls || has_fences) want('\n');
  bool line_begins = at_start_ ? calls || has_fences : has_fences && last_byte_ == '\n';
  size_t place = 0;
  while (place < text.size()) {
    const bool is_wanted = wanted.find(text[place]) != std::string::npos;
    if ((is_wanted && text[place] != '\n') || line_begins) {
      Candidate candidate = candidate_at(text.substr(place), line_begins, calls);
      if (candidate.found != Found::kNothing) {
        candidate.position = place;
        return candidate;
      }
    }
    if (text[place] == '\n') {
      line_begins = has_fences || (line_begins && at_start_);
      ++place;
      continue;
    }
    // White space at the content's beginning precedes the content's first line.
    line_begins = line_begins && at_start_ &&
                  (text[place] == ' ' || text[place] == '\t' || text[place] == '\r');
    const size_t from = place++;
    if (!line_begins) place = std::min(text.find_first_of(wanted, place), text.size());
    count_searched(place - from);
  }
  return {.position = text.size()};
}

size_t ToolCallParser::read_text(std::string_view text, TextEnd end, AnswerDeltas& out) {
  const Candidate hit = find_candidate(text);
  if (hit.position > 0) {
    emit_text(text.substr(0, hit.position), out);
    return hit.position;
  }
  switch (hit.found) {
    case Found::kNothing:
      break;
    case Found::kBeginning: {
      if (end == TextEnd::kNone) break;
      std::string_view ignored;
      const bool is_mark = begins_with(text, marks_.markers, &ignored) == Match::kMore ||
                           begins_with(text, strays_, &ignored) == Match::kMore ||
                           (stop_.starts_with(text) && line_begins() && !in_code_) ||
                           (text.size() > 2 && line_begins() && !is_exact() &&
                            wrapper_at(text, /*closing=*/false).match == Match::kMore);
      if (end == TextEnd::kStopped || !is_mark) {
        emit_text(text, out);
      } else {
        space_.clear();
      }
      return text.size();
    }
    case Found::kStray:
      return read_stray(hit, text, end, out);
    case Found::kStop:
      at_stop_ = line_begins() && !in_code_;
      if (at_stop_) return 0;
      emit_text(text.substr(0, hit.size), out);
      return hit.size;
    case Found::kMark:
    case Found::kLooseMark:
    case Found::kBareMark:
    case Found::kLine:
    case Found::kFence:
    case Found::kWrapper:
      return read_mark(hit, text, end, out);
  }
  return 0;
}

size_t ToolCallParser::read_mark(const Candidate& mark, std::string_view text, TextEnd end,
                                 AnswerDeltas& out) {
  const bool is_fence = mark.found == Found::kFence;
  const bool is_line = mark.found == Found::kLine || is_fence;
  const Place place = !is_line ? Place::kMarker : at_start_ ? Place::kStart : Place::kLine;
  const Match endless = is_line ? Match::kNo : has_endless_tags(text);
  if (endless == Match::kMore && end == TextEnd::kNone) return 0;
  const bool may_be_call = endless != Match::kYes;
  CallHeader header;
  if (mark.found == Found::kBareMark) {
    const std::string tagged = bracket() + std::string(text.substr(0, kMaxHeaderBytes));
    header = header_at(tagged, Place::kMarker, /*is_exact=*/false, end);
    if (header.match == Match::kYes) --header.size;
  } else if (may_be_call && !is_fence && mark.found != Found::kWrapper) {
    header = header_at(text, place, mark.found == Found::kMark, end);
  }
  const bool may_be_wrapped = mark.found != Found::kLine && mark.found != Found::kBareMark;
  if (may_be_call && header.match == Match::kNo && !is_exact() && may_be_wrapped) {
    header = read_wrapped_header(text, end);
  }
  if (header.match == Match::kYes) return start_call(std::move(header), text, out);
  if (header.match == Match::kMore) {
    if (end == TextEnd::kNone) return 0;
    // The name of a tool alone does not begin a call.
    const std::string_view behind_tag = is_line ? text : text.substr(mark.size);
    const bool is_sure =
        mark.found == Found::kMark || behind_tag.find_first_of("{[<") != std::string_view::npos;
    if (end == TextEnd::kCut && is_sure) {
      space_.clear();
      return text.size();
    }
  }
  if (is_fence) in_code_ = !in_code_;
  const bool is_mark = mark.found == Found::kMark;
  const std::string_view behind = text.substr(mark.size);
  if (is_mark && !is_exact()) {
    const Closing list = empty_list(behind);
    if (list.match == Match::kMore && end == TextEnd::kNone) return 0;
    if (list.match == Match::kYes) return mark.size + list.size;
  }
  if (is_mark && behind.empty() && end == TextEnd::kNone) return 0;
  if (!is_mark || (!marks_.are_special && !stands_alone(behind))) {
    emit_text(text.substr(0, mark.size), out);
  }
  return mark.size;
}

// Handles a mark that closes nothing. Between other words it is text, because prose mentions it. If
// a word follows directly, the mark is not a word itself.
size_t ToolCallParser::read_stray(const Candidate& mark, std::string_view text, TextEnd end,
                                  AnswerDeltas& out) {
  const std::string_view behind = text.substr(mark.size);
  if (behind.empty() && end == TextEnd::kNone) return 0;
  const char before = space_.empty() ? last_byte_ : space_.back();
  const bool is_named = kBeforeNamedMark.find(before) != std::string_view::npos &&
                        (quotes_mark(before) || !begins_word(behind));
  const bool is_special =
      std::ranges::find(special_strays_, text.substr(0, mark.size)) != special_strays_.end();
  const bool line_ends = behind.empty() || behind.front() == '\n' || behind.front() == '\r';
  const bool is_kept =
      std::exchange(keeps_stray_, false) || ((in_code_ || (is_named && !line_ends)) && !is_special);
  if (is_kept) emit_text(text.substr(0, mark.size), out);
  return mark.size;
}

// Whether the current line contains only white space so far.
bool ToolCallParser::line_begins() const {
  return at_start_ || last_byte_ == '\n' || space_.find('\n') != std::string::npos;
}

// Whether a mark that ends before `behind` is alone on its line.
bool ToolCallParser::stands_alone(std::string_view behind) const {
  const bool begins = space_.empty() ? last_byte_ == '\n' : space_.back() == '\n';
  return begins && (behind.empty() || behind.front() == '\n' || behind.front() == '\r');
}

size_t ToolCallParser::start_call(CallHeader header, std::string_view text, AnswerDeltas& out) {
  const size_t size = header.size;
  const std::vector<std::string> more = std::move(header.more_arguments);
  const std::string name = header.name;
  begin_call(std::move(header), text, out);
  for (const std::string& arguments : more) {
    CallHeader next{.match = Match::kYes, .name = name, .arguments = arguments};
    begin_call(std::move(next), {}, out);
  }
  return size;
}

void ToolCallParser::begin_call(CallHeader header, std::string_view text, AnswerDeltas& out) {
  const size_t index = num_calls_++;
  if (options_.keep_call_text) {
    call_text_ = space_;
    call_text_ += text.substr(0, header.size);
  }
  space_.clear();
  long_space_ = false;
  at_start_ = false;
  const bool has_fence = text.substr(0, header.size).find(kFence) != std::string_view::npos;
  fence_is_open_ = fence_is_open_ || has_fence;
  kind_ = header.kind;
  json_ = {};
  if (header.arguments) {
    std::string json;
    size_t used = 0;
    JsonScanner scanner = scanner_of(header.name);
    (void)scanner.scan(*header.arguments, used, &json, TextEnd::kStopped);
    header.arguments = std::move(json);
  } else if (kind_ == ArgumentsKind::kJson) {
    json_ = JsonArguments(header, text.substr(header.size), scanner_of(header.name));
  } else if (kind_ == ArgumentsKind::kPython) {
    python_.emplace(names(), header.name);
  } else {
    begin_format_call(header);
  }
  if (!dropped()) {
    if (header.id.empty()) header.id = options_.make_id(header.name, index);
    out.emplace_back(ToolCallBegin{index, std::move(header.id), std::move(header.name)});
  }
  state_ = State::kCall;
  if (header.arguments) {
    emit_arguments(*header.arguments, out);
    end_call(/*complete=*/true, out);
  }
}

size_t ToolCallParser::read_after_call(std::string_view text, TextEnd end, AnswerDeltas& out) {
  if (const size_t space = space_size(text); space > 0) {
    emit_text(text.substr(0, space), out);
    return space;
  }
  if (text.empty()) return 0;
  const Closing closing = read_call_closing(text);
  if (closing.match == Match::kMore && end == TextEnd::kNone) return 0;
  if (closing.match == Match::kMore && begins_closing(text)) return text.size();
  if (closing.match == Match::kYes) {
    if (blank_since_call_) space_.clear();
    return closing.size;
  }
  CallHeader header = header_at(text, Place::kNext, /*is_exact=*/true, end);
  if (header.match == Match::kYes) return start_call(std::move(header), text, out);
  if (header.match == Match::kMore) {
    if (end == TextEnd::kNone) return 0;
    if (end == TextEnd::kCut) return text.size();
  }
  state_ = State::kText;
  last_byte_ = '\n';
  return 0;
}

Closing ToolCallParser::read_call_closing(std::string_view text) {
  if (kind_ == ArgumentsKind::kJson) {
    if (const Closing tail = json_.read_tail(text); tail.match != Match::kNo) return tail;
  }
  if (fence_is_open_ && text.front() == kFence.front()) {
    if (text.starts_with(kFence)) {
      fence_is_open_ = false;
      return {.match = Match::kYes, .size = kFence.size()};
    }
    if (kFence.starts_with(text)) return {.match = Match::kMore};
  }
  const Closing closing = read_closing(text);
  if (closing.match != Match::kNo || is_exact()) return closing;
  const LooseTag wrapper = wrapper_at(text, /*closing=*/true);
  return {.match = wrapper.match, .size = wrapper.match == Match::kYes ? wrapper.size : 0};
}

Closing ToolCallParser::read_loose_closing(std::string_view text,
                                           std::span<const std::string_view> exact,
                                           std::span<const std::string_view> words,
                                           bool needs_slash) {
  std::string_view found;
  const Match match = begins_with(text, exact, &found);
  if (match == Match::kYes) return {.match = match, .size = found.size()};
  if (match == Match::kMore) return {.match = match};
  const char first = text.front();
  const LooseTag tag = read_loose_tag(text);
  const bool may_mean = std::ranges::any_of(
      words, [&tag](std::string_view word) { return word.starts_with(tag.word); });
  if (tag.match == Match::kMore && (tag.closing || may_mean || !needs_slash)) {
    return {.match = Match::kMore};
  }
  const bool is_end = tag.closing || tag.closes_itself || !needs_slash;
  if (tag.match == Match::kYes && is_end && nearest_word(tag.word, words)) {
    return {.match = Match::kYes, .size = tag.size};
  }
  if (first == '/' || may_begin_bare_tag(first)) return bare_closing(text, words);
  if (first == '}' || first == ']' || first == ')' || first == '>') {
    return {.match = Match::kYes, .size = 1};
  }
  // A separator that is not followed by a call.
  if (first != ',' && first != ';') return {};
  const std::string_view behind = text.substr(1);
  const size_t space = space_size(behind.substr(0, LooseTag::kMaxBytes));
  if (space == behind.size()) return {.match = Match::kMore};
  const char next = behind[space];
  const bool closes = next == '<' || next == '}' || next == ']';
  return {.match = closes ? Match::kYes : Match::kNo, .size = closes ? size_t{1} : 0};
}

// White space is held back until the text after it is known: white space before a call is dropped.
void ToolCallParser::emit_text(std::string_view text, AnswerDeltas& out) {
  if (marks_.markers.empty()) {
    at_start_ = at_start_ && space_size(text) == text.size();
    last_byte_ = text.back();
    add_content(text, out);
    return;
  }
  const size_t end = text.find_last_not_of(" \t\n\r") + 1;  // 0 for a blank text
  if (end > 0) {
    add_content(space_, out);
    add_content(text.substr(0, end), out);
    space_.clear();
    long_space_ = false;
    blank_since_call_ = false;
    at_start_ = false;
    fence_is_open_ = false;
  }
  last_byte_ = text.back();
  space_ += text.substr(end);
  if (!long_space_ && space_.size() <= kMaxSpaceBytes) return;
  add_content(space_, out);
  space_.clear();
  long_space_ = true;
  blank_since_call_ = false;
}

void ToolCallParser::emit_arguments(std::string_view json, AnswerDeltas& out) {
  if (!dropped()) add_arguments(num_calls_ - 1, json, out);
}

void ToolCallParser::emit_last_arguments(std::string_view json, AnswerDeltas& out) {
  if (!dropped()) out.emplace_back(ArgumentsDelta{num_calls_ - 1, std::string(json)});
}

void ToolCallParser::end_call(bool complete, AnswerDeltas& out, bool cut) {
  ToolCallEnd end{.index = num_calls_ - 1, .complete = complete, .text = {}, .cut = cut};
  if (!complete) end.text = std::move(call_text_);
  call_text_.clear();
  if (!dropped()) out.emplace_back(std::move(end));
  state_ = complete ? State::kAfterCall : State::kText;
  blank_since_call_ = complete || cut;
  keeps_stray_ = !complete && options_.keep_call_text;
  last_byte_ = '\n';
}

NoCallParser::NoCallParser()
    : ToolCallParser({}, {.make_id = {}, .names = std::make_shared<const ToolNames>(nullptr)}) {}

}  // namespace heddle::parsers
