// SPDX-License-Identifier: Apache-2.0
#include "parsers/call_tags.h"

#include <algorithm>
#include <utility>

namespace heddle::parsers {
namespace {

constexpr size_t kMaxAttributeBytes = kMaxNameBytes + 64;
constexpr size_t kMaxUnopenedValue = 4096;  // most bytes examined for a value without an opening
                                            // tag

std::string_view trimmed_of(std::string_view text, std::string_view what) {
  const size_t begin = text.find_first_not_of(what);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(what) - begin + 1);
}

// The value of an attribute, with or without quotes; none if the attribute is absent.
std::optional<std::string_view> attribute(std::string_view attributes, std::string_view name) {
  size_t place = attributes.find(name);
  if (place == std::string_view::npos) return std::nullopt;
  std::string_view value = attributes.substr(place + name.size());
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  const bool is_quoted = !value.empty() && (value.front() == '"' || value.front() == '\'') &&
                         value.find(value.front(), 1) != std::string_view::npos;
  if (!value.starts_with('=') && !is_quoted) return std::nullopt;
  if (!is_quoted) value.remove_prefix(1);
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  if (value.starts_with('"') || value.starts_with('\'')) {
    return value.substr(1, std::min(value.find(value.front(), 1), value.size()) - 1);
  }
  return value.substr(0, std::min(value.find_first_of(" \t/"), value.size()));
}

// The value of the first attribute other than those that state a type: <parameter key="city"
// string="true">.
std::optional<std::string_view> other_attribute(std::string_view attributes) {
  while (true) {
    attributes.remove_prefix(std::min(attributes.find_first_not_of(" \t"), attributes.size()));
    const std::string_view word = attributes.substr(0, attributes.find_first_of(" \t=:\"'"));
    if (word.empty()) return std::nullopt;
    const auto value = attribute(attributes, word);
    if (!value) return std::nullopt;
    if (word != "string" && word != "type" && word != "id") return value;
    const auto end = static_cast<size_t>(value->data() + value->size() - attributes.data());
    attributes.remove_prefix(std::min(end + 1, attributes.size()));
  }
}

// A header of `size` bytes, followed by `rest`: a JSON object may replace the parameters.
CallHeader header_before(std::string_view rest, size_t size, std::string name) {
  const size_t space = space_size(rest.substr(0, kMaxSpaceBetweenTags));
  const bool is_json = rest.substr(space).starts_with('{');
  return {.match = Match::kYes,
          .size = size + (is_json ? space : 0),
          .name = std::move(name),
          .kind = is_json ? ArgumentsKind::kJson : ArgumentsKind::kFormat};
}

}  // namespace

bool is_tag_name(std::string_view name) {
  return !name.empty() && name.find_first_of(" \t\n\r<>(") == std::string_view::npos;
}

