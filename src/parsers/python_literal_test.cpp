// SPDX-License-Identifier: Apache-2.0
#include "parsers/python_literal.h"

#include <gtest/gtest.h>

namespace heddle::parsers {
namespace {

TEST(PythonLiteralTest, LiteralsBecomeJson) {
  const auto json = [](std::string_view text) {
    return python_literal_to_json(text).value_or("none");
  };
  EXPECT_EQ(json(" -1.5e3 "), "-1.5e3");
  EXPECT_EQ(json("[07, +1, 0x1F, 0b11, 0o17, 1_000, .5, 3.]"), "[7, 1, 31, 3, 15, 1000, 0.5, 3.0]");
  EXPECT_EQ(json("True"), "true");
  EXPECT_EQ(json("None"), "null");
  EXPECT_EQ(json(R"('it\'s "so"\n')"), R"("it's \"so\"\n")");
  EXPECT_EQ(json(R"("\x41\u00e9\U0001F600\ud83d\ude00\ud83d!\d")"), "\"Aé😀😀\xEF\xBF\xBD!\\\\d\"");
  EXPECT_EQ(json("[1, (2, 'x',), {'k': [], \"l\": {}}, ]"), R"([1, [2, "x"], {"k": [], "l": {}}])");
  EXPECT_EQ(json(R"("""it's "so"
y""")"),
            R"("it's \"so\"\ny")");
  EXPECT_EQ(json(R"(['', '''a'b''', """"""])"), R"(["", "a'b", ""])");
  EXPECT_EQ(json(R"(["", ""a""])"), "none");
  for (const char* const wrong : {"", "[1", "[1 2]", "{1: 2}", "'open", "0x", "name", "1 2", "f()",
                                  "'\\x4'", "[,]", "+-1", "nan"}) {
    EXPECT_EQ(json(wrong), "none") << wrong;
  }
  EXPECT_EQ(json(std::string_view("[1\0]", 4)), "none");
  EXPECT_NE(json(std::string(60, '[') + std::string(60, ']')), "none");
  EXPECT_EQ(json(std::string(100000, '[') + std::string(100000, ']')), "none");
}

TEST(PythonLiteralTest, ALiteralEndsOutsideOfBracketsAndQuotes) {
  bool found = false;
  EXPECT_EQ(PythonLiteralEnd().scan(R"(x=['a,)\'', (1,2)], y)", found), 18u);
  EXPECT_TRUE(found);
  EXPECT_EQ(PythonLiteralEnd().scan("'abc, d", found), 7u);
  EXPECT_FALSE(found);
  const std::string literal = R"(['', """a",''\"" ,""", ''' ' '''])";
  for (size_t cut = 0; cut <= literal.size(); ++cut) {
    PythonLiteralEnd end;
    const std::string text = literal + ", 1";
    EXPECT_EQ(end.scan(std::string_view(text).substr(0, cut), found), cut);
    EXPECT_EQ(end.scan(std::string_view(text).substr(cut), found), literal.size() - cut) << cut;
    EXPECT_TRUE(found);
  }
}

}  // namespace
}  // namespace heddle::parsers
