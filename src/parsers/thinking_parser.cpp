// SPDX-License-Identifier: Apache-2.0
#include "parsers/thinking_parser.h"

#include <algorithm>
#include <utility>

#include "parsers/loose_tag.h"

namespace heddle::parsers {
namespace {

constexpr size_t kMaxSpaceBeforeTag = 64;

// Words in tags around reasoning, and accepted variants of them.
constexpr std::string_view kThinkWords[] = {"think", "thinking", "thought", "thoughts",
                                            "reasoning"};
constexpr std::string_view kOtherWords[] = {"thing",  "things",  "thin",   "thank", "thanks",
                                            "though", "through", "reason", "chink", "brought"};

// The first letter must match, because tag_at() waits for the rest of a word only if it does.
bool is_think_word(std::string_view word) {
  if (std::ranges::find(kOtherWords, word) != std::end(kOtherWords)) return false;
  const auto meant = meant_word(word, kThinkWords);
  return meant && kThinkWords[*meant].front() == word.front();
}

// Reads a tag and removes what precedes its word: <seed:think>, or words that say whether it opens
// or closes, as in <|START_THINKING|> and <|END_THINKING|>.
LooseTag read_think_tag(std::string_view text) {
  LooseTag tag = read_loose_tag(text);
  for (const std::string_view lead : {"start", "end", "seed"}) {
    if (!tag.word.starts_with(lead)) continue;
    tag.word.erase(0, lead.size());
    tag.closing = tag.closing || lead == "end";
    break;
  }
  return tag;
}

// The first letters of the words of all tags.
constexpr std::string_view kFirstLetters = "trse";

// If one of these precedes a tag inside the reasoning, the reasoning only mentions the tag.
constexpr std::string_view kBeforeNamedTag = " \t`'\"(";

// Number of letters at the beginning.
size_t bare_prefix(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return static_cast<size_t>(std::ranges::find_if_not(text, is_letter) - text.begin());
}

bool ends_line(std::string_view behind) {
  return behind.empty() || behind.front() == '\n' || behind.front() == '\r';
}

}  // namespace

ThinkingParser::ThinkingParser(const AnswerParserOptions& options,
                               std::unique_ptr<ToolCallParser> calls)
    : tags_(tags_of(options.reasoning)),
      content_marks_(content_marks_of(options.reasoning)),
      separate_(options.separate_reasoning),
      is_exact_(options.is_held_to_form),
      calls_(calls != nullptr ? std::move(calls) : std::make_unique<NoCallParser>()),
      call_marks_(calls_->markers()),
      state_(tags_.open.empty() ? State::kContent : State::kStart),
      inside_(options.starts_in_reasoning) {
  if (tags_.open.empty()) return;
  for (const std::string_view mark : content_marks_.special) calls_->add_stray(mark, true);
  for (const std::string_view mark : call_marks_) mark_bytes_ += mark.front();
  mark_bytes_ += tags_.close.front();
  mark_bytes_ += '<';
  if (separate_) calls_->add_stray(tags_.close);
  if (separate_ && !options.is_held_to_form) calls_->stop_at(tags_.open);
}

AnswerParser::Part ThinkingParser::part() const {
  switch (state_) {
    case State::kStart:
      return inside_ ? Part::kReasoning : Part::kUndecided;
    case State::kAfterOpen:
    case State::kReasoning:
      return Part::kReasoning;
    case State::kCalls:
    case State::kAfterClose:
    case State::kContent:
      break;
  }
  return Part::kContent;
}

void ThinkingParser::push(std::string_view text, AnswerDeltas& out) {
  unread_.append(text);
  run(TextEnd::kNone, out);
}

void ThinkingParser::finish(TextEnd end, AnswerDeltas& out) {
  run(end, out);
  calls_->finish(unread_.text(), end, out);
}

void ThinkingParser::run(TextEnd end, AnswerDeltas& out) {
  const bool is_content = state_ == State::kContent || state_ == State::kCalls;
  if (end == TextEnd::kNone && !is_content && patience_.waits(unread_.text().size())) return;
  unread_.read(state_, [&](std::string_view text) { return step(text, end, out); });
  patience_.hold(unread_.text().size());
}

size_t ThinkingParser::step(std::string_view text, TextEnd end, AnswerDeltas& out) {
  switch (state_) {
    case State::kStart:
      return read_start(text, end, out);
    case State::kAfterOpen:
      return read_after_open(text, end, out);
    case State::kReasoning:
      return read_reasoning(text, end, out);
    case State::kCalls: {
      bool over = false;
      const size_t used = calls_->read_calls(text, end, out, over);
      if (!over) return used;
      state_ = State::kReasoning;
      drops_space_ = true;
      last_byte_ = '\n';
      return used;
    }
    case State::kAfterClose:
      return read_after_close(text, end, out);
    case State::kContent:
      return read_content(text, end, out);
  }
  return 0;
}

size_t ThinkingParser::read_content(std::string_view text, TextEnd end, AnswerDeltas& out) {
  const size_t used = calls_->read(text, end, out);
  if (!calls_->at_stop()) return used;
  calls_->pass_stop();
  enter_reasoning({});
  return used + tags_.open.size();
}

void ThinkingParser::enter_reasoning(const Tag& tag) {
  state_ = State::kAfterOpen;
  inside_ = true;
  word_ = tag.word;
  awaits_label_ = !tags_.label.empty();
  follows_tag_ = true;
}

// Whether the bracket of the tag before `text` is doubled: "</think>>". If a blank or an operator
// follows the bracket, it is text: "> quoted", ">= 3".
Match ThinkingParser::doubled_bracket(std::string_view text, TextEnd end) {
  if (!follows_tag_ || text.empty()) return Match::kNo;
  const bool may_double = !is_exact_ && tags_.close.ends_with('>') && text.front() == '>';
  if (may_double && text.size() == 1 && end == TextEnd::kNone) return Match::kMore;
  follows_tag_ = false;
  if (!may_double) return Match::kNo;
  return text.substr(1).find_first_of(" >=") == 0 ? Match::kNo : Match::kYes;
}

// Reads the label after an opening tag. A misspelt label counts if it is alone on its line.
Match ThinkingParser::label_at(std::string_view text, TextEnd end, size_t& size) const {
  constexpr size_t kMaxLabel = 16;
  size = tags_.label.size();
  const size_t letters = std::min(bare_prefix(text.substr(0, kMaxLabel)), text.size());
  if (letters == text.size() && letters < kMaxLabel && end == TextEnd::kNone) return Match::kMore;
  if (text.starts_with(tags_.label) && letters == size) return Match::kYes;
  const bool is_line = letters < text.size() && ends_line(text.substr(letters));
  if (is_exact_ || !is_line || !is_think_word(bare_word(text.substr(0, letters))))
    return Match::kNo;
  size = letters;
  return Match::kYes;
}

size_t ThinkingParser::read_after_open(std::string_view text, TextEnd end, AnswerDeltas& out) {
  const Match doubled = doubled_bracket(text, end);
  if (doubled == Match::kMore) return 0;
  if (doubled == Match::kYes) return 1;
  if (awaits_label_) {
    if (tags_.label.starts_with(text) && text.size() < tags_.label.size()) {
      return end == TextEnd::kCut ? text.size() : 0;
    }
    size_t size = 0;
    const Match label = label_at(text, end, size);
    if (label == Match::kMore) return 0;
    awaits_label_ = false;
    if (label == Match::kYes) {
      emit_tag(text.substr(0, size), out);
      return size;
    }
  }
  const size_t size = skip_newlines(text, out);
  if (size < text.size()) state_ = State::kStart;
  return size;
}

// The tag at the beginning of `text` if opening and closing tag have the same word, as in Gemma's
// <|channel>thought and <channel|>; the label distinguishes them.
ThinkingParser::Tag ThinkingParser::labelled_tag_at(std::string_view text, bool closing,
                                                    TextEnd end) const {
  const LooseTag tag = read_loose_tag(text);
  const std::string word = bare_word(tags_.open);
  const bool may_mean = word.starts_with(tag.word) ||
                        (!is_exact_ && tag.word.starts_with(std::string_view(word).substr(0, 2)));
  if (tag.match == Match::kMore && may_mean) return {.match = Match::kMore};
  if (tag.match != Match::kYes || !tag.closed || !may_mean) return {};
  const std::string_view meant = word;
  if (tag.word != word && (is_exact_ || !meant_word(tag.word, {&meant, 1}))) return {};
  const std::string_view behind = text.substr(tag.size);
  size_t ignored = 0;
  const Match label = tag.closing ? Match::kNo : label_at(behind, end, ignored);
  if (label == Match::kMore && !behind.empty()) return {.match = Match::kMore};
  if (label == Match::kMore && !tag.closing) return {.match = Match::kMore};
  const bool opens = label == Match::kYes;
  const bool is_named = kBeforeNamedTag.find(last_byte_) != std::string_view::npos;
  if (opens == closing) return {};
  if (closing && is_named && behind.empty() && end == TextEnd::kNone) {
    return {.match = Match::kMore};
  }
  if (closing && is_named && !ends_line(behind)) return {};
  return {.match = Match::kYes, .size = tag.size};
}

// Whether the reasoning only quotes the closing tag before `behind`: "`</think>`". A quote that
// closes an earlier one on its line, as in "say `x`</think>", does not count.
Match ThinkingParser::is_quoted(std::string_view behind, TextEnd end) const {
  const bool is_open = (last_byte_ == '`' && in_backticks_) || (last_byte_ == '"' && in_quotes_);
  if (!is_open || is_exact_) return Match::kNo;
  if (behind.empty()) return end == TextEnd::kNone ? Match::kMore : Match::kNo;
  return behind.front() == last_byte_ ? Match::kYes : Match::kNo;
}

void ThinkingParser::count_quotes(std::string_view text) {
  for (const char c : text) {
    in_backticks_ = c != '\n' && in_backticks_ != (c == '`');
    in_quotes_ = c != '\n' && in_quotes_ != (c == '"');
  }
}

// The opening or closing tag at the beginning of `text`, also if misspelt.
ThinkingParser::Tag ThinkingParser::tag_at(std::string_view text, bool closing, TextEnd end) const {
  const std::string_view exact = closing ? tags_.close : tags_.open;
  if (text.starts_with(exact)) {
    const Match quoted = closing ? is_quoted(text.substr(exact.size()), end) : Match::kNo;
    if (quoted == Match::kYes) return {};
    return {.match = quoted == Match::kMore ? Match::kMore : Match::kYes, .size = exact.size()};
  }
  if (exact.starts_with(text)) return {.match = Match::kMore};
  if (!tags_.label.empty()) {
    if (text.starts_with(closing ? tags_.open : tags_.close)) return {};
    return labelled_tag_at(text, closing, end);
  }
  const LooseTag tag = read_think_tag(text);
  if (tag.match == Match::kMore) {
    const bool may_think =
        tag.word.empty() || kFirstLetters.find(tag.word.front()) != std::string_view::npos;
    return {.match = may_think && (closing || !tag.closing) ? Match::kMore : Match::kNo};
  }
  if (tag.match == Match::kNo || tag.closing != closing || !is_think_word(tag.word)) return {};
  const std::string_view behind = text.substr(tag.size);
  if (behind.empty() && end == TextEnd::kNone) return {.match = Match::kMore};
  // A misspelt tag, or one without its bracket, counts only at the beginning or end of a line.
  const bool alone = ends_line(behind) || (tag.closed && last_byte_ == '\n');
  const bool is_exact_word = tag.word == "think" && tag.closed;
  // A nearly correct tag also ends reasoning within a line, unless the reasoning only mentions it.
  const bool is_named = kBeforeNamedTag.find(last_byte_) != std::string_view::npos;
  const bool is_near = closing && tag.closed && (tag.word == word_ || !is_named);
  if (!alone && !is_exact_word && !is_near) return {};
  return {.match = Match::kYes, .size = tag.size, .word = tag.word};
}

size_t ThinkingParser::read_start(std::string_view text, TextEnd end, AnswerDeltas& out) {
  const size_t space = std::min(space_size(text.substr(0, kMaxSpaceBeforeTag + 1)), text.size());
  const std::string_view rest = text.substr(space);
  if (space <= kMaxSpaceBeforeTag) {
    const Tag open = tag_at(rest, /*closing=*/false, end);
    const Tag close = inside_ ? Tag{} : tag_at(rest, /*closing=*/true, end);
    if (open.match == Match::kYes) {
      emit_tag(text.substr(0, space + open.size), out);
      enter_reasoning(open);
      return space + open.size;
    }
    if (!inside_) {
      const Match content = content_tag_at(rest);
      if (content == Match::kMore && end == TextEnd::kNone) return 0;
      if (content == Match::kYes) {
        state_ = State::kAfterClose;
        return space;
      }
    }
    if (close.match == Match::kYes) {  // a closing tag without reasoning
      emit_tag(text.substr(0, space + close.size), out);
      state_ = State::kAfterClose;
      follows_tag_ = true;
      return space + close.size;
    }
    if (end == TextEnd::kNone && (open.match == Match::kMore || close.match == Match::kMore)) {
      return 0;
    }
    if (end == TextEnd::kCut && begins_mark(rest)) return text.size();
  }
  state_ = inside_ ? State::kReasoning : State::kContent;
  return 0;
}

size_t ThinkingParser::skip_newlines(std::string_view text, AnswerDeltas& out) {
  const size_t size = std::min(text.find_first_not_of("\n\r"), text.size());
  count_searched(size);
  emit_tag(text.substr(0, size), out);
  return size;
}

// Opening and closing tags may be repeated.
size_t ThinkingParser::read_after_close(std::string_view text, TextEnd end, AnswerDeltas& out) {
  const Match doubled = doubled_bracket(text, end);
  if (doubled == Match::kMore) return 0;
  if (doubled == Match::kYes) return 1;
  if (const size_t size = skip_newlines(text, out); size > 0 || text.empty()) return size;
  last_byte_ = '\n';
  const Tag close = tag_at(text, /*closing=*/true, end);
  const Tag open = tag_at(text, /*closing=*/false, end);
  if (close.match == Match::kYes) {
    emit_tag(text.substr(0, close.size), out);
    return close.size;
  }
  if (open.match == Match::kYes) {
    emit_tag(text.substr(0, open.size), out);
    enter_reasoning(open);
    return open.size;
  }
  const Match content = content_tag_at(text);
  if (content == Match::kMore && end == TextEnd::kNone) return 0;
  if (content == Match::kYes) {
    content_begun_ = true;
    calls_->add_stray(content_marks_.close);
    return content_marks_.open.size();
  }
  if (end == TextEnd::kNone && (close.match == Match::kMore || open.match == Match::kMore)) {
    return 0;
  }
  if (end == TextEnd::kCut && begins_mark(text)) return text.size();
  state_ = State::kContent;
  return 0;
}

// Whether `text` is the beginning of a tag around reasoning, or of the tag at which content begins.
bool ThinkingParser::begins_mark(std::string_view text) const {
  return !text.empty() && (tags_.open.starts_with(text) || tags_.close.starts_with(text) ||
                           content_tag_at(text) == Match::kMore);
}

// The tag at which content begins; it occurs once.
Match ThinkingParser::content_tag_at(std::string_view text) const {
  if (content_marks_.open.empty() || content_begun_) return Match::kNo;
  std::string_view ignored;
  return begins_with(text, {&content_marks_.open, 1}, &ignored);
}

// Whether `text` begins with a mark that only the final answer has: one of the special tokens
// around content, or the content tag at the beginning of a line.
Match ThinkingParser::begins_content(std::string_view text) const {
  if (!content_marks_.special.empty()) {
    std::string_view ignored;
    return begins_with(text, content_marks_.special, &ignored);
  }
  return last_byte_ == '\n' ? content_tag_at(text) : Match::kNo;
}

size_t ThinkingParser::read_reasoning(std::string_view text, TextEnd end, AnswerDeltas& out) {
  if (drops_space_) {
    const size_t space = space_size(text);
    if (space > 0) return space;
    drops_space_ = text.empty();
  }
  const size_t place = std::min(text.find_first_of(mark_bytes_), text.size());
  count_searched(place);
  if (place > 0) {
    emit_reasoning(text.substr(0, place), out);
    return place;
  }
  return text.empty() ? 0 : read_mark(text, end, out);
}

// Reads text that begins with a possible mark.
size_t ThinkingParser::read_mark(std::string_view text, TextEnd end, AnswerDeltas& out) {
  const Tag close = tag_at(text, /*closing=*/true, end);
  if (close.match == Match::kYes) {
    emit_tag(text.substr(0, close.size), out);
    state_ = State::kAfterClose;
    follows_tag_ = true;
    return close.size;
  }
  const Match content = begins_content(text);
  if (content == Match::kMore && end == TextEnd::kNone) return 0;
  if (content == Match::kYes) {  // the closing tag is missing
    state_ = State::kAfterClose;
    return 0;
  }
  std::string_view mark;
  Match match = begins_with(text, call_marks_, &mark);
  const bool is_open = match == Match::kNo && text.starts_with(tags_.open);
  if (is_open) {  // on its own line the tag is doubled, otherwise it is a word of the reasoning
    mark = tags_.open;
    const std::string_view behind = text.substr(mark.size());
    if (behind.empty() && end == TextEnd::kNone) return 0;
    if (separate_ && last_byte_ == '\n' && ends_line(behind)) return mark.size();
  } else if (match == Match::kYes) {
    const CallHeader header = calls_->read_marked_header(text);
    if (header.match == Match::kYes) {
      state_ = State::kCalls;
      return 0;
    }
    match = header.match;
    if (match == Match::kMore && end == TextEnd::kCut) return text.size();
  } else if (match == Match::kNo && tags_.open.starts_with(text)) {
    match = Match::kMore;
  }
  if (end == TextEnd::kNone && (match == Match::kMore || close.match == Match::kMore)) return 0;
  const bool is_cut =
      end == TextEnd::kCut && mark.empty() &&
      (match == Match::kMore || content == Match::kMore || tags_.close.starts_with(text));
  if (is_cut) return text.size();
  size_t size = std::max<size_t>(mark.size(), 1);
  while (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) ++size;
  emit_reasoning(text.substr(0, size), out);
  return size;
}

void ThinkingParser::emit_reasoning(std::string_view text, AnswerDeltas& out) {
  last_byte_ = text.back();
  count_quotes(text);
  if (separate_) {
    add_reasoning(text, out);
  } else {
    add_content(text, out);
  }
}

void ThinkingParser::emit_tag(std::string_view text, AnswerDeltas& out) const {
  if (!separate_) add_content(text, out);
}

}  // namespace heddle::parsers