const TagFormat& tag_format_of(TaggedCallFormat format) {
  static const TagFormat kCoder = {
      .markers = {"<tool_call>", "<function="},
      .opening_words = {"toolcall", "toolcalls", "function", "functioncall", "tools"},
      .strays = {"</tool_call>"},
      .other_ends = {"</function>"},
      .words = {"toolcall", "toolcalls", "function", "func", "parameter", "param"},
      .num_sections = 2,
      .num_calls = 2,
      .num_parameters = 2,
      .value_ends = {"</parameter>"},
      .next_tags = {"<parameter=", "</function>", "</tool_call>"},
      .has_value_lines = true};
  static const TagFormat kGlm = {
      .markers = {"<tool_call>"},
      .opening_words = {"toolcall", "toolcalls", "functioncall", "tools"},
      .strays = {"</tool_call>"},
      .may_be_missing = true,
      .words = {"toolcall", "toolcalls", "argkey", "argname", "argvalue"},
      .num_sections = 0,
      .num_calls = 2,
      .num_parameters = 2,
      .value_ends = {"</arg_value>"},
      .next_tags = {"<arg_key>", "</tool_call>"},
      .has_keys = true};
  static const TagFormat kDsml = {
      .markers = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "<function_calls>",
                  "<｜DSML｜invoke ", "<invoke "},
      .opening_words = {"dsmlfunctioncalls", "dsmltoolcalls", "functioncalls", "dsmlinvoke",
                        "invoke"},
      .strays = {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>", "</｜DSML｜invoke>",
                 "</function_calls>"},
      .other_ends = {"</invoke>"},
      .words = {"dsmlfunctioncalls", "dsmltoolcalls", "functioncalls", "toolcalls", "dsmlinvoke",
                "invoke", "dsmlparameter", "parameter"},
      .num_sections = 4,
      .num_calls = 2,
      .num_parameters = 2,
      .value_ends = {"</｜DSML｜parameter>", "</parameter>"},
      .next_tags = {"<｜DSML｜parameter ", "<parameter ", "</｜DSML｜invoke>", "</invoke>"},
      .call_is_mark = true};
  static const TagFormat kMinimax = {
      .markers = {"<minimax:tool_call>", "<invoke "},
      .opening_words = {"minimaxtoolcall", "minimaxtoolcalls", "toolcall", "toolcalls",
                        "functioncalls", "invoke"},
      .strays = {"</minimax:tool_call>", "</invoke>"},
      .words = {"minimaxtoolcall", "minimaxtoolcalls", "toolcall", "toolcalls", "functioncalls",
                "invoke", "parameter", "param"},
      .num_sections = 5,
      .num_calls = 1,
      .num_parameters = 2,
      .value_ends = {"</parameter>"},
      .next_tags = {"<parameter ", "</invoke>", "</minimax:tool_call>"},
      .call_is_mark = true};
  static const TagFormat kSeed = {
      .markers = {"<seed:tool_call>", "<function="},
      .opening_words = {"seedtoolcall", "toolcall", "toolcalls", "function", "functioncall",
                        "tools"},
      .strays = {"</seed:tool_call>"},
      .other_ends = {"</function>"},
      .words = {"seedtoolcall", "toolcall", "toolcalls", "function", "func", "parameter", "param"},
      .num_sections = 3,
      .num_calls = 2,
      .num_parameters = 2,
      .value_ends = {"</parameter>"},
      .next_tags = {"<parameter=", "</function>", "</seed:tool_call>"}};
  switch (format) {
    case TaggedCallFormat::kQwen3Coder:
      return kCoder;
    case TaggedCallFormat::kGlm:
      return kGlm;
    case TaggedCallFormat::kMinimax:
      return kMinimax;
    case TaggedCallFormat::kSeed:
      return kSeed;
    case TaggedCallFormat::kDeepseekV32:
      break;
  }
  return kDsml;
}

Match CallTags::begins_next_tag(std::string_view text) const {
  std::string_view ignored;
  return begins_with(text, format_.next_tags, &ignored);
}

// Reads the text between a tag's word and its closing bracket: "=f", " name=\"f\"", "=\"f\"", ":
// f".
Match CallTags::read_tag_name(std::string_view text, CallTag& tag) const {
  const std::string_view rest = text.substr(tag.size, kMaxAttributeBytes);
  const size_t size = std::min(rest.find_first_of(">\n<"), rest.size());
  count_searched(size);
  if (size == rest.size()) {
    return rest.size() < kMaxAttributeBytes ? Match::kMore : Match::kNo;
  }
  std::string_view said = rest.substr(0, size);
  if (rest[size] == '<') {  // the closing bracket is missing: the tag ends with the closing quote
    said = said.substr(0, said.find_last_of("\"'") + 1);
    if (said.empty()) said = rest.substr(0, size);
  }
  tag.is_whole = said.ends_with('/');
  const bool breaks_line = rest[size] == '\n';  // a line break precedes the closing bracket
  if (breaks_line && size + 1 == rest.size() && rest.size() < kMaxAttributeBytes) {
    return Match::kMore;
  }
  const bool closes_late = breaks_line && rest.substr(size).starts_with("\n>");
  tag.size += said.size() + (closes_late ? 2 : rest[size] == '>' ? 1 : 0);
  const auto name = attribute(said, "name");
  if (const auto named = name ? name : other_attribute(said)) {
    tag.name = *named;
  } else {
    tag.name = trimmed_of(said, " \t\r=:/\"'");
  }
  if (const auto string = attribute(said, "string")) {
    const std::string word = bare_word(*string);
    if (word == "true" || word == "false") tag.is_string = word == "true";
  }
  return Match::kYes;
}

