// SPDX-License-Identifier: Apache-2.0
// GemmaArguments: the arguments of a call as Gemma 4 writes them, as a JSON object.
//
//   {city:<|"|>Paris<|"|>,days:3,tags:[<|"|>a<|"|>,null],more:{deep:true}}
//
// Keys have no quotes. A text stands between two marks and has no escapes. Keys and texts in JSON's
// quotes are taken, too, and so is a text without any.
//
// Where a text's closing mark is missing, the text ends before the next of the tool's parameters,
// or before the end of the call. Such an end is part of the text if a mark follows that closes
// it: until that is certain, or kMaxDoubtBytes have come, the text is held back from there on.
// A mark may be doubled, or have one of its signs wrong or missing: <|">, |"|>, <|'|>, <|\"|>.
//
// Threading: thread-compatible. `names` must outlive it. Cost: O(text), in however many parts it
// comes. Memory:    a text without quotes is held, at most kMaxWordBytes; a longer one fails the
// call.
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

// The mark that ends a call, whose arguments may lack their own end.
inline constexpr std::string_view kGemmaCallEnd = "<tool_call|>";

class GemmaArguments {
 public:
  static constexpr size_t kMaxDoubtBytes = 1 << 20;
  static constexpr size_t kMaxWordBytes = 1 << 20;

  // `is_exact`: every text has its marks. `read_key`: see JsonScanner.
  GemmaArguments(const ToolNames& names, std::string tool, JsonScanner::KeyReader read_key,
                 bool is_exact);

  // Reads on from the object's '{', up to and with its '}', and appends the JSON that is certain.
  Progress read(std::string_view text, TextEnd end, size_t& used, std::string& json);

  // The text has ended before the '}'. True: all that was begun is complete.
  bool finish(std::string& json);

 private:
  // A text's mark at the front, spelt exactly or with one sign wrong or missing.
  struct TextMark {
    Match match = Match::kNo;
    size_t size = 0;
    bool is_exact = false;
  };

  enum class Open : uint8_t { kNothing, kText, kQuotes };

  // A position in a text, and how many bytes there close it.
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
  bool is_escaped_ = false;                  // within quotes, after a backslash
  bool is_in_parentheses_ = false;           // parentheses enclose the arguments
  bool follows_key_ = false;                 // the next sign is the colon of a key
  bool follows_text_ = false;                // a text's mark closed it just now
  std::string key_;                          // the last one
  std::set<std::string, std::less<>> keys_;  // of the object, as they are written
};

}  // namespace heddle::parsers
