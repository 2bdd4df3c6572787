// SPDX-License-Identifier: Apache-2.0
#include "server/http/json_pieces.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "parsers/json_scanner.h"
#include "server/http/json_text.h"
#include "tokenizer/utf8.h"

namespace heddle::server {
namespace {

// Length of the prefix of a string that ends at a character and has at most about `max_bytes`
// bytes.
size_t whole_characters(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text.size();
  // A piece has at least one character, of up to 4 bytes.
  size_t end = std::max<size_t>(max_bytes, 4);
  const auto continues = [&](size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xc0u) == 0x80u;
  };
  for (int i = 0; i < 3 && end < text.size() && continues(end); ++i) --end;
  return std::min(end, text.size());
}

}  // namespace

JsonPieces& JsonPieces::key(std::string_view name) {
  std::string& out = next_value();
  out += '"';
  out += name;
  out += "\":";
  needs_comma_ = false;
  return *this;
}

JsonPieces& JsonPieces::word(std::string_view json) {
  next_value() += json;
  return *this;
}

JsonPieces& JsonPieces::short_text(std::string_view text) {
  append_json_string(text, next_value());
  return *this;
}

JsonPieces& JsonPieces::value(const nlohmann::ordered_json& small) {
  next_value() += dump_json(small);
  return *this;
}

JsonPieces& JsonPieces::text(std::string_view text) {
  next_value() += '"';
  parts_.emplace_back(Text{text});
  small() += '"';
  return *this;
}

JsonPieces& JsonPieces::list(size_t count, WriteItem write_item) {
  next_value() += '[';
  if (count > 0) parts_.emplace_back(List{.count = count, .write_item = std::move(write_item)});
  small() += ']';
  return *this;
}

JsonPieces& JsonPieces::integers(std::span<const int32_t> list) {
  return this->list(list.size(), [list](size_t index, std::string& out) {
    fmt::format_to(std::back_inserter(out), "{}", list[index]);
  });
}

JsonPieces& JsonPieces::written(char before, std::string_view json, char after) {
  next_value() += before;
  parts_.emplace_back(Written{json});
  small() += after;
  return *this;
}

JsonPieces& JsonPieces::around(std::string_view characters) {
  small() += characters;
  needs_comma_ = false;
  return *this;
}

bool JsonPieces::next(std::string& out, size_t max_bytes) {
  const size_t begin = out.size();
  while (part_index_ < parts_.size()) {
    const size_t written = out.size() - begin;
    if (written >= max_bytes) return true;
    if (write(parts_[part_index_], out, max_bytes - written)) ++part_index_;
  }
  return out.size() > begin;
}

void JsonPieces::write_all(std::string& out) {
  while (next(out, std::numeric_limits<size_t>::max())) {
  }
}

bool JsonPieces::write(Part& part, std::string& out, size_t max_bytes) {
  if (const auto* const small = std::get_if<std::string>(&part)) {
    out += *small;
    return true;
  }
  if (auto* const text = std::get_if<Text>(&part)) {
    const size_t count = whole_characters(text->rest, max_bytes);
    append_json_characters(text->rest.substr(0, count), out);
    text->rest.remove_prefix(count);
    return text->rest.empty();
  }
  if (auto* const written = std::get_if<Written>(&part)) {
    const size_t count = std::min(written->rest.size(), max_bytes);
    out += written->rest.substr(0, count);
    written->rest.remove_prefix(count);
    return written->rest.empty();
  }
  auto& list = std::get<List>(part);
  const size_t begin = out.size();
  while (list.index < list.count) {
    if (list.index > 0) out += ',';
    list.write_item(list.index++, out);
    if (out.size() - begin >= max_bytes) break;
  }
  return list.index == list.count;
}

JsonPieces& JsonPieces::open(char bracket) {
  next_value() += bracket;
  needs_comma_ = false;
  return *this;
}

JsonPieces& JsonPieces::close(char bracket) {
  small() += bracket;
  needs_comma_ = true;
  return *this;
}

std::string& JsonPieces::small() {
  if (parts_.empty() || !std::holds_alternative<std::string>(parts_.back())) {
    parts_.emplace_back(std::string());
  }
  return std::get<std::string>(parts_.back());
}

std::string& JsonPieces::next_value() {
  std::string& out = small();
  if (std::exchange(needs_comma_, true)) out += ',';
  return out;
}

void append_json_characters(std::string_view text, std::string& out) {
  if (!tokenizer::is_valid_utf8(text)) {
    const std::string quoted = dump_json(text);
    out.append(quoted, 1, quoted.size() - 2);
    return;
  }
  parsers::append_escaped(text, out);
}

void append_json_string(std::string_view text, std::string& out) {
  out += '"';
  append_json_characters(text, out);
  out += '"';
}

void append_json_number(double number, std::string& out) {
  HEDDLE_CHECK(std::isfinite(number));
  const size_t begin = out.size();
  fmt::format_to(std::back_inserter(out), "{}", number);
  if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";
}

}  // namespace heddle::server