CallTag CallTags::read(std::string_view text, bool may_be_cut) const {
  if (text.empty()) return {.match = Match::kMore};
  if (text.front() != '<') return {};
  const LooseTag loose = may_be_cut ? read_loose_tag(text, format_.words) : read_loose_tag(text);
  if (loose.match != Match::kYes) return {.match = loose.match, .closing = loose.closing};
  const auto meant = meant_word(loose.word, format_.words);
  if (!meant) return may_be_cut && loose.closed ? read_cut(text, loose) : CallTag{};
  CallTag tag{
      .match = Match::kYes, .closing = loose.closing, .is_cut = loose.is_cut, .size = loose.size};
  tag.is_exact = format_.words[*meant] == loose.word && !loose.is_cut;
  tag.kind = kind_of(*meant);
  if (loose.closed) {
    const bool has_name = tag.kind == TagKind::kCall || tag.kind == TagKind::kParameter;
    const bool lacks_slash = !format_.has_keys && has_name && !tag.closing;
    if (lacks_slash)
      tag.closing = true;  // "<parameter>" closes a parameter, because the opening
                           // tag contains the name
    tag.is_exact = tag.is_exact && !lacks_slash;
    return tag;
  }
  const char behind = text[loose.size];
  const bool has_name = behind == '=' || behind == ' ' || behind == ':' ||
                        (tag.is_cut && text.substr(loose.size).starts_with("name"));
  const bool is_named = !format_.has_keys && tag.kind != TagKind::kSection && has_name;
  if (is_named || (tag.closing && behind != '\n' && behind != '<' && behind != '{')) {
    tag.match = read_tag_name(text, tag);
  }
  return tag;
}

TagKind CallTags::kind_of(size_t word) const {
  const size_t first_parameter = format_.num_sections + format_.num_calls;
  if (word < format_.num_sections) return TagKind::kSection;
  if (word < first_parameter) return TagKind::kCall;
  return word < first_parameter + format_.num_parameters ? TagKind::kParameter : TagKind::kValue;
}

// Reads a tag that lacks the character before its name: "<parametercity>".
CallTag CallTags::read_cut(std::string_view text, const LooseTag& loose) const {
  if (format_.has_keys || loose.closing) return {};
  for (size_t i = format_.num_sections; i < format_.words.size(); ++i) {
    const std::string_view word = format_.words[i];
    if (!text.substr(1).starts_with(word)) continue;
    const std::string_view name = text.substr(1 + word.size(), loose.size - word.size() - 2);
    if (name.empty() || !is_tag_name(name)) continue;
    return {.match = Match::kYes,
            .kind = kind_of(i),
            .is_cut = true,
            .size = loose.size,
            .name = std::string(name)};
  }
  return {};
}

CallTag CallTags::read_bare(std::string_view text) const {
  constexpr size_t kMaxBareTag = 96;
  const std::string tagged = "<" + std::string(text.substr(0, kMaxBareTag));
  const LooseTag loose = read_loose_tag(tagged);
  const bool may_be = std::ranges::any_of(
      format_.words, [&loose](std::string_view word) { return word.starts_with(loose.word); });
  if (loose.word.empty()) {  // the tag has only a slash or a bar
    const bool may_begin = std::string_view("/|\xEF").find(text.front()) != std::string_view::npos;
    return {.match = may_begin ? loose.match : Match::kNo};
  }
  if (!may_be) return {};
  CallTag tag = read(tagged);
  if (tag.match == Match::kMore && text.size() >= kMaxBareTag) return {};
  if (tag.match != Match::kYes) return {.match = tag.match};
  if (!tag.is_exact || tagged[tag.size - 1] != '>') return {};
  --tag.size;
  return tag;
}

ParameterOpening CallTags::read_unopened(std::string_view text, std::string_view tool,
                                         const ParameterNames& given) const {
  ParameterOpening opening;
  const std::string_view seen = text.substr(0, kMaxUnopenedValue);
  const bool has_all = std::ranges::all_of(
      names_.parameters(tool), [&given](const std::string& name) { return given.contains(name); });
  if (has_all) return {};
  const size_t place = std::min(seen.find('<'), seen.size());
  count_searched(place);
  const bool is_blank = space_size(seen.substr(0, place)) == place;
  const CallTag end =
      place < seen.size() ? read(seen.substr(place)) : CallTag{.match = Match::kMore};
  opening.match = end.match;
  if (seen.size() == kMaxUnopenedValue && opening.match == Match::kMore) return {};
  if (end.match != Match::kYes) return opening;
  const bool is_end = end.closing && end.kind == value_kind() && end.is_exact && !is_blank;
  if (!is_end) return {};
  const std::string_view behind = text.substr(place + end.size);
  const CallTag next = read(behind.substr(space_size(behind.substr(0, kMaxSpaceBetweenTags))));
  const bool may_follow = given.empty() || format_.has_keys;
  const bool opens = next.kind == TagKind::kParameter || next.kind == TagKind::kValue;
  const bool goes_on =
      next.match == Match::kYes && (next.closing ? next.kind != value_kind() : opens && may_follow);
  opening.match = next.match == Match::kMore ? Match::kMore : Match::kNo;
  if (goes_on) {
    opening.match = only_parameter_left(seen.substr(place + end.size), tool, given, opening.name);
  }
  if (seen.size() == kMaxUnopenedValue && opening.match == Match::kMore) {
    opening.match = Match::kNo;
  }
  return opening;
}

