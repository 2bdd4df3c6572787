// SPDX-License-Identifier: Apache-2.0
#include "chat/spelled_json.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "chat/json.h"
#include "tokenizer/utf8.h"

namespace heddle::chat {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr int kMaxSpelledDepth = kMaxValueDepth - 8;  // less than the limit, because the messages
                                                      // around the value add levels

// Reads JSON that may be truncated at any point, and remembers the text range of its lists and
// objects.
class SpelledReader {
 public:
  explicit SpelledReader(std::shared_ptr<const std::string> text)
      : source_(std::move(text)), text_(*source_) {}

  // The object, if the whole text is one; otherwise none.
  std::optional<Value> read_object() {
    skip_blanks();
    if (!at('{')) return std::nullopt;
    std::optional<Value> value = read_value(0);
    skip_blanks();
    if (!ended()) return std::nullopt;
    return value;
  }

 private:
  [[nodiscard]] bool ended() const { return next_ >= text_.size(); }

  [[nodiscard]] bool at(char c) const { return !ended() && text_[next_] == c; }

  void skip_blanks() { next_ = std::min(text_.find_first_not_of(kBlanks, next_), text_.size()); }

  bool accept(char c) {
    skip_blanks();
    if (!at(c)) return false;
    ++next_;
    return true;
  }

  [[nodiscard]] Spelling spelling_from(size_t begin) const {
    return {.text = source_, .begin = begin, .size = next_ - begin};
  }

  // Reads one value; none if the text is not JSON.
  std::optional<Value> read_value(int depth) {
    if (depth > kMaxSpelledDepth) return std::nullopt;
    skip_blanks();
    if (ended()) return Value::none();
    if (at('{')) return read_dict(depth);
    if (at('[')) return read_list(depth);
    if (at('"')) return read_string();
    return read_word();
  }

  std::optional<Value> read_dict(int depth) {
    const size_t begin = next_++;
    std::vector<Dict::Entry> entries;
    skip_blanks();
    while (!ended() && !at('}')) {
      if (!at('"')) return std::nullopt;
      std::optional<Value> key = read_string();
      if (!key) return std::nullopt;
      skip_blanks();
      if (!ended() && !accept(':')) return std::nullopt;
      std::optional<Value> value = read_value(depth + 1);
      if (!value) return std::nullopt;
      entries.emplace_back(*std::move(key), *std::move(value));
      skip_blanks();
      if (ended() || at('}')) break;
      if (!accept(',')) return std::nullopt;
      skip_blanks();
      if (at('}')) return std::nullopt;
    }
    accept('}');
    auto dict = make_dict(nullptr, std::move(entries), spelling_from(begin));
    if (!dict.ok()) return std::nullopt;
    return std::move(dict).value();
  }

  std::optional<Value> read_list(int depth) {
    const size_t begin = next_++;
    std::vector<Value> items;
    skip_blanks();
    while (!ended() && !at(']')) {
      std::optional<Value> value = read_value(depth + 1);
      if (!value) return std::nullopt;
      items.push_back(*std::move(value));
      skip_blanks();
      if (ended() || at(']')) break;
      if (!accept(',')) return std::nullopt;
      skip_blanks();
      if (at(']')) return std::nullopt;
    }
    accept(']');
    auto list = make_sequence(nullptr, Flavor::kList, std::move(items), spelling_from(begin));
    if (!list.ok()) return std::nullopt;
    return std::move(list).value();
  }

  // Parses the text from `begin` on, followed by `ending`, with the JSON library.
  std::optional<Value> parsed(size_t begin, std::string_view ending = {}) const {
    std::string piece(text_.substr(begin, next_ - begin));
    piece += ending;
    auto value = value_from_json_text(piece);
    if (!value.ok()) return std::nullopt;
    return std::move(value).value();
  }

  std::optional<Value> read_string() {
    const size_t begin = next_++;
    size_t escape = std::string_view::npos;  // position of the last escape, which the end of the
                                             // text may truncate
    while (!ended() && !at('"')) {
      if (at('\\')) escape = next_++;
      ++next_;
    }
    if (!ended()) {
      ++next_;
      return parsed(begin);
    }
    next_ = text_.size();
    if (auto whole = parsed(begin, "\"")) return whole;
    // The text may end within an escape, perhaps after the first half of a surrogate pair:
    // \ud83d\ude
    for (int i = 0; i < 2 && escape != std::string_view::npos; ++i) {
      next_ = escape;
      auto shorter = parsed(begin, "\"");
      next_ = text_.size();
      if (shorter) return shorter;
      escape = escape < begin + 6 ? std::string_view::npos : escape - 6;
    }
    return std::nullopt;
  }

  // Reads a number, true, false or null; at the end of the text it may be truncated.
  std::optional<Value> read_word() {
    const size_t begin = next_;
    next_ = std::min(text_.find_first_of(",]} \t\r\n", next_), text_.size());
    if (next_ == begin) return std::nullopt;
    auto value = parsed(begin);
    if (value || !ended()) return value;
    const std::string_view word = text_.substr(begin);
    for (const std::string_view whole : {"true", "false", "null"}) {
      if (!whole.starts_with(word)) continue;
      auto json = value_from_json_text(whole);
      if (json.ok()) return std::move(json).value();
    }
    return Value::string(std::string(word));  // a truncated number: "-", "1e"
  }

  const std::shared_ptr<const std::string> source_;
  const std::string_view text_;
  size_t next_ = 0;
};

}  // namespace

Result<Value> value_from_arguments(std::string text) {
  if (!tokenizer::is_valid_utf8(text)) {
    return invalid_argument("the arguments of a tool call are not UTF-8");
  }
  if (text.find_first_not_of(kBlanks) == std::string::npos) return make_dict(nullptr, {});
  const auto source = std::make_shared<const std::string>(std::move(text));
  if (auto object = SpelledReader(source).read_object()) return *std::move(object);
  std::vector<Dict::Entry> entries;
  entries.emplace_back(Value::string("arguments"), Value::string(*source));
  return make_dict(nullptr, std::move(entries),
                   {.text = source, .begin = 0, .size = source->size()});
}

}  // namespace heddle::chat
