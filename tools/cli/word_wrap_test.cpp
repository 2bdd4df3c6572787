// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/word_wrap.h"

#include <gtest/gtest.h>

namespace heddle::tools {
namespace {

std::string wrapped(int64_t width, std::string_view text) {
  WordWrap wrap(width);
  std::string shown = wrap.feed(text);
  return shown += wrap.end();
}

TEST(WordWrapTest, LinesBreakAtSpaces) {
  const struct {
    int64_t width;
    std::string_view text;
    std::string_view shown;
  } cases[] = {
      {10, "one two three", "one two\nthree"},
      {10, "one two 345", "one two\n345"},
      {11, "one two 345", "one two 345"},
      {0, "one two three", "one two three"},
      {10, "one\ntwo three", "one\ntwo three"},
      {10, "    indented text", "    indented text"},  // what begins a line is shown as it is
      {10, "\tand\ttabs", "\tand\ntabs"},
      {5, "a longerword b", "a\nlongerword\nb"},  // the terminal breaks the long one
      {6, "gr\xC3\xBC\xC3\x9F dich", "gr\xC3\xBC\xC3\x9F\ndich"},
      {4, "\xE4\xBD\xA0\xE5\xA5\xBD\xE5\x90\x97", "\xE4\xBD\xA0\xE5\xA5\xBD\n\xE5\x90\x97"},
      {20, "trailing   ", "trailing"},
      {20, "", ""},
      {10, "see https://example.com/a/b now", "see\nhttps://example.com/a/b now"},
      {4, "ab \xFF\xFE cd", "ab\n\xEF\xBF\xBD\xEF\xBF\xBD\ncd"},
      {20, "\x1b[2J\a \xC2\x9B!", "\xEF\xBF\xBD[2J\xEF\xBF\xBD \xEF\xBF\xBD!"},
      {20, "a\r\nb", "a\nb"},
      {0, "\x1b[2J", "\x1b[2J"},  // a file's reader gets the text
  };

  for (const auto& [width, text, shown] : cases) EXPECT_EQ(wrapped(width, text), shown) << text;
}

TEST(WordWrapTest, ItDoesNotMatterWhereATextIsCut) {
  const std::string text =
      "Some words, \xE4\xBD\xA0\xE5\xA5\xBD and gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80\n  end";
  for (const int64_t width : {0, 1, 3, 7, 12, 80}) {
    const std::string whole = wrapped(width, text);
    for (size_t first = 0; first <= text.size(); ++first) {
      for (size_t second = first; second <= text.size(); ++second) {
        WordWrap wrap(width);
        std::string shown = wrap.feed(text.substr(0, first));
        shown += wrap.feed(text.substr(first, second - first));
        shown += wrap.feed(text.substr(second));
        shown += wrap.end();
        ASSERT_EQ(shown, whole) << width << " columns, cut at " << first << " and " << second;
      }
    }
  }
}

TEST(WordWrapTest, AWordComesOnceItsEndIsKnown) {
  WordWrap wrap(20);
  EXPECT_EQ(wrap.feed("Hel"), "");
  EXPECT_EQ(wrap.feed("lo wor"), "Hello");
  EXPECT_EQ(wrap.feed("ld."), "");
  EXPECT_EQ(wrap.end(), " world.");
}

}  // namespace
}  // namespace heddle::tools