// The tool's only parameter that is neither named by the call's next tags nor in `given`.
Match CallTags::only_parameter_left(std::string_view text, std::string_view tool,
                                    const ParameterNames& given, std::string& name) const {
  ParameterNames taken = given;
  const auto find_only = [&] {
    name.clear();
    for (const std::string& parameter : names_.parameters(tool)) {
      if (taken.contains(parameter)) continue;
      if (!name.empty()) return false;
      name = parameter;
    }
    return true;
  };
  if (find_only()) return name.empty() ? Match::kNo : Match::kYes;
  for (size_t place = 0;; ++place) {
    const size_t from = place;
    place = std::min(text.find('<', from), text.size());
    count_searched(place - from);
    const std::string_view rest = text.substr(place);
    const CallTag tag = read(rest);
    if (tag.match == Match::kMore) return Match::kMore;
    if (tag.match != Match::kYes) continue;
    if (tag.kind == TagKind::kCall || tag.kind == TagKind::kSection) break;
    if (tag.kind != TagKind::kParameter || tag.closing) continue;
    std::string_view key = tag.name;
    if (format_.has_keys) key = rest.substr(tag.size, rest.substr(tag.size).find('<'));
    taken.insert(names_.resolve_parameter(tool, key));
  }
  return find_only() && !name.empty() ? Match::kYes : Match::kNo;
}

CallHeader CallTags::read_header(std::string_view text, bool has_marker, bool is_exact,
                                 bool at_end) const {
  return format_.has_keys ? read_glm_header(text, has_marker, is_exact, at_end)
                          : read_call_header(text, has_marker, is_exact, at_end);
}

// Whether parameters, a JSON object or the call's end follow, after white space.
Match CallTags::begins_parameters(std::string_view text, bool at_end) const {
  const size_t space = space_size(text.substr(0, kMaxSpaceBetweenTags + 1));
  if (space > kMaxSpaceBetweenTags) return Match::kNo;
  const std::string_view rest = text.substr(space);
  if (rest.empty()) return at_end ? Match::kYes : Match::kMore;
  if (rest.front() == '{') return Match::kYes;
  const CallTag tag = rest.front() == '<' ? read(rest, /*may_be_cut=*/true) : read_bare(rest);
  if (tag.match != Match::kYes) return tag.match;
  return tag.kind == TagKind::kNone ? Match::kNo : Match::kYes;
}

CallHeader CallTags::read_call_header(std::string_view text, bool has_marker, bool is_exact,
                                      bool at_end) const {
  std::string_view rest = text;
  bool in_section = false;
  std::string name;
  for (int count = 0; count < 2 * kMaxTagRepeats; ++count) {
    const size_t space = space_size(rest.substr(0, kMaxSpaceBetweenTags + 1));
    if (space > kMaxSpaceBetweenTags) return {};
    CallTag tag = read(rest.substr(space), /*may_be_cut=*/true);
    if (tag.match == Match::kNo && in_section && name.empty()) tag = read_bare(rest.substr(space));
    if (tag.match == Match::kMore) {
      if (name.empty() || !at_end) return {.match = Match::kMore};
      break;
    }
    if (tag.match == Match::kNo || tag.closing) break;
    const bool is_section = tag.kind == TagKind::kSection && name.empty();
    const bool is_call = tag.kind == TagKind::kCall && (name.empty() || name == tag.name);
    if (!is_section && !is_call) break;
    in_section = in_section || is_section;
    if (is_call) name = tag.name;
    if (is_call && name.empty()) return {};
    rest.remove_prefix(space + tag.size);
    if (rest.starts_with('>')) rest.remove_prefix(1);  // ignores a doubled closing bracket
    if (is_call && tag.is_whole) break;
  }
  if (name.empty() && in_section) {  // the parameters may identify the tool
    const size_t space = space_size(rest.substr(0, kMaxSpaceBetweenTags));
    const CallTag tag = read(rest.substr(space));
    if (tag.match == Match::kMore) return {.match = Match::kMore};
    if (tag.kind == TagKind::kParameter && !tag.closing) name = names_.only_tool_with(tag.name);
  }
  name = names_.resolve(name);
  const bool is_marked = has_marker && is_exact && (in_section || format_.call_is_mark);
  if (!is_tag_name(name) || name.size() > kMaxNameBytes || (!is_marked && !names_.has(name))) {
    return {};
  }
  Match match = begins_parameters(rest, at_end);
  if (match == Match::kNo && names_.has(name)) {
    match = read_unopened(rest.substr(space_size(rest)), name, /*given=*/{}).match;
  }
  if (match != Match::kYes) return {.match = match};
  return header_before(rest, text.size() - rest.size(), std::move(name));
}

