// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/terminal.h"

#include <gtest/gtest.h>

namespace heddle::tools {
namespace {

TEST(UserTextTest, BytesThatAreNoCharactersAreFound) {
  EXPECT_TRUE(check_utf8("the message", "").ok());
  EXPECT_TRUE(check_utf8("the message", "Grüße, 你好 🙂").ok());
  EXPECT_EQ(check_utf8("the message", "ab\xff").message(),
            "the message is not UTF-8: its byte 3 is 0xff; convert it, for example with iconv");
  EXPECT_EQ(check_utf8("--system", "Gr\xfc\xdf").message(),
            "--system is not UTF-8: its byte 3 is 0xfc; convert it, for example with iconv");
  EXPECT_FALSE(check_utf8("the message", "cut \xe4\xbd").ok());
}

}  // namespace
}  // namespace heddle::tools
