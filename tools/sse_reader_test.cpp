// SPDX-License-Identifier: Apache-2.0
#include "sse_reader.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> read_parts(const std::vector<std::string_view>& parts) {
  SseReader reader;
  std::vector<std::string> events;
  for (const std::string_view part : parts) {
    EXPECT_TRUE(reader.feed(part, [&](std::string_view data) { events.emplace_back(data); }));
  }
  return events;
}

constexpr std::string_view kStream =
    "\xef\xbb\xbf"
    "data: one\n\n"
    ": a comment\r\n"
    "event: x\r\ndata: two\r\ndata:  three\r\n\r\n"
    "data\rdata:four\r\r"
    "id: 7\n\n"
    "data: \xc3\xa9\n\n"
    "data: [DONE]\n\n"
    "data: not ended\n";

const std::vector<std::string> kEvents = {"one", "two\n three", "\nfour", "\xc3\xa9", "[DONE]"};

TEST(SseReader, ReadsTheSameEventsHoweverTheBytesAreCut) {
  EXPECT_EQ(read_parts({kStream}), kEvents);
  for (size_t a = 0; a <= kStream.size(); ++a) {
    for (size_t b = a; b <= kStream.size(); ++b) {
      ASSERT_EQ(read_parts({kStream.substr(0, a), kStream.substr(a, b - a), kStream.substr(b)}),
                kEvents)
          << "cut at " << a << " and " << b;
    }
  }
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < kStream.size(); ++i) bytes.push_back(kStream.substr(i, 1));
  EXPECT_EQ(read_parts(bytes), kEvents);
}

TEST(SseReader, FieldsOtherThanDataMakeNoEvent) {
  EXPECT_THAT(read_parts({"event: ping\n\nretry: 3\n\n\n\n"}), IsEmpty());
  EXPECT_THAT(read_parts({"data:\n\n"}), ElementsAre(""));
  EXPECT_THAT(read_parts({"database: x\n\n"}), IsEmpty());
}

TEST(SseReader, AnEndlessEventIsRefused) {
  SseReader reader;
  const std::string part(1 << 20, 'x');
  bool readable = true;
  for (int i = 0; i < 20; ++i) {
    readable = reader.feed(part, [](std::string_view) { FAIL() << "nothing ended"; });
  }
  EXPECT_FALSE(readable);
  EXPECT_FALSE(reader.feed("\n\n", [](std::string_view) { FAIL() << "it is over"; }));
}

}  // namespace
}  // namespace heddle::tools