CallHeader CallTags::read_glm_header(std::string_view text, bool has_marker, bool is_exact,
                                     bool at_end) const {
  std::string_view rest = text;
  const auto skip_space = [&rest] {
    rest.remove_prefix(space_size(rest.substr(0, kMaxSpaceBetweenTags)));
  };
  for (int count = 0; has_marker && count < kMaxTagRepeats; ++count) {
    const CallTag tag = read(rest, /*may_be_cut=*/true);
    if (tag.match == Match::kMore) return {.match = Match::kMore};
    if (tag.match != Match::kYes || tag.kind != TagKind::kCall || tag.closing) break;
    rest.remove_prefix(tag.size);
    if (rest.starts_with('>')) rest.remove_prefix(1);  // ignores a doubled closing bracket
    skip_space();
  }
  size_t size = rest.find_first_of("<{( \t\n\r");
  count_searched(std::min(size, rest.size()));
  if (std::min(size, rest.size()) > kMaxNameBytes) return {};
  if (size == std::string_view::npos && !at_end) return {.match = Match::kMore};
  size = std::min(size, rest.size());
  std::string name = names_.resolve(rest.substr(0, size));
  rest.remove_prefix(size);
  if (rest == "(" && !at_end) return {.match = Match::kMore};
  if (rest.starts_with("()")) rest.remove_prefix(2);
  if (rest.starts_with('(') && rest.size() > 1) return {};
  if (name.empty() && rest.starts_with('{')) return {};
  if (name.empty()) {  // the parameters may identify the tool
    const ParameterOpening opening = read_glm_opening(rest, {});
    if (opening.match == Match::kMore) return {.match = Match::kMore};
    if (opening.match == Match::kYes) name = names_.only_tool_with(opening.name);
  }
  const bool is_known = names_.has(name);
  const bool is_marked = has_marker && is_exact;
  if (!is_tag_name(name) || (!is_marked && !is_known)) return {};
  Match match = begins_parameters(rest, at_end && is_marked && is_known);
  if (match == Match::kNo && is_marked && is_known) match = read_glm_opening(rest, name).match;
  if (match != Match::kYes) return {.match = match};
  skip_space();
  if (!is_marked && !rest.empty()) {  // without a mark, a tag must show that this is a call
    const CallTag tag = read(rest);
    const bool says =
        tag.kind == TagKind::kParameter || (tag.kind == TagKind::kCall && tag.closing);
    if (!says) return {};
  }
  return header_before(rest, text.size() - rest.size(), std::move(name));
}

ParameterOpening CallTags::read_opening(std::string_view text, std::string_view tool) const {
  if (format_.has_keys) return read_glm_opening(text, tool);
  CallTag tag = read(text, /*may_be_cut=*/true);
  if (tag.match != Match::kYes) return {.match = tag.match};
  if (tag.kind != TagKind::kParameter || tag.closing || tag.name.empty()) return {};
  const bool is_known = names_.has_parameter(tool, names_.resolve_parameter(tool, tag.name));
  if (tag.is_cut && !is_known) return {};
  if (!is_known && text[tag.size - 1] != '>') {  // the value may follow the name directly
    std::string_view longest;
    for (const std::string_view name : names_.parameters(tool)) {
      if (tag.name.starts_with(name) && name.size() > longest.size()) longest = name;
    }
    if (!longest.empty()) {
      tag.size = text.find(tag.name) + longest.size();
      tag.name = longest;
    }
  }
  ParameterOpening opening{.match = Match::kYes,
                           .size = tag.size,
                           .name = std::move(tag.name),
                           .is_string = tag.is_string};
  for (int count = 0; count < kMaxTagRepeats; ++count) {  // skips doubled tags
    const std::string_view rest = text.substr(opening.size);
    const size_t space = space_size(rest.substr(0, kMaxSpaceBetweenTags));
    const CallTag again = read(rest.substr(space));
    if (again.match == Match::kMore) return {.match = Match::kMore};
    const bool is_same = again.match == Match::kYes && again.kind == TagKind::kParameter &&
                         !again.closing && again.name == opening.name;
    if (!is_same) break;
    opening.size += space + again.size;
  }
  const std::string_view behind = text.substr(opening.size);
  if (format_.has_value_lines && behind == ">") return {.match = Match::kMore};
  // a doubled closing bracket
  if (format_.has_value_lines && behind.starts_with(">\n")) ++opening.size;
  return opening;
}

