// SPDX-License-Identifier: Apache-2.0
// GemmaArguments: parses a call's arguments in Gemma 4's notation and emits them as a JSON object.
//
//   {city:<|"|>Paris<|"|>,days:3,tags:[<|"|>a<|"|>,null],more:{deep:true}}
//
// Keys have no quotes. A text is between two marks and has no escapes. Keys and texts in JSON
// quotes are accepted, too, and so is a text without marks or quotes.
//
// If a text's closing mark is missing, the text ends before the tool's next parameter or before the
// end of the call. Such an end is uncertain: it is part of the text if a closing mark follows
// later. The text is held back from there until that is certain or kMaxDoubtBytes have arrived. A
// mark may be doubled, or one of its characters may be wrong or missing: <|">, |"|>, <|'|>, <|\"|>.
//
// Threading: thread-compatible. `names` must outlive this object. Cost: O(text), however it is
// split.
// Memory: a text without quotes is held back, at most kMaxWordBytes; a longer one fails the call.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "parsers/answer_delta.h"
#include "parsers/call_header.h"
#include "parsers/json_scanner.h"
#include "parsers/tool_names.h"

namespace heddle::parsers {

// The mark that ends a call; the arguments may lack their closing brace before it.
inline constexpr std::string_view kGemmaCallEnd = "<tool_call|>";

class GemmaArguments {
 public:
  static constexpr size_t kMaxDoubtBytes = 1 << 20;
  static constexpr size_t kMaxWordBytes = 1 << 20;

  // `is_exact`: every text must have its exact marks. `read_key`: see JsonScanner.
  GemmaArguments(const ToolNames& names, std::string tool, JsonScanner::KeyReader read_key,
                 bool is_exact);

  // Continues at the object's '{' or after the text read so far, up to and including its '}', and
  // appends the JSON that is certain.
  Progress read(std::string_view text, TextEnd end, size_t& used, std::string& json);

  // The answer ended before the '}'. Returns true if everything that was begun is complete.
  bool finish(std::string& json);

 private:
  // A text's mark at the beginning of `text`, spelt exactly or with one character wrong or missing.
  struct TextMark {
    Match match = Match::kNo;
    size_t size = 0;
    bool is_exact = false;
  };

  enum class Open : uint8_t { kNothing, kText, kQuotes };

  // The end of a text, and the number of bytes there that close it.
  struct TextEnding {
    Match match = Match::kNo;
    size_t position = 0;
    size_t size = 0;
  };

  [[nodiscard]] JsonScanner::State write(std::string_view json_text, std::string& json);
  size_t read_text(std::string_view text, TextEnd end, std::string& json);
  [[nodiscard]] TextMark mark_at(std::string_view text) const;
  [[nodiscard]] TextEnding find_end(std::string_view text, TextEnd end) const;
  [[nodiscard]] Match may_end_before(std::string_view text, TextEnd end) const;
  [[nodiscard]] Match begins_parameter(std::string_view text) const;
  size_t read_quotes(std::string_view text, std::string& json);
  size_t read_word(std::string_view text, TextEnd end, std::string& json);
  [[nodiscard]] std::string_view meant_sign(std::string_view sign);
  [[nodiscard]] std::optional<size_t> next_key(std::string_view word) const;

  const ToolNames* names_;
  std::string tool_;
  bool is_exact_;
  JsonScanner object_;
  Open open_ = Open::kNothing;
  char quote_ = '"';
  bool is_escaped_ = false;                  // within JSON quotes, after a backslash
  bool is_in_parentheses_ = false;           // the arguments are in parentheses instead of braces
  bool follows_key_ = false;                 // the next character is a key's colon
  bool follows_text_ = false;                // a text's closing mark was just read
  std::string key_;                          // last key that was read
  std::set<std::string, std::less<>> keys_;  // keys of the object, as the model wrote them
};

}  // namespace heddle::parsers
