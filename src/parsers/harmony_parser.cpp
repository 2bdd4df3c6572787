// SPDX-License-Identifier: Apache-2.0
#include "parsers/harmony_parser.h"

#include <algorithm>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "parsers/call_cursor.h"
#include "parsers/loose_tag.h"
#include "parsers/marker_search.h"

namespace heddle::parsers {
namespace {

constexpr std::string_view kWordEnds = " <{|\t\n\r";
constexpr size_t kMaxRecipientBytes = 512;  // most bytes of a recipient, so that a header has room
                                            // for its other words
constexpr size_t kMaxHeaderWord = 64;       // most bytes of the other words in a header

constexpr std::string_view kChannels[] = {"analysis", "commentary", "final"};
constexpr std::string_view kRoles[] = {"assistant", "user", "system", "developer", "tool"};
constexpr std::string_view kTypes[] = {"json", "code", "text"};

enum class HarmonyMark : uint8_t { kStart, kChannel, kConstrain, kMessage, kEnd, kReturn, kCall };
constexpr std::string_view kMarkWords[] = {"start", "channel", "constrain", "message",
                                           "end",   "return",  "call"};

struct FoundMark {
  Match match = Match::kNo;
  size_t size = 0;
  HarmonyMark mark = HarmonyMark::kStart;
};

// The size of an unclosed tag including the bars after its word.
size_t size_with_bars(std::string_view text, size_t size) {
  while (text.substr(size).starts_with('|')) ++size;
  return size;
}

// Finds a mark at the beginning of a part of a header, where no text is possible. Its bars or its
// bracket may be missing. A mark with an unknown word, or a closing tag, counts as a mark between
// two words, unless it begins the message.
FoundMark header_mark_at(std::string_view text) {
  if (text.starts_with('|')) {  // the first bracket is missing
    const LooseTag bare = read_bare_tag(text);
    const auto word = std::ranges::find(kMarkWords, bare.word);
    const bool is_mark = bare.match == Match::kYes && bare.closed && !bare.closing;
    if (bare.match == Match::kMore) return {.match = Match::kMore};
    if (!is_mark || word == std::end(kMarkWords)) return {};
    const auto mark = static_cast<HarmonyMark>(word - std::begin(kMarkWords));
    return {.match = Match::kYes, .size = bare.size, .mark = mark};
  }
  if (!text.starts_with('<')) return {};
  // A truncated mark has at least one bar.
  const LooseTag tag =
      text.starts_with("<|") ? read_loose_tag(text, kMarkWords) : read_loose_tag(text);
  if (tag.match == Match::kMore) return {.match = Match::kMore};
  if (tag.match != Match::kYes || (tag.closing && !tag.closed)) return {};
  const size_t size = tag.closed ? tag.size : size_with_bars(text, tag.size);
  const bool is_doubled = tag.closed && text.substr(size).starts_with('>');
  FoundMark found{
      .match = Match::kYes, .size = size + (is_doubled ? 1 : 0), .mark = HarmonyMark::kConstrain};
  if (const auto meant = meant_word(tag.word, kMarkWords)) {
    const auto mark = static_cast<HarmonyMark>(*meant);
    if (!tag.closing || mark == HarmonyMark::kMessage) found.mark = mark;
    return found;
  }
  const bool has_bars = text.starts_with("<|") && text.substr(0, tag.size).ends_with("|>");
  return has_bars || tag.closing ? found : FoundMark{};
}

// Finds a mark at the beginning of text. At least one bar is required, because other text contains
// tags.
FoundMark harmony_mark_at(std::string_view text) {
  if (!text.starts_with('<')) return {};
  const LooseTag tag = read_loose_tag(text);
  const bool before = text.starts_with("<|");
  if (tag.match == Match::kMore) {
    const bool may_be_mark =
        before || tag.word.empty() ||
        std::ranges::any_of(kMarkWords, [&](auto word) { return word.starts_with(tag.word); });
    return {.match = may_be_mark ? Match::kMore : Match::kNo};
  }
  if (tag.match != Match::kYes || tag.closing) return {};
  if (!tag.closed) {  // the next mark follows directly
    constexpr std::string_view kNext = "<|";
    const auto word = std::ranges::find(kMarkWords, tag.word);
    const std::string_view behind = text.substr(tag.size);
    if (!before || word == std::end(kMarkWords) || behind.empty()) return {};
    const Match next = behind.starts_with(kNext)   ? Match::kYes
                       : kNext.starts_with(behind) ? Match::kMore
                                                   : Match::kNo;
    const auto mark = static_cast<HarmonyMark>(word - std::begin(kMarkWords));
    return {.match = next, .size = tag.size, .mark = mark};
  }
  const bool after = text.substr(0, tag.size).ends_with("|>");
  const auto meant = meant_word(tag.word, kMarkWords);
  if (!meant || (!before && !after)) return {};
  if (kMarkWords[*meant] != tag.word && !(before && after)) return {};
  return {.match = Match::kYes, .size = tag.size, .mark = static_cast<HarmonyMark>(*meant)};
}

// Finds a mark where a header begins. It may also lack its bars, its first bracket or its last one,
// if words that only such a header has follow it.
FoundMark header_begin_at(std::string_view text) {
  constexpr std::string_view kChannelWords[] = {"analysis<|", "analysis to=", "commentary<|",
                                                "commentary to=", "final<|"};
  constexpr std::string_view kRoleWords[] = {"assistant<|", "assistant to="};
  const bool has_bracket = text.starts_with('<');
  if (!has_bracket && !text.starts_with('|') && !text.starts_with('s') && !text.starts_with('c')) {
    return {};
  }
  const LooseTag tag = has_bracket ? read_loose_tag(text, kMarkWords) : read_bare_tag(text);
  const bool is_start = tag.word == "start";
  if (tag.match == Match::kMore) {
    const bool may_be = std::string_view("start").starts_with(tag.word) ||
                        std::string_view("channel").starts_with(tag.word);
    return {.match = may_be ? Match::kMore : Match::kNo};
  }
  const bool is_mark =
      tag.match == Match::kYes && !tag.closing && (is_start || tag.word == "channel");
  if (!is_mark || !(tag.closed || tag.is_cut)) return {};
  std::string_view words = text.substr(tag.size);
  words.remove_prefix(space_size(words.substr(0, 2)));
  std::string_view ignored;
  const Match follows = is_start ? begins_with(words, kRoleWords, &ignored)
                                 : begins_with(words, kChannelWords, &ignored);
  return {.match = follows,
          .size = tag.size,
          .mark = is_start ? HarmonyMark::kStart : HarmonyMark::kChannel};
}

// Finds a mark after a message that lacks its bars or its first bracket: "<call>", "|end|>". A mark
// that has the bracket may also follow text, if a header comes after it; with `in_text` only such
// marks count.
FoundMark message_end_at(std::string_view text, bool in_text) {
  constexpr std::string_view kNext = "<|start|>";
  constexpr std::string_view kEndWords[] = {"end", "return", "call"};
  if (text.empty() || std::string_view(in_text ? "<" : "<|erc").find(text.front()) == text.npos) {
    return {};
  }
  const LooseTag tag = text.starts_with('<') ? read_loose_tag(text) : read_bare_tag(text);
  const bool is_whole = tag.match == Match::kYes;
  const bool may_mean = std::ranges::any_of(kEndWords, [&](std::string_view word) {
    return is_whole ? word == tag.word : word.starts_with(tag.word);
  });
  if (!may_mean || tag.closing || tag.match == Match::kNo || (is_whole && !tag.closed)) return {};
  FoundMark found{.match = tag.match, .size = tag.size, .mark = HarmonyMark::kEnd};
  if (is_whole && in_text) {
    const std::string_view behind = text.substr(tag.size);
    found.match = behind.starts_with(kNext)   ? Match::kYes
                  : kNext.starts_with(behind) ? Match::kMore
                                              : Match::kNo;
  }
  return found;
}

bool is_one_of(std::string_view word, std::span<const std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

bool may_become_one_of(std::string_view word, std::span<const std::string_view> words) {
  return std::ranges::any_of(words, [word](auto one) { return one.starts_with(word); });
}

}  // namespace

HarmonyParser::HarmonyParser(AnswerParserOptions options)
    : options_(std::move(options)), names_(options_.tools) {}

bool HarmonyParser::takes_name(std::string_view tool) {
  return !tool.empty() && tool != "assistant" && tool.size() <= kMaxRecipientBytes &&
         tool.find_first_of(kWordEnds) == std::string_view::npos;
}

AnswerParser::Part HarmonyParser::part() const {
  switch (state_) {
    case State::kFirstHeader:
      return Part::kUndecided;
    case State::kReasoning:
      return Part::kReasoning;
    case State::kHeader:
    case State::kContent:
    case State::kCall:
    case State::kAfterCall:
      break;
  }
  return Part::kContent;
}

bool HarmonyParser::reads_calls() const {
  return options_.tool_calls == ToolCallFormat::kHarmony && options_.tools != nullptr &&
         !options_.tools->empty();
}

void HarmonyParser::push(std::string_view text, AnswerDeltas& out) {
  unread_.append(text);
  run(TextEnd::kNone, out);
}

void HarmonyParser::finish(TextEnd end, AnswerDeltas& out) {
  run(end, out);
  if (state_ != State::kCall) return;
  if (end == TextEnd::kStopped && !arguments_begun_ &&
      space_size(unread_.text()) == unread_.text().size()) {
    if (!dropped()) add_arguments(num_calls_ - 1, "{}", out);
    end_call(/*complete=*/true, out);
    return;
  }
  std::string json;
  const bool complete = end == TextEnd::kStopped && arguments_begun_ && arguments_.finish(json);
  if (!dropped()) add_arguments(num_calls_ - 1, json, out);
  if (options_.keep_call_text) call_text_ += unread_.text();
  end_call(complete, out, /*cut=*/!complete);
}

void HarmonyParser::run(TextEnd end, AnswerDeltas& out) {
  if (end == TextEnd::kNone && patience_.waits(unread_.text().size())) return;
  unread_.read(state_, [&](std::string_view text) { return step(text, end, out); });
  patience_.hold(unread_.text().size());
}

size_t HarmonyParser::step(std::string_view text, TextEnd end, AnswerDeltas& out) {
  switch (state_) {
    case State::kFirstHeader:
    case State::kHeader:
      return take_header(text, end, out);
    case State::kReasoning:
    case State::kContent:
      return read_body(text, end, out);
    case State::kAfterCall:
      return read_after_call(text, end);
    case State::kCall:
      return read_call(text, end, out);
  }
  return 0;
}

// Reads a recipient whose "to=" is missing or contains blanks. Text that only a header or a call
// has must follow it.
HarmonyParser::Recipient HarmonyParser::read_loose_recipient(std::string_view text,
                                                             TextEnd end) const {
  constexpr std::string_view kPrefix = "functions.";
  const auto starved = [end](bool is_sure) {
    if (end == TextEnd::kNone) return Match::kMore;
    return end == TextEnd::kStopped && is_sure ? Match::kYes : Match::kNo;
  };
  size_t place = 0;
  const auto skip_space = [&] { place += space_size(text.substr(place)); };
  if (text == "t" || text == "to") return {.match = starved(false)};
  if (text.starts_with("to ") || text.starts_with("to:")) {
    place = 2;
    skip_space();
    if (text.substr(place).starts_with('=') || text.substr(place).starts_with(':')) ++place;
    skip_space();
    if (place == text.size()) return {.match = starved(false)};
  }
  const std::string_view rest = text.substr(place);
  const size_t size = std::min(rest.find_first_of(kWordEnds), rest.size());
  count_searched(size);
  Recipient recipient{.match = Match::kNo, .size = 0, .name = rest.substr(0, size)};
  if (size == 0 || size > kMaxRecipientBytes) return recipient;
  const bool is_function = recipient.name.starts_with(kPrefix) && size > kPrefix.size();
  place += size;
  recipient.size = place;
  if (place == text.size() && !is_function) {
    std::string_view ignored;
    const bool may_be_name = kPrefix.starts_with(recipient.name) ||
                             names_.begins_with_name(recipient.name, ignored) == Match::kMore;
    recipient.match = may_be_name ? starved(false) : Match::kNo;
    return recipient;
  }
  if (!is_function && !names_.has(recipient.name)) return recipient;
  skip_space();
  if (place == text.size()) {
    recipient.match = starved(is_function);
    return recipient;
  }
  const std::string_view behind = text.substr(place);
  const FoundMark mark = harmony_mark_at(behind);
  if (mark.match == Match::kMore) {
    recipient.match = starved(false);
  } else if (mark.match == Match::kYes) {
    const bool goes_on = mark.mark == HarmonyMark::kConstrain ||
                         mark.mark == HarmonyMark::kMessage || mark.mark == HarmonyMark::kCall;
    recipient.match = goes_on || is_function ? Match::kYes : Match::kNo;
  } else if (behind.starts_with('{')) {
    recipient.match = Match::kYes;
  } else {
    const size_t word = std::min(behind.find_first_of(kWordEnds), behind.size());
    const bool is_type = is_one_of(behind.substr(0, word), kTypes);
    recipient.match = is_type ? Match::kYes : Match::kNo;
    if (word == behind.size() && may_become_one_of(behind, kTypes)) {
      recipient.match = starved(is_type && is_function);
    }
  }
  return recipient;
}

// Reads the marks at the beginning and the words between them. The message mark ends a header. If
// it is missing, the first unknown word after a channel ends the header, or after a recipient the
// next message's mark.
HarmonyParser::Header HarmonyParser::read_header(std::string_view text, TextEnd end) const {
  Header header;
  const std::string_view seen = text.substr(0, kMaxHarmonyHeaderBytes);
  const bool is_long = text.size() >= kMaxHarmonyHeaderBytes;
  const Match starved = is_long ? Match::kNo : Match::kMore;
  const bool is_loose = !options_.is_held_to_form;
  bool behind_channel_mark = false;
  bool has_channel = false;
  bool has_words = false;
  while (true) {
    const size_t space = space_size(seen.substr(header.size));
    const size_t place = header.size + space;
    const std::string_view rest = seen.substr(place);
    if (rest.empty()) {
      const bool is_whole = end == TextEnd::kStopped && !header.recipient.empty() && is_loose;
      header.match = is_whole ? Match::kYes : starved;
      return header;
    }
    FoundMark mark = harmony_mark_at(rest);
    const bool in_header = has_channel || !header.recipient.empty();
    if (mark.match == Match::kNo && is_loose) {
      if (in_header) {
        mark = header_mark_at(rest);
      } else if (!has_words) {
        mark = header_begin_at(rest);
      }
    }
    if (mark.match == Match::kMore) {
      header.match = starved;
      return header;
    }
    if (mark.match == Match::kYes) {
      header.has_marks = true;
      const bool begins_next =
          mark.mark == HarmonyMark::kStart || (mark.mark == HarmonyMark::kChannel && has_channel);
      if (is_loose && !header.recipient.empty() &&
          (begins_next || mark.mark >= HarmonyMark::kEnd)) {
        header.match = Match::kYes;
        return header;
      }
      header.size = place + mark.size;
      const bool may_double = is_loose && in_header && mark.mark != HarmonyMark::kMessage;
      if (may_double && seen.substr(header.size).starts_with('>')) ++header.size;
      behind_channel_mark = mark.mark == HarmonyMark::kChannel;
      if (mark.mark == HarmonyMark::kStart || behind_channel_mark ||
          mark.mark == HarmonyMark::kConstrain) {
        continue;
      }
      header.match = Match::kYes;
      header.is_empty = mark.mark != HarmonyMark::kMessage;
      if (header.is_empty) return header;
      // the same mark may follow once more
      const FoundMark again = harmony_mark_at(seen.substr(header.size));
      if (again.match == Match::kMore && end == TextEnd::kNone) header.match = starved;
      if (again.match == Match::kYes && again.mark == HarmonyMark::kMessage) {
        header.size += again.size;
      }
      return header;
    }
    const bool may_lack_to = is_loose && header.recipient.empty() &&
                             (header.channel == "commentary" || behind_channel_mark);
    if (may_lack_to) {
      const Recipient recipient = read_loose_recipient(rest, is_long ? TextEnd::kCut : end);
      if (recipient.match == Match::kMore) {
        header.match = starved;
        return header;
      }
      if (recipient.match == Match::kYes) {
        header.recipient = recipient.name;
        header.size = place + recipient.size;
        has_words = true;
        behind_channel_mark = false;
        continue;
      }
    }
    const size_t size = std::min(rest.find_first_of(kWordEnds), rest.size());
    count_searched(size);
    const std::string_view word = rest.substr(0, size);
    const bool is_recipient = word.starts_with("to=");
    const bool is_cut = size == rest.size();
    const auto says = [&](std::span<const std::string_view> words) {
      return is_cut ? may_become_one_of(word, words) : is_one_of(word, words);
    };
    const bool is_header_word = is_recipient ||
                                (is_cut && std::string_view("to=").starts_with(word)) ||
                                says(kRoles) || says(kChannels) || (has_words && says(kTypes));
    const bool is_name = behind_channel_mark && !is_recipient;
    const size_t most = is_recipient ? kMaxRecipientBytes : kMaxHeaderWord;
    if ((!is_header_word && !is_name) || size > most) {
      // The message begins here, or there is no header.
      header.match = has_channel || !header.recipient.empty() ? Match::kYes : Match::kNo;
      if (!header.has_marks) header.match = Match::kNo;
      return header;
    }
    const bool may_be_last =
        is_recipient ? size > 3 : !header.recipient.empty() && is_one_of(word, kTypes);
    if (is_cut && !(may_be_last && end == TextEnd::kStopped && is_loose)) {
      header.match = starved;
      return header;
    }
    has_words = true;
    behind_channel_mark = false;
    header.size = place + size;
    if (is_recipient) {
      header.recipient = word.substr(3);
    } else if (is_name || is_one_of(word, kChannels)) {
      const auto meant = meant_word(bare_word(word), kChannels);
      header.channel = meant ? kChannels[*meant] : word;
      has_channel = true;
    }
  }
}

size_t HarmonyParser::take_header(std::string_view text, TextEnd end, AnswerDeltas& out) {
  if (text.empty()) return 0;
  // A doubled bracket of the preceding mark.
  if (state_ == State::kHeader && text.front() == '>' && !options_.is_held_to_form) return 1;
  const Header header = read_header(text, end);
  if (header.match == Match::kMore) {
    if (end == TextEnd::kNone) return 0;
    // A header contains no text: if the answer's end truncates it, its marks are dropped.
    const std::string_view words = text.substr(space_size(text));
    const bool is_blank = words.empty() && state_ == State::kHeader;
    if (header.has_marks || words.starts_with('<') || is_blank) return text.size();
  }
  if (header.match != Match::kYes) {
    state_ = State::kContent;
    return header.has_marks ? header.size : 0;
  }
  if (header.is_empty) return header.size;
  call_text_ = options_.keep_call_text ? text.substr(0, header.size) : "";
  begin_message(header, out);
  // The blank before a message whose mark is missing belongs to the header.
  const bool is_marked = text.substr(0, header.size).ends_with('>');
  return header.size + (is_marked ? 0 : space_size(text.substr(header.size)));
}

void HarmonyParser::begin_message(const Header& header, AnswerDeltas& out) {
  std::string_view recipient = header.recipient;
  if (recipient.starts_with("functions.")) recipient.remove_prefix(10);
  if (!recipient.empty() && !is_one_of(recipient, kRoles) && reads_calls()) {
    begin_call(names_.resolve(recipient), out);
  } else {
    state_ = header.channel == "analysis" ? State::kReasoning : State::kContent;
    message_begins_ = true;
  }
}

void HarmonyParser::begin_call(const std::string& name, AnswerDeltas& out) {
  const size_t index = num_calls_++;
  if (!dropped()) {
    out.emplace_back(ToolCallBegin{
        index, make_call_id(ToolCallFormat::kHarmony, options_.id_seed, name, index), name});
  }
  tool_ = name;
  arguments_begun_ = false;
  state_ = State::kCall;
}

JsonScanner HarmonyParser::argument_scanner() const {
  if (options_.is_held_to_form) return JsonScanner::of_json();
  return JsonScanner(names_.key_reader(tool_), names_.number_reader(tool_));
}

size_t HarmonyParser::read_body(std::string_view text, TextEnd end, AnswerDeltas& out) {
  const size_t place = std::min(text.find('<'), text.size());
  count_searched(place);
  if (place > 0) {
    emit(text.substr(0, place), out);
    return place;
  }
  if (text.empty()) return 0;
  FoundMark mark = harmony_mark_at(text);
  if (mark.match == Match::kNo && !options_.is_held_to_form) {
    mark = message_end_at(text, /*in_text=*/true);
    if (mark.match == Match::kMore && end != TextEnd::kNone) mark = {};
  }
  if (mark.match == Match::kMore) {
    if (end == TextEnd::kNone) return 0;
    const bool is_begun = text.starts_with("<|");
    if (is_begun && text.size() > 3) return text.size();
    if (end == TextEnd::kCut && (is_begun || text.size() == 1)) return text.size();
  }
  if (mark.match != Match::kYes) {
    emit(text.substr(0, 1), out);
    return 1;
  }
  if (mark.mark == HarmonyMark::kMessage || mark.mark == HarmonyMark::kConstrain) {
    return mark.size;  // the mark has no meaning here
  }
  state_ = State::kHeader;
  return mark.mark == HarmonyMark::kStart || mark.mark == HarmonyMark::kChannel ? 0 : mark.size;
}

void HarmonyParser::emit(std::string_view text, AnswerDeltas& out) {
  const bool is_reasoning = state_ == State::kReasoning && options_.separate_reasoning;
  char& last = is_reasoning ? last_reasoning_ : last_content_;
  const auto add = is_reasoning ? add_reasoning : add_content;
  const bool separates = std::exchange(message_begins_, false) && last != '\n';
  if (separates && text.front() != '\n') add("\n\n", out);
  add(text, out);
  last = text.back();
}

size_t HarmonyParser::read_call(std::string_view text, TextEnd end, AnswerDeltas& out) {
  size_t used = 0;
  std::string json;
  const auto pass = [&](size_t size) {
    if (options_.keep_call_text) call_text_ += text.substr(0, size);
    return size;
  };
  if (!arguments_begun_) {
    used = space_size(text);
    if (used == text.size()) return pass(used);
    // a doubled bracket of a mark
    if (text[used] == '>' && !options_.is_held_to_form) return pass(used + 1);
    FoundMark mark = harmony_mark_at(text.substr(used));
    if (mark.match == Match::kNo && !options_.is_held_to_form) {
      mark = header_mark_at(text.substr(used));
    }
    if (mark.match == Match::kMore && end == TextEnd::kNone) return pass(used);
    arguments_begun_ = mark.match == Match::kNo;
    if (mark.match == Match::kYes &&
        (mark.mark == HarmonyMark::kMessage || mark.mark == HarmonyMark::kConstrain)) {
      return pass(used + mark.size);
    }
    if (mark.match == Match::kYes) {  // the call has no arguments
      if (!dropped()) add_arguments(num_calls_ - 1, "{}", out);
      end_call(/*complete=*/true, out);
      return used;
    }
    if (!arguments_begun_) return pass(used);
    const std::string_view rest = text.substr(used);
    if (rest.starts_with('[') && !options_.is_held_to_form) {
      CallCursor cursor(rest);
      std::vector<std::string> objects;
      if (cursor.read_listed_objects(objects)) {
        for (size_t i = 0; i < objects.size(); ++i) {
          if (i > 0) begin_call(tool_, out);
          json = object_in_text(objects[i], argument_scanner()).value_or("{}");
          if (!dropped()) add_arguments(num_calls_ - 1, json, out);
          end_call(/*complete=*/true, out);
        }
        return used + cursor.position();
      }
      arguments_begun_ = end != TextEnd::kNone || cursor.failure().match != Match::kMore;
      if (!arguments_begun_) return pass(used);
    }
    arguments_ = JsonArguments({}, rest, argument_scanner());
  }
  size_t scanned = 0;
  const Progress progress = arguments_.read(text.substr(used), end, scanned, json);
  used += scanned;
  if (!dropped()) add_arguments(num_calls_ - 1, json, out);
  pass(used);
  if (progress != Progress::kMore) end_call(progress == Progress::kDone, out);
  return used;
}

// Skips white space, unmatched closing brackets and the call's end mark.
size_t HarmonyParser::read_after_call(std::string_view text, TextEnd end) {
  const size_t space = space_size(text);
  if (space > 0 || text.empty()) return space;
  if (text.front() == '}' || text.front() == ']') return 1;
  const FoundMark mark = options_.is_held_to_form || harmony_mark_at(text).match == Match::kYes
                             ? FoundMark{}
                             : message_end_at(text, /*in_text=*/false);
  if (mark.match == Match::kMore && end == TextEnd::kNone) return 0;
  if (mark.match == Match::kYes) {
    state_ = State::kHeader;
    return mark.size;
  }
  state_ = State::kContent;
  return 0;
}

void HarmonyParser::end_call(bool complete, AnswerDeltas& out, bool cut) {
  ToolCallEnd end{.index = num_calls_ - 1, .complete = complete, .text = {}, .cut = cut};
  if (!complete) end.text = std::move(call_text_);
  call_text_.clear();
  if (!dropped()) out.emplace_back(std::move(end));
  state_ = complete ? State::kAfterCall : State::kContent;
}

}  // namespace heddle::parsers
