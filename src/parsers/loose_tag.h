// SPDX-License-Identifier: Apache-2.0
// Reads tags as models write them. A letter, a bar or the closing bracket may be wrong or missing:
// "<tool_call>", "<|tool_call|>", "<toolcall", "<\/tool_call>", "<｜tool▁call▁end｜>", "[/THINK]",
// "</ think >", "< tool_call>", "<//think>", "<｜tool calls begin｜>", "<seed:tool_call>".
//
// Threading: free functions without state.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "parsers/marker_search.h"

namespace heddle::parsers {

struct LooseTag {
  // most bytes of a tag
  static constexpr size_t kMaxBytes = 96;

  Match match = Match::kNo;
  size_t size = 0;       // bytes up to and including the closing bracket, or up to the text that
                         // follows in its place
  std::string word;      // letters and digits of the tag, in lower case: "toolcall"
  bool closing = false;  // a slash precedes the word
  bool closed = false;   // the closing bracket is present
  bool closes_itself = false;  // a slash follows the word
  bool is_cut = false;         // a letter follows in place of the closing bracket
};

// Reads the tag at the beginning of `text`. If its closing bracket is missing and its letters are
// not one of `words`, the word is the longest of `words` with which the letters begin:
// "<|constrain|json", "<arg_keycity".
// Cost: O(LooseTag::kMaxBytes).
[[nodiscard]] LooseTag read_loose_tag(std::string_view text,
                                      std::span<const std::string_view> words = {});

// As read_loose_tag(), if the first bracket, `bracket`, is missing: "tool_call>". The size does not
// count the missing bracket.
[[nodiscard]] LooseTag read_bare_tag(std::string_view text, char bracket = '<');

// The index in `words` of the word that a tag's word means: an equal word, also with a number after
// it; otherwise the most similar one, if at most one letter in four and at most two letters are
// wrong. None if two are equally similar.
[[nodiscard]] std::optional<size_t> meant_word(std::string_view word,
                                               std::span<const std::string_view> words);

// As meant_word(), but of several equally similar words the first one.
[[nodiscard]] std::optional<size_t> nearest_word(std::string_view word,
                                                 std::span<const std::string_view> words);

// The letters and digits of a name, in lower case.
[[nodiscard]] std::string bare_word(std::string_view name);

}  // namespace heddle::parsers
