// SPDX-License-Identifier: Apache-2.0
#include "parsers/call_cursor.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "parsers/json_scanner.h"
#include "parsers/loose_tag.h"

namespace heddle::parsers {
namespace {

// Joins objects that share no key to one object; without objects makes an empty one.
void join_objects(std::vector<std::string>& objects) {
  nlohmann::ordered_json joined = nlohmann::ordered_json::object();
  std::string text = "{";
  for (const std::string& object : objects) {
    const auto members = nlohmann::ordered_json::parse(object, nullptr, /*allow_exceptions=*/false);
    if (!members.is_object()) return;
    for (const auto& [key, value] : members.items()) {
      if (!joined.emplace(key, nullptr).second) return;
    }
    if (members.empty()) continue;
    text += text.size() > 1 ? ", " : "";
    text.append(object, 1, object.size() - 2);
  }
  objects.assign(1, text + '}');
}

}  // namespace

bool CallCursor::skip_space(size_t most) {
  const size_t size = space_size(rest());
  if (size > most) return fail();
  advance(size);
  return !rest().empty() || fail(Match::kMore);
}

bool CallCursor::expect(std::string_view wanted) {
  if (rest().starts_with(wanted)) {
    advance(wanted.size());
    return true;
  }
  return fail(wanted.starts_with(rest()) ? Match::kMore : Match::kNo);
}

bool CallCursor::allow(std::string_view wanted) {
  if (rest().starts_with(wanted)) {
    advance(wanted.size());
    return true;
  }
  return !wanted.starts_with(rest()) || fail(Match::kMore);
}

bool CallCursor::read_string(std::string& value) {
  if (!at_string()) return fail(rest().empty() ? Match::kMore : Match::kNo);
  const char quote = rest().front();
  size_t end = 1;
  for (; end < rest().size() && rest()[end] != quote; ++end) {
    if (rest()[end] == '\\') ++end;
  }
  count_searched(end);
  if (end >= rest().size()) return fail(Match::kMore);
  const std::string_view written = rest().substr(0, end + 1);
  if (quote == '"') {
    const auto json = nlohmann::json::parse(written, nullptr, false);
    if (!json.is_string()) return fail();
    value = json.get<std::string>();
  } else {
    value = written.substr(1, written.size() - 2);
  }
  advance(end + 1);
  return true;
}

bool CallCursor::skip_tags(std::span<const std::string_view> words, unsigned& found) {
  for (size_t count = 0;; ++count) {
    if (!skip_space(kMaxSpaceBeforeObject)) return false;
    const LooseTag tag = read_loose_tag(rest(), words);
    if (tag.match == Match::kMore) return fail(Match::kMore);
    const auto meant =
        tag.match == Match::kYes && !tag.closing ? nearest_word(tag.word, words) : std::nullopt;
    if (!meant) return true;
    if (count == 3 * words.size()) return fail();
    found |= 1U << *meant;
    advance(tag.size);
    const bool ends_square = tag.closed && text_[position_ - 1] == ']';
    // accepts a doubled closing bracket
    if (tag.closed && !allow(ends_square ? "]" : ">")) return false;
  }
}

bool CallCursor::skip_fence(std::string_view& info) {
  constexpr size_t kMaxInfoBytes = 24;
  if (!rest().starts_with('`')) return true;
  if (!expect("```")) return false;
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  size_t size = 0;
  while (size < rest().size() && is_word(rest()[size])) ++size;
  if (size > kMaxInfoBytes) return fail();
  if (size == rest().size()) return fail(Match::kMore);
  info = rest().substr(0, size);
  advance(size);
  return skip_space(kMaxSpaceBeforeObject);
}

bool CallCursor::read_object(std::string& copy) {
  JsonScanner scanner;
  size_t used = 0;
  const JsonScanner::State state = scanner.scan(rest(), used, &copy);
  if (state != JsonScanner::State::kDone) {
    return fail(state == JsonScanner::State::kMore ? Match::kMore : Match::kNo);
  }
  advance(used);
  return true;
}

bool CallCursor::read_listed_objects(std::vector<std::string>& copies) {
  constexpr size_t kMaxObjects = 32;
  if (!expect("[") || !skip_space()) return false;
  while (rest().starts_with('{')) {
    if (copies.size() == kMaxObjects) return fail();
    if (!read_object(copies.emplace_back()) || !skip_space() || !allow(",") || !skip_space()) {
      return false;
    }
  }
  join_objects(copies);
  return expect("]");
}

bool CallCursor::strip_bare_tag(std::string_view& name, std::string_view tag) {
  if (!name.ends_with(tag.substr(1))) return false;
  name.remove_suffix(tag.size() - 1);
  return true;
}

bool CallCursor::read_until(std::string_view stops, std::string_view& value) {
  const std::string_view seen = rest().substr(0, kMaxNameBytes + 1);
  const size_t size = seen.find_first_of(stops);
  count_searched(std::min(size, seen.size()));
  if (size == std::string_view::npos) {
    return fail(seen.size() > kMaxNameBytes ? Match::kNo : Match::kMore);
  }
  value = rest().substr(0, size);
  advance(size);
  return true;
}

CallHeader header_of(const CallCursor& cursor, std::string name, std::string id) {
  if (name.empty() || name.size() > kMaxNameBytes) return {};
  return {.match = Match::kYes,
          .size = cursor.position(),
          .name = std::move(name),
          .id = std::move(id)};
}

CallHeader bare_header(const CallCursor& cursor, std::string name, std::string id) {
  CallHeader header = header_of(cursor, std::move(name), std::move(id));
  if (header.match == Match::kYes) header.arguments = "{}";
  return header;
}

}  // namespace heddle::parsers
