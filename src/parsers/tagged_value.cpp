// SPDX-License-Identifier: Apache-2.0
#include "parsers/tagged_value.h"

#include <algorithm>
#include <utility>

namespace heddle::parsers {
namespace {

// A character of TagScan::open_tags: an open section.
constexpr char kOpenSection = 's';
constexpr char kOpenCall = 'c';

Match starved_at(TextEnd end) { return end == TextEnd::kNone ? Match::kMore : Match::kNo; }

}  // namespace

void TaggedValueEnd::begin(Value value) {
  value_ = std::move(value);
  scan_ = {};
  last_byte_ = ' ';
}

TaggedValueEnd::Scan TaggedValueEnd::find(std::string_view text, TextEnd end) {
  Scan found{.size = text.size()};
  const auto end_at = [&found](size_t place, size_t size) {
    found = {.size = place, .ends = true, .behind = place + size, .is_closed = size > 0};
  };
  while (!found.ends && scan_.position < text.size()) {
    const size_t from = scan_.position;
    const size_t place = std::min(text.find_first_of(is_exact_ ? "<" : "</", from), text.size());
    count_searched(place - from);
    const std::string_view passed = text.substr(from, place - from);
    scan_.one_line = scan_.one_line && passed.find('\n') == std::string_view::npos;
    scan_.position = place;
    if (scan_.doubt && place - scan_.doubt->position > kMaxDoubtBytes) scan_.doubt.reset();
    if (place == text.size()) break;
    const char before = place == 0 ? last_byte_ : text[place - 1];
    const std::string_view rest = text.substr(place);
    TagEnd ends = is_exact_             ? read_exact_end(rest)
                  : rest.front() == '/' ? read_bare_end(rest, before, end)
                                        : decide_tag(rest, before == '\n', end);
    if (ends.match == Match::kNo) ends.size = std::max<size_t>(ends.size, 1);
    if (ends.match == Match::kYes) {
      end_at(place, ends.size);
    } else if (ends.match == Match::kNo) {
      scan_.position = place + ends.size;
      const std::string_view tag = text.substr(place, ends.size);
      scan_.one_line = scan_.one_line && tag.find('\n') == std::string_view::npos;
    } else {
      found.size = place;
      break;
    }
  }
  if (!found.ends && scan_.doubt && end == TextEnd::kStopped) {
    end_at(scan_.doubt->position, scan_.doubt->size);
    doubts_end_ = true;
  } else if (!found.ends && scan_.doubt && end == TextEnd::kNone) {
    found.size = scan_.doubt->position;
  }
  if (!found.ends && end == TextEnd::kStopped && found.size == text.size()) end_at(found.size, 0);
  // A line break before a possible end is held back until the end is decided.
  if (!found.ends && found.size > 0 && text[found.size - 1] == '\n') --found.size;
  if (!found.ends && found.size > 0 && text[found.size - 1] == '\r') --found.size;
  return found;
}

void TaggedValueEnd::pass(size_t used, std::string_view piece) {
  if (!piece.empty()) last_byte_ = piece.back();
  scan_.position -= std::min(used, scan_.position);
  if (scan_.doubt && scan_.doubt->position < used) scan_.doubt.reset();
  if (scan_.doubt) scan_.doubt->position -= used;
}

// The end in an answer that is constrained to the format: the exact closing tag and the exact text
// after it.
TaggedValueEnd::TagEnd TaggedValueEnd::read_exact_end(std::string_view text) const {
  std::string_view found;
  const Match match = begins_with(text, tags_.format().value_ends, &found);
  if (match != Match::kYes) return {.match = match};
  const std::string_view behind = text.substr(found.size());
  const size_t space = space_size(behind.substr(0, kMaxSpaceBetweenTags + 1));
  if (space > kMaxSpaceBetweenTags) return {};
  return {.match = tags_.begins_next_tag(behind.substr(space)), .size = found.size()};
}

// Finds a value's closing tag without its first bracket: "/parameter>". Text that can only follow a
// closing tag of this format must follow it.
TaggedValueEnd::TagEnd TaggedValueEnd::read_bare_end(std::string_view text, char before,
                                                     TextEnd end) const {
  if (before == '<' || before == '\\' || !scan_.open_tags.empty()) return {};
  for (const std::string_view tag : tags_.format().value_ends) {
    const std::string_view bare = tag.substr(1);
    if (bare.starts_with(text) && text.size() < bare.size()) return {.match = starved_at(end)};
    if (!text.starts_with(bare)) continue;
    const std::string_view behind = text.substr(bare.size());
    const size_t space = space_size(behind.substr(0, kMaxSpaceBetweenTags));
    const std::string_view rest = behind.substr(space);
    const Match next = tags_.begins_next_tag(rest);
    const bool ends_all = rest.empty() && end == TextEnd::kStopped;
    return {.match = ends_all               ? Match::kYes
                     : next == Match::kMore ? starved_at(end)
                                            : next,
            .size = bare.size()};
  }
  return {};
}

// Finds a closing tag that has the parameter's name, "</city>". The value may contain such a tag:
// it ends there only if the next parameter or the end of the call follows.
TaggedValueEnd::TagEnd TaggedValueEnd::read_named_end(std::string_view text, TextEnd end) const {
  const TagEnd passed{.match = Match::kNo, .size = 1};
  if (tags_.format().has_keys || !scan_.open_tags.empty()) return passed;
  const std::string tag = "</" + value_.name + ">";
  const bool is_whole = text.starts_with(tag);
  if (!is_whole && !tag.starts_with(text)) return passed;
  const std::string_view behind = text.substr(std::min(tag.size(), text.size()));
  const size_t space = space_size(behind.substr(0, kMaxSpaceBetweenTags + 1));
  const std::string_view rest = behind.substr(space);
  const CallTag next = tags_.read(rest);
  if (rest.empty() || next.match == Match::kMore) {
    if (end != TextEnd::kStopped) return {.match = Match::kMore};
    return is_whole ? TagEnd{.match = Match::kYes, .size = tag.size()} : passed;
  }
  if (next.match != Match::kYes || space > kMaxSpaceBetweenTags) return passed;
  if (next.closing) {
    if (next.kind != TagKind::kCall && next.kind != TagKind::kSection) return passed;
    // An answer that was cut here most likely ended the call.
    const Match ended = ends_call(rest.substr(next.size), next.kind == TagKind::kSection,
                                  end == TextEnd::kNone ? TextEnd::kNone : TextEnd::kStopped);
    return ended == Match::kNo ? passed : TagEnd{.match = ended, .size = tag.size()};
  }
  const bool ends =
      next.kind == TagKind::kParameter && next.is_exact &&
      names_.has_parameter(value_.tool, names_.resolve_parameter(value_.tool, next.name));
  return ends ? TagEnd{.match = Match::kYes, .size = tag.size()} : passed;
}

// Whether a call has ended before `text`, which follows one of the call's closing tags (all of them
// if `closed`). It has if another call begins, if nothing follows, or if the last closing tag and
// nothing else follows. In an answer that was cut, the value might have continued.
Match TaggedValueEnd::ends_call(std::string_view text, bool closed, TextEnd end) const {
  const size_t space = space_size(text.substr(0, kMaxSpaceBetweenTags + 1));
  if (space > kMaxSpaceBetweenTags) return Match::kNo;
  const std::string_view rest = text.substr(space);
  const CallTag tag = tags_.read(rest);
  if (rest.empty() || tag.match == Match::kMore) {
    if (end == TextEnd::kNone) return Match::kMore;
    return end == TextEnd::kStopped ? Match::kYes : Match::kNo;
  }
  if (tag.match == Match::kNo) return Match::kNo;
  if (tag.kind != TagKind::kSection && tag.kind != TagKind::kCall) return Match::kNo;
  if (!tag.closing) return Match::kYes;
  return closed ? Match::kNo : ends_call(rest.substr(tag.size), true, end);
}

TaggedValueEnd::TagEnd TaggedValueEnd::value_ends_at(const CallTag& tag, std::string_view text,
                                                     bool line_begins, bool one_line,
                                                     TextEnd end) const {
  const bool is_glm = tags_.format().has_keys;
  const TagKind value = tags_.value_kind();
  const bool is_own = tag.closing ? tag.kind == value || (is_glm && tag.kind == TagKind::kParameter)
                                  : is_glm && tag.kind == value;  // a closing tag without its slash
  size_t size = tag.size;
  std::string_view rest = text.substr(tag.size);
  if (is_own) {
    if (rest.starts_with('>')) {  // a doubled closing bracket
      rest.remove_prefix(1);
      ++size;
    }
    for (int count = 0; count <= kMaxTagRepeats; ++count) {
      const size_t space = space_size(rest.substr(0, kMaxSpaceBetweenTags + 1));
      if (space > kMaxSpaceBetweenTags) return {};
      rest.remove_prefix(space);
      // If spelt exactly, the next tag is certain before its name has arrived.
      if (tags_.begins_next_tag(rest) == Match::kYes) {
        return {.match = Match::kYes, .size = size};
      }
      const CallTag next = tags_.read(rest, /*may_be_cut=*/true);
      if (next.match == Match::kYes && next.is_cut && !is_glm && !next.closing &&
          !names_.has_parameter(value_.tool, names_.resolve_parameter(value_.tool, next.name))) {
        return {.size = size};
      }
      const bool is_more = rest.empty() || next.match == Match::kMore;
      if (is_more && end == TextEnd::kNone) return {.match = Match::kMore};
      if (is_more) return {.match = Match::kYes, .size = size};
      // the value's closing tag is doubled
      if (next.match == Match::kYes && next.closing && next.kind == value) {
        rest.remove_prefix(next.size);
        continue;
      }
      if (next.match == Match::kYes && is_glm && next.kind == value && !next.closing) {
        // The next value, without its key.
        const ParameterOpening opening =
            tags_.read_unopened(rest.substr(next.size), value_.tool, *value_.parameters);
        const bool is_starved = opening.match == Match::kMore && end != TextEnd::kNone;
        return {.match = is_starved ? Match::kNo : opening.match, .size = size};
      }
      if (next.match == Match::kYes) {
        const bool goes_on = next.kind != TagKind::kParameter || is_glm || !next.name.empty();
        return {.match = goes_on && next.kind != TagKind::kValue ? Match::kYes : Match::kNo,
                .size = size};
      }
      const CallTag bare = tags_.read_bare(rest);
      if (bare.match == Match::kMore && end == TextEnd::kNone) return {.match = Match::kMore};
      const bool is_bare_next =
          bare.match == Match::kYes &&
          (bare.closing ? bare.kind != value
                        : !is_glm && names_.has_parameter(value_.tool, bare.name));
      if (is_bare_next) return {.match = Match::kYes, .size = size};
      if (!is_glm) {
        const ParameterOpening next_value =
            tags_.read_unopened(rest, value_.tool, *value_.parameters);
        const bool is_starved = next_value.match == Match::kMore && end != TextEnd::kNone;
        return {.match = is_starved ? Match::kNo : next_value.match, .size = size};
      }
      const ParameterOpening opening =
          tags_.read_opening(rest, value_.tool);  // the next parameter, without its first tag
      if (opening.match == Match::kMore && end == TextEnd::kNone) return {.match = Match::kMore};
      return {.match = opening.match == Match::kYes ? Match::kYes : Match::kNo, .size = size};
    }
    return {};
  }
  const bool begins = line_begins || one_line;
  if (tag.kind == TagKind::kParameter && !tag.closing) {
    std::string name = tag.name;
    if (is_glm) {
      const ParameterOpening opening = tags_.read_opening(text, value_.tool);
      if (opening.match == Match::kMore && end == TextEnd::kNone) return {.match = Match::kMore};
      if (opening.match != Match::kYes) return {};
      name = opening.name;
    }
    name = names_.resolve_parameter(value_.tool, name);
    const bool is_next = (begins || is_glm) && tag.is_exact &&
                         names_.has_parameter(value_.tool, name) &&
                         !value_.parameters->contains(name);
    return {.match = is_next ? Match::kYes : Match::kNo};
  }
  const bool is_call = tag.kind == TagKind::kCall || tag.kind == TagKind::kSection;
  if (!is_call || !tag.closing) return {};
  const Match match = ends_call(rest, is_glm || tag.kind == TagKind::kSection, end);
  if (match != Match::kNo) return {.match = match};
  const bool line_ends = rest.empty() || rest.front() == '\n' || rest.front() == '\r';
  const bool may_end = begins && tag.is_exact && line_ends;
  return {.match = may_end ? Match::kYes : Match::kNo, .in_doubt = true};
}

// The header of a call that is quoted in a value. A mark without a header that is directly followed
// by the value's own closing tag is not a call.
CallHeader TaggedValueEnd::read_inner_header(const CallTag& tag, std::string_view text,
                                             TextEnd end) const {
  const bool is_call = tag.kind == TagKind::kCall || tag.kind == TagKind::kSection;
  if (!is_call || tag.closing || !tag.is_exact) return {};
  CallHeader header = tags_.read_header(text, /*has_marker=*/true, /*is_exact=*/true,
                                        /*at_end=*/end == TextEnd::kStopped);
  if (header.match != Match::kYes) return header;
  const std::string_view rest = text.substr(header.size);
  const CallTag next = tags_.read(rest.substr(space_size(rest.substr(0, kMaxSpaceBetweenTags))));
  if (next.match == Match::kMore && end == TextEnd::kNone) return {.match = Match::kMore};
  if (next.match == Match::kYes && next.closing && next.kind == tags_.value_kind()) return {};
  return header;
}

// Records the tag at the current position as an uncertain end; only the first one is kept.
void TaggedValueEnd::doubt(const TagEnd& end) {
  if (!scan_.doubt) scan_.doubt = Doubt{.position = scan_.position, .size = end.size};
}

// Closes the quoted calls that a closing tag of this kind ends.
void TaggedValueEnd::close_inner_call(TagKind kind) {
  std::string& open = scan_.open_tags;
  size_t left = open.size() - (open.back() == kOpenCall ? 1 : 0);
  if (kind == TagKind::kSection) {
    const size_t section = open.rfind(kOpenSection);
    left = section == std::string::npos ? 0 : section;
  }
  scan_.num_open_calls -= std::ranges::count(std::string_view(open).substr(left), kOpenCall);
  open.resize(left);
}

// Decides the tag at the beginning of `text`. kYes: the value ends there. kNo: the tag is part of
// the value, and `size` bytes of it are skipped.
TaggedValueEnd::TagEnd TaggedValueEnd::decide_tag(std::string_view text, bool line_begins,
                                                  TextEnd end) {
  const TagEnd passed{.match = Match::kNo, .size = 1};
  const CallTag tag = tags_.read(text);
  if (tag.match == Match::kMore && end == TextEnd::kStopped) {
    // The text ends after the beginning of a closing tag.
    const bool ends = tag.closing || text.size() == 1;
    return ends ? TagEnd{.match = Match::kYes, .size = text.size()} : passed;
  }
  if (tag.match == Match::kMore) return {.match = Match::kMore};
  if (tag.match == Match::kNo) return read_named_end(text, end);
  const CallHeader inner = read_inner_header(tag, text, end);
  if (inner.match == Match::kMore) {
    return {.match = end == TextEnd::kNone ? Match::kMore : Match::kNo, .size = 1};
  }
  if (inner.match == Match::kYes) {
    const bool begins = (line_begins || scan_.one_line) && names_.has(inner.name);
    if (begins && (!value_.may_hold_call || doubts_end_)) return {.match = Match::kYes};
    if (begins && scan_.open_tags.empty()) doubt({.match = Match::kYes});
    if (tag.kind == TagKind::kSection) scan_.open_tags += kOpenSection;
    scan_.open_tags += kOpenCall;
    ++scan_.num_open_calls;
    return {.match = Match::kNo, .size = inner.size};
  }
  const TagEnd found = value_ends_at(tag, text, line_begins, scan_.one_line, end);
  if (found.match == Match::kMore) return found;
  const bool is_end_of_call =
      tag.closing && (tag.kind == TagKind::kCall || tag.kind == TagKind::kSection);
  const bool is_inner = is_end_of_call ? !scan_.open_tags.empty() : scan_.num_open_calls > 0;
  const bool is_sure = doubts_end_ || (!is_inner && !found.in_doubt);
  if (found.match == Match::kYes && is_sure) return found;
  if (found.match == Match::kYes) doubt(found);
  if (is_inner && is_end_of_call) close_inner_call(tag.kind);
  return passed;
}

}  // namespace heddle::parsers
