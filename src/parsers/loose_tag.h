// SPDX-License-Identifier: Apache-2.0
// Reads tags as models write them, of which a letter, a bar or the closing bracket may be wrong:
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
  // More bytes than this are no tag.
  static constexpr size_t kMaxBytes = 96;

  Match match = Match::kNo;
  size_t size = 0;       // up to and with its closing bracket, or up to what stands in place of it
  std::string word;      // its letters and digits, lower case: "toolcall"
  bool closing = false;  // with a slash before the word
  bool closed = false;   // it has its closing bracket
  bool closes_itself = false;  // with a slash behind the word
  bool is_cut = false;         // a letter stands in place of its closing bracket
};

// The tag at the front of `text`. Where its bracket is missing and its letters are none of `words`,
// the word is the longest of these that the letters begin with: "<|constrain|json", "<arg_keycity".
// Cost: O(LooseTag::kMaxBytes).
[[nodiscard]] LooseTag read_loose_tag(std::string_view text,
                                      std::span<const std::string_view> words = {});

// The same where the first bracket, `bracket`, is missing: "tool_call>". The size is without it.
[[nodiscard]] LooseTag read_bare_tag(std::string_view text, char bracket = '<');

// Which of `words` a tag's word means: the same, also with a number behind it, or the nearest where
// no more than one letter in four is wrong, two at most. Nothing where two are equally near.
[[nodiscard]] std::optional<size_t> meant_word(std::string_view word,
                                               std::span<const std::string_view> words);

// The same, but of words that are equally near the first one.
[[nodiscard]] std::optional<size_t> nearest_word(std::string_view word,
                                                 std::span<const std::string_view> words);

// The letters and digits of a name, lower case.
[[nodiscard]] std::string bare_word(std::string_view name);

}  // namespace heddle::parsers