// Reads "<arg_key>p</arg_key>\n<arg_value>". One of the key's tags, or the value's tag, may be
// missing.
ParameterOpening CallTags::read_glm_opening(std::string_view text, std::string_view tool) const {
  std::string_view rest = text;
  const auto skip_space = [&rest] {
    const size_t size = space_size(rest.substr(0, kMaxSpaceBetweenTags));
    rest.remove_prefix(size);
    return size;
  };
  const auto skip_tags = [&](TagKind kind, bool closing, int& found) {
    for (int count = 0; count < kMaxTagRepeats; ++count) {
      const size_t space = space_size(rest.substr(0, kMaxSpaceBetweenTags));
      const CallTag tag = read(rest.substr(space), /*may_be_cut=*/!closing);
      if (tag.match == Match::kMore) return Match::kMore;
      if (tag.match != Match::kYes || tag.kind != kind || tag.closing != closing) break;
      rest.remove_prefix(space + tag.size);
      // ignores a doubled closing bracket
      if (kind == TagKind::kParameter && rest.starts_with('>')) rest.remove_prefix(1);
      ++found;
    }
    return Match::kYes;
  };
  int keys = 0;
  int key_ends = 0;
  int values = 0;
  skip_space();
  if (skip_tags(TagKind::kParameter, false, keys) == Match::kMore) return {.match = Match::kMore};
  if (keys > 0) skip_space();
  const std::string_view seen = rest.substr(0, kMaxAttributeBytes);
  const size_t size = std::min(seen.find_first_of("<\n"), seen.size());
  count_searched(size);
  if (size == seen.size()) {
    return {.match = seen.size() < kMaxAttributeBytes ? Match::kMore : Match::kNo};
  }
  std::string_view key = trimmed_of(seen.substr(0, size), " \t\r");
  const size_t bracket = key.find('>');  // end of a tag without its opening bracket
  if (bracket != std::string_view::npos && read_bare(key).kind == TagKind::kParameter) {
    key.remove_prefix(bracket + 1);
    ++keys;
  }
  const size_t slash = key.find('/');  // beginning of a closing tag without its opening bracket
  if (slash != std::string_view::npos && slash > 0) {
    const CallTag bare = read_bare(key.substr(slash));
    if (bare.kind == TagKind::kParameter && slash + bare.size == key.size()) {
      key = key.substr(0, slash);
      ++key_ends;
    }
  }
  ParameterOpening opening{.name = std::string(key)};
  rest.remove_prefix(size);
  if (opening.name.empty()) return {};
  if (rest.starts_with("\n")) skip_space();
  if (skip_tags(TagKind::kParameter, true, key_ends) == Match::kMore) {
    return {.match = Match::kMore};
  }
  if (keys > 0 && key_ends == 0 &&  // the key's closing tag lacks its slash
      skip_tags(TagKind::kParameter, false, key_ends) == Match::kMore) {
    return {.match = Match::kMore};
  }
  const std::string_view behind_key = rest;
  if (skip_tags(TagKind::kValue, false, values) == Match::kMore) return {.match = Match::kMore};
  const size_t space = space_size(rest.substr(0, kMaxSpaceBetweenTags));
  if (values == 0 && keys + key_ends > 0 && space < rest.size()) {
    const CallTag bare = read_bare(rest.substr(space));
    if (bare.match == Match::kMore) return {.match = Match::kMore};
    if (bare.kind == TagKind::kValue && !bare.closing) {
      rest.remove_prefix(space + bare.size);
      ++values;
    }
  }
  const bool is_named = keys > 0 || names_.has_parameter(tool, opening.name) || values > 0;
  if (keys + key_ends == 0 || key_ends + values == 0 || !is_named) return {};
  if (values == 0) {
    rest = behind_key;
    if (rest.starts_with('\n')) rest.remove_prefix(1);
  }
  opening.match = Match::kYes;
  opening.size = text.size() - rest.size();
  return opening;
}

}  // namespace heddle::parsers
